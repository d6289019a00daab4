"""Makes the samplers of a session: what is the same for every request is filled in here."""

from __future__ import annotations

from collections.abc import Callable

from app_server.core.session.assemble import ReplyAssembler
from app_server.core.session.requests import RequestShape, context_line
from app_server.core.session.sampling import Sampler
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState, Turn
from app_server.core.session.transcript import Transcript
from app_server.core.tools.runtime import ToolRuntime
from protocol.events.msg import EventMsg


class SamplerFactory:
    """For one session."""

    def __init__(self, services: Services, state: SessionState) -> None:
        self._services, self._state = services, state

    def telling(
        self,
        turn: Turn,
        shape: RequestShape,
        transcript: Transcript,
        tools: ToolRuntime,
        *,
        show_messages: bool = True,
    ) -> Sampler:
        """One whose replies the client sees."""
        return self._sampler(turn, shape, transcript, tools, self._emit(turn.id), show_messages)

    def silent(self, turn: Turn, shape: RequestShape, transcript: Transcript) -> Sampler:
        """One whose replies are for the engine, without tools."""
        return self._sampler(turn, shape, transcript, None, _say_nothing, False)

    def _sampler(
        self,
        turn: Turn,
        shape: RequestShape,
        transcript: Transcript,
        tools: ToolRuntime | None,
        emit: Callable[[EventMsg], None],
        show_messages: bool,
    ) -> Sampler:
        services = self._services

        def assembler() -> ReplyAssembler:
            return ReplyAssembler(
                emit,
                services.new_id,
                conversation_id=services.conversation_id,
                turn_id=turn.id,
                raw_reasoning=services.config.show_raw_agent_reasoning,
                show_messages=show_messages,
            )

        return Sampler(
            turn_id=turn.id,
            model=services.model,
            settings=shape.settings,
            outbox=services.outbox,
            transcript=transcript,
            tokens=self._state.tokens,
            context_window=shape.context_window,
            context_line=context_line(turn),
            assembler=assembler,
            tools=tools,
            clock=services.clock,
            telemetry=services.telemetry,
        )

    def _emit(self, turn_id: str) -> Callable[[EventMsg], None]:
        outbox = self._services.outbox
        return lambda msg: outbox.emit(turn_id, msg)


def _say_nothing(_: EventMsg) -> None:
    pass
