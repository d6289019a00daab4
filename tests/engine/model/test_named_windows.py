"""Context windows that refusals of providers name."""

import json

import pytest

from app_server.engine.model.api_failures import LEAST_WINDOW, reported_failure, request_failure
from app_server.engine.model.quirks import Lessons
from app_server.engine.support.engine_errors import ContextWindowExceeded
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace
from tests.engine.model.scripted import provider_config

PROVIDER = provider_config()
LLAMA: Json = {
    "code": 400,
    "message": "the request exceeds the available context size, try increasing it",
    "type": "exceed_context_size_error",
}


@pytest.mark.parametrize(
    ("error", "window"),
    [
        ({**LLAMA, "n_ctx": 4096}, 4096),
        (LLAMA, None),
        ({**LLAMA, "n_ctx": LEAST_WINDOW - 1}, None),
        ({**LLAMA, "n_ctx": "many"}, None),
        ({**LLAMA, "n_ctx": -1}, None),
        (
            {
                "message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
                "type": "BadRequestError",
            },
            None,
        ),
        (
            {"message": "maximum context length is 131,072 tokens", "code": "context_length_exceeded"},
            None,
        ),
        ({"message": 'litellm: {"type": "exceed_context_size_error", "n_ctx": 2048}, context size'}, 2048),
    ],
)
def test_the_window_of_a_refusal(error: Json, window: int | None) -> None:
    status = request_failure(400, {}, json.dumps({"error": error}).encode()).error
    streamed = reported_failure(error)
    for failure in (status, streamed):
        if window is None and not isinstance(failure, ContextWindowExceeded):
            continue
        assert isinstance(failure, ContextWindowExceeded)
        assert failure.window == window


def test_a_window_is_learnt_of_one_model_at_one_address() -> None:
    lessons = Lessons()
    lessons.learn_window(PROVIDER, "a", 4096)
    assert lessons.window(PROVIDER, "a") == 4096
    assert lessons.window(PROVIDER, "b") is None
    assert lessons.window(replace(PROVIDER, base_url="http://elsewhere/v1"), "a") is None
