"""Notice about a model that writes its calls as text which no parser reads: sent once in the conversation.

Local servers without a parser for a model's calls are known, and their texts are parsed as calls. At other providers,
and over APIs without such a parser, the text stays the answer, and no tool ran: the notice tells the user why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app_server.engine.config.config_values import WireApi
from app_server.engine.model import text_calls
from app_server.engine.model.prompt import ToolSpec
from app_server.engine.model.quirks import quirks_of
from app_server.engine.session.session_services import TurnContext
from app_server.engine.turn.turn_items import last_assistant_text
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.responses import ResponseItem

NOTICE: Final = (
    "The model wrote a call as text; its server has no parser for the calls of this model. Nothing was run."
)


def warn_of_written_call(
    turn: TurnContext, answer: Sequence[ResponseItem], tools: Sequence[ToolSpec]
) -> None:
    """Send a notice once if the text of an answer without calls is a call of an offered tool."""
    shown, text = turn.services.commands.shown_once, last_assistant_text(answer)
    if text is None or NOTICE in shown or not _may_be_call(text):
        return
    provider = turn.services.model.client().provider
    reads_them = quirks_of(provider, turn.settings.model).text_calls and provider.wire_api is WireApi.CHAT
    if reads_them:
        return  # the reader has found that this is no call
    before = [item for item in turn.services.state.history.items if item not in answer]
    if text_calls.is_written_call(text, tools, before):
        shown.add(NOTICE)
        turn.emitter.emit(WarningNotice(message=NOTICE))


def _may_be_call(text: str) -> bool:
    """Return whether a text, or the text after its first line, begins like a call. Most texts do not."""
    start = text.lstrip()
    _, _, rest = start.partition("\n")
    return any(each.lstrip()[:1] in ("<", "[", "{", "`") for each in (start, rest[:1000]) if each.strip())
