"""The API over which a request is sent, where a model calls tools over the Responses API only."""

import json

import pytest

from app_server.engine.config.config_values import ProviderConfig, WireApi
from app_server.engine.model.api_failures import RequestFailure
from app_server.engine.model.catalogue import PLAIN
from app_server.engine.model.model_errors import UnexpectedStatus
from app_server.engine.model.prompt import FunctionTool, Prompt, RequestSettings
from app_server.engine.model.quirks import Lessons
from app_server.engine.model.request_form import RequestForm
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.values import replace

TOOLS = [FunctionTool("t", "T", {"type": "object", "properties": {}})]
WITH_TOOLS = Prompt(instructions="I", input=[], tools=TOOLS)
CHAT, RESPONSES = "chat/completions", "responses"
NEW, OLD = "gpt-6.2-sol", "gpt-4.1"

OPEN = ProviderConfig(
    id="mine", name="mine", base_url="https://x.openai.azure.com/openai/v1", wire_api=WireApi.CHAT
)
CHOSEN = replace(OPEN, says_wire=True)
GATEWAY = replace(OPEN, base_url="https://gateway.example/v1")


def settings(model: str) -> RequestSettings:
    return RequestSettings(model=model, row=PLAIN, conversation_id="c")


def test_a_model_that_calls_tools_over_the_responses_api_only_is_asked_there_and_others_are_not() -> None:
    form = RequestForm(OPEN, Lessons())
    for model, path in ((OLD, CHAT), (NEW, RESPONSES), (NEW, RESPONSES), (OLD, CHAT), (NEW, RESPONSES)):
        form.request(WITH_TOOLS, settings(model))
        assert form.wire.path == path


def test_where_the_user_chose_the_other_api_such_a_turn_fails_before_it_is_sent() -> None:
    form = RequestForm(CHOSEN, Lessons())
    with pytest.raises(ModelError) as refused:
        form.request(WITH_TOOLS, settings(NEW))
    assert str(refused.value) == (
        '`gpt-6.2-sol` calls tools over the Responses API only here; set `wire = "responses"` in'
        " [model_providers.mine]."
    )
    assert refused.value.error_class is ErrorClass.BAD_REQUEST
    assert not refused.value.retryable
    form.request(replace(WITH_TOOLS, tools=[]), settings(NEW))
    form.request(WITH_TOOLS, settings(OLD))
    without = RequestForm(replace(CHOSEN, quirks={"omit": ["reasoning_effort"]}), Lessons())
    without.request(WITH_TOOLS, settings(NEW))
    assert {form.wire.path, without.wire.path} == {CHAT}


@pytest.mark.parametrize("says_wire", [False, True])
def test_a_refusal_in_these_words_means_the_same_for_that_model(says_wire: bool) -> None:
    lessons = Lessons()
    form = RequestForm(replace(GATEWAY, says_wire=says_wire), lessons)
    words = (
        "Function tools with reasoning_effort are not supported for gpt-6.2-sol in /v1/chat/completions."
        " Please use /v1/responses instead."
    )
    body = json.dumps({"error": {"message": words, "param": "reasoning_effort"}})
    asked = form.request(WITH_TOOLS, settings(NEW))
    assert form.learns(RequestFailure(UnexpectedStatus(400, body), status=400), asked, form.wire.body(asked))
    if says_wire:
        with pytest.raises(ModelError, match="over the Responses API only here"):
            form.request(WITH_TOOLS, settings(NEW))
    else:
        form.request(WITH_TOOLS, settings(NEW))
        assert form.wire.path == RESPONSES
        later = RequestForm(GATEWAY, lessons)
        later.request(WITH_TOOLS, settings(NEW))
        assert later.wire.path == RESPONSES
    form.request(WITH_TOOLS, settings(OLD))
    assert form.wire.path == CHAT
