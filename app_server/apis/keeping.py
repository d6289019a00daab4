"""What a connection is made of, so that another process can go on with it: what its client said of itself, what goes on
with it, and the conversations that it is in. A conversation is opened again from its file, by who opened it before if
that client is there.

Only a server that is replaced while clients are connected has it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import msgspec
from msgspec import Struct
from pydantic import TypeAdapter

from app_server.apis.services import Keeper, KeptConversation, Served
from app_server.core.errors import CoreError
from app_server.core.session.commands import ChangeSettings
from app_server.rpc.errors import RpcError
from app_server_protocol.engine.settings import ModeSettings, Settings, SettingsChange
from app_server_protocol.fields import SandboxPolicy
from app_server_protocol.jsonrpc import Request
from app_server_protocol.policy import AskForApproval, QuestionKinds, ReasoningSummary

log = logging.getLogger(__name__)

NEVER_SENT = -1
"""The id of a request that is repeated: nobody is answered."""


class KeptClient(Struct, frozen=True, kw_only=True):
    """Everything of a connection that its transport does not know."""

    requests: tuple[tuple[str, bytes], ...]
    """Methods and parameters of requests that are served again."""
    conversations: tuple[KeptConversation, ...]
    next_id: int
    """Of the requests that it is sent."""


def keep(served: Served) -> KeptClient:
    """Return what a client is, at a moment when no request of it is served."""
    return KeptClient(
        requests=tuple((each.method, json.dumps(each.params).encode()) for each in served.router.repeats),
        conversations=tuple(_conversations(served)),
        next_id=served.client.outgoing.pending.next_id,
    )


def _conversations(served: Served) -> Iterator[KeptConversation]:
    for live in served.shared.conversations.all():
        for api, keeper in served.shared.keepers.items():
            found = keeper.subscriptions(live)
            opened = live.opened_by is served.client and live.opened_in == api
            if not found and not opened:
                continue
            given = live.options
            options = (
                {} if given is None else given.model_dump(mode="json", by_alias=True, exclude_unset=True)
            )
            yield KeptConversation(
                id=live.id,
                api=api,
                settings=msgspec.json.encode(live.session.facts.settings),
                options=json.dumps(options).encode() if opened else None,
                subscriptions=found,
            )


class Together:
    """The connections of one server that are restored at once."""

    def __init__(self, count: int) -> None:
        self._left = {"opened": count, "joined": count}
        self._reached = {each: anyio.Event() for each in self._left}
        self._opening = anyio.Lock()
        self.goes_on = anyio.Event()
        """Set when clients are served again."""

    async def restore(self, served: Served, kept: KeptClient) -> None:
        """Make a connection what it was. Its client is sent nothing, and nothing is served, until all are restored."""
        outgoing = served.client.outgoing
        outgoing.silent, outgoing.pending.next_id = True, kept.next_id
        for method, params in kept.requests:
            await _repeat(served, Request(NEVER_SENT, method, json.loads(params)))
        await self.reopen(served, kept)
        await self.goes_on.wait()
        outgoing.silent = False

    async def reopen(self, served: Served, kept: KeptClient) -> None:
        """Let a client be in its conversations again; they are opened first by who opened them before. Its client is
        sent nothing meanwhile.
        """
        outgoing, before = served.client.outgoing, served.client.outgoing.silent
        outgoing.silent = True
        for opened in (True, False):
            for each in kept.conversations:
                if (each.options is not None) == opened:
                    async with self._opening:
                        await _rejoin(served, each)
            await self._meet("opened" if opened else "joined")
        outgoing.silent = before

    async def _meet(self, where: str) -> None:
        self.left(where)
        await self._reached[where].wait()

    def left(self, where: str) -> None:
        self._left[where] -= 1
        if self._left[where] <= 0:
            self._reached[where].set()

    async def skip(self) -> None:
        """Count a connection that is in no conversation."""
        for where in self._left:
            self.left(where)
        await self.goes_on.wait()

    async def all_joined(self) -> None:
        await self._reached["joined"].wait()


async def _repeat(served: Served, request: Request) -> None:
    try:
        reply = await served.router.call(request)
        if reply.effects is not None:
            await anext(reply.effects, None)
    except Exception as error:
        log.error("%s is not repeated: %s", request.method, served.router.to_rpc_error(error, "").message)


async def _rejoin(served: Served, kept: KeptConversation) -> None:
    conversations = served.shared.conversations
    was_open = conversations.find(kept.id) is not None
    try:
        await _keeper(served, kept.api).rejoin(kept, json.loads(kept.options) if kept.options else {})
        if not was_open and (live := conversations.find(kept.id)) is not None:
            change = _all_of(kept_settings(json.loads(kept.settings)))
            live.session.do(ChangeSettings(live.session.facts.permitted(change)))
    except (CoreError, RpcError, OSError) as error:
        log.error("conversation %s goes on in its file only: %s", kept.id, error)


OPENS: Mapping[str, str] = {
    "threads": "thread/resume",
    "conversations": "resumeConversation",
    "sessions": "session/resume",
}
"""By API, a method whose routes bring the keeper of a connection along."""


def _keeper(served: Served, api: str) -> Keeper:
    served.router.lane(Request(NEVER_SENT, OPENS[api]))
    return served.shared.keepers[api]


def kept_settings(raw: dict[str, Any]) -> Settings:
    """Read settings as `keep` writes them."""
    granular = raw["granular"]
    return Settings(
        cwd=raw["cwd"],
        approval_policy=AskForApproval(raw["approval_policy"]),
        sandbox_policy=TypeAdapter(SandboxPolicy).validate_python(raw["sandbox_policy"]),
        model=raw["model"],
        effort=raw["effort"],
        summary=ReasoningSummary(raw["summary"]),
        granular=None if granular is None else msgspec.convert(granular, QuestionKinds),
        permission_profile=raw["permission_profile"],
        mode=msgspec.convert(raw["mode"], ModeSettings),
        workspace_roots=tuple(raw["workspace_roots"]),
    )


def _all_of(settings: Settings) -> SettingsChange:
    given = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return SettingsChange(**{**given, "workspace_roots": (settings.cwd, *settings.workspace_roots)})
