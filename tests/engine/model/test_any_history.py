"""Any history over any API: each strict provider accepts the request for it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.config_values import ProviderConfig, WireApi
from app_server.engine.context.history import normalise
from app_server.engine.model.catalogue import find_model
from app_server.engine.model.chat_writer import ChatWriter
from app_server.engine.model.prompt import FreeformTool, FunctionTool, Prompt, RequestSettings, WebSearchTool
from app_server.engine.model.quirks import Quirks, quirks_of
from app_server.engine.model.responses_writer import ResponsesWriter
from app_server_protocol.encoding import Json
from app_server_protocol.responses import ResponseItem
from tests.engine.model.histories import histories, user
from tests.support import strict_chat, strict_chat_rows, strict_responses

SCHEMA: Json = {
    "type": "object",
    "$schema": "http://json-schema.org/draft-07/schema#",
    "properties": {"command": {"$ref": "#/$defs/words"}, "kind": {"const": "a"}},
    "required": ["command"],
    "additionalProperties": False,
    "$defs": {"words": {"type": ["array", "null"], "items": {"type": "string"}}},
}
TOOLS = (
    FunctionTool("shell", "Runs a command.", SCHEMA, strict=True),
    FreeformTool("apply_patch", "Changes files.", {"type": "grammar", "syntax": "lark", "definition": "x"}),
    WebSearchTool(),
)
EFFORTS = st.sampled_from([None, "low", "high", "ultra"])


def quirks(name: str, model: str, wire: WireApi) -> Quirks:
    return quirks_of(ProviderConfig(id=name, name=name, wire_api=wire), model)


def prompt(items: list[ResponseItem]) -> Prompt:
    return Prompt(instructions="Be useful.", input=normalise([*items, user("Go on.")]), tools=TOOLS)


def settings(model: str, effort: str | None) -> RequestSettings:
    return RequestSettings(
        model=model,
        row=find_model(model),
        conversation_id="c",
        effort=effort,
        live_chat=True,
        sends_chosen_effort=True,
    )


@pytest.mark.parametrize("name", strict_chat_rows.PROVIDERS)
@given(items=histories(), effort=EFFORTS)
def test_any_history_over_chat_completions(name: str, items: list[ResponseItem], effort: str | None) -> None:
    rules = strict_chat_rows.PROVIDERS[name]
    chosen = settings(rules.model, effort)
    written = ChatWriter().body(prompt(items), chosen, quirks(name, rules.model, WireApi.CHAT), name)
    strict_chat.check(json.loads(written), rules)


@pytest.mark.parametrize("name", strict_responses.PROVIDERS)
@given(items=histories(foreign=True), effort=EFFORTS)
def test_any_history_over_responses(name: str, items: list[ResponseItem], effort: str | None) -> None:
    rules = strict_responses.PROVIDERS[name]
    chosen = settings(rules.model, effort)
    written = ResponsesWriter().body(prompt(items), chosen, quirks(name, rules.model, WireApi.RESPONSES))
    strict_responses.check(json.loads(written), rules)
