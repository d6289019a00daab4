"""Rules of Chat Completions providers, by the names of their rows in `models.json`, and of some providers without a
row.
"""

import json
from collections.abc import Mapping

from app_server_protocol.encoding import Json
from tests.support.strict_chat import ALL, BASE, KEYWORDS, USAGE, Rules


def detail_error(status: int, words: str) -> Json:
    """Return an error as FastAPI servers write it: the field is part of the location."""
    place, _, said = words.partition(": ")
    return {"detail": [{"type": "extra_forbidden", "loc": ["body", *place.split(".")], "msg": said or words}]}


def mistral_error(status: int, words: str) -> Json:
    message = detail_error(status, words) if "Extra inputs" in words else words
    return {
        "object": "error",
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": "3230",
    }


def google_error(status: int, words: str) -> Json:
    return [{"error": {"code": status, "message": words, "status": "INVALID_ARGUMENT"}}]


def plain_error(status: int, words: str) -> Json:
    return {"code": "Client specified an invalid argument", "error": words}


def minimax_error(status: int, words: str) -> Json:
    return {
        "type": "error",
        "error": {"type": "bad_request_error", "message": f"invalid params, {words} (2013)"},
    }


def vllm_error(status: int, words: str) -> Json:
    return {"object": "error", "message": words, "type": "BadRequestError", "param": None, "code": status}


def openrouter_error(status: int, words: str) -> Json:
    raw = {"raw": json.dumps({"error": {"message": words}}), "provider_name": "Upstream"}
    return {"error": {"message": "Provider returned error", "code": status, "metadata": raw}}


NO_STORE = ALL | {"reasoning"}
NINE = r"[a-zA-Z0-9]{9}"
STRING_LIMIT = "Invalid 'messages[{1}].tool_calls[0].id': string too long. Expected maximum length 40: '{0}'"
MISTRAL_WORDS = {"id": "Tool call id was {0} but must be a-z, A-Z, 0-9, with a length of 9."}
DEEPSEEK_ROLE = (
    "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `{0}`, expected one of"
    " `system`, `user`, `assistant`, `tool`"
)

PROVIDERS: Mapping[str, Rules] = {
    "openai": Rules(
        model="gpt-5.1",
        fields=ALL | {"store", "prompt_cache_key", "verbosity", "service_tier"},
        roles=frozenset({"system", "developer", "user", "assistant", "tool"}),
        ids=r"[^\n]{1,40}",
        alternates=False,
        parses_arguments=False,
        keywords=frozenset(),
        words={"field": "Unrecognized request argument supplied: {0}", "id": STRING_LIMIT},
        too_long=(400, "Your input exceeds the context window of this model."),
    ),
    "openrouter": Rules(
        model="qwen/qwen3-coder",
        fields=BASE | USAGE | {"reasoning", "tool_choice", "max_completion_tokens"},
        thought_fields=frozenset({"reasoning", "reasoning_details"}),
        error=openrouter_error,
        writes="details",
        too_long=(
            400,
            "This endpoint's maximum context length is 262144 tokens. However, you requested about 300000.",
        ),
    ),
    "deepseek": Rules(
        model="deepseek-v4-pro",
        fields=BASE | USAGE | {"thinking", "reasoning_effort", "max_tokens"},
        thought_fields=frozenset({"reasoning_content"}),
        needs_thoughts=True,
        images=False,
        alternates=False,
        writes="reasoning_content",
        words={"role": DEEPSEEK_ROLE},
        too_long=(
            400,
            "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens.",
        ),
    ),
    "moonshot": Rules(
        model="kimi-k2-thinking",
        fields=BASE | USAGE | {"max_tokens", "prompt_cache_key", "reasoning_effort"},
        strict=False,
        thought_fields=frozenset({"reasoning_content"}),
        alternates=False,
        writes="reasoning_content",
        words={
            "blank": "Invalid request: message at position {0} with role 'assistant' must not be empty",
            "no_thought": "thinking is enabled but reasoning_content is missing in assistant tool call message",
        },
        too_long=(400, "Invalid request: Your request exceeded model token limit: 262144"),
    ),
    "zai": Rules(
        model="glm-5",
        fields=BASE | USAGE | {"thinking", "reasoning_effort", "max_tokens"},
        thought_fields=frozenset({"reasoning_content"}),
        writes="reasoning_content",
        too_long=(400, "Prompt exceeds max length"),
    ),
    "dashscope": Rules(
        model="qwen3-max",
        fields=BASE | USAGE | {"enable_thinking", "max_completion_tokens"},
        thought_fields=frozenset({"reasoning_content"}),
        writes="reasoning_content",
        words={"role": "Role must be in [user, assistant, system, tool]: developer role is not supported"},
        too_long=(
            400,
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
        ),
    ),
    "mistral": Rules(
        model="devstral-medium-latest",
        fields=BASE | {"reasoning_effort", "max_tokens", "parallel_tool_calls"} | USAGE,
        user_after_tool=False,
        ids=NINE,
        status=422,
        error=mistral_error,
        writes="parts",
        words=MISTRAL_WORDS,
        too_long=(
            400,
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        ),
    ),
    "gemini": Rules(
        model="gemini-3-pro",
        fields=BASE | USAGE | {"reasoning_effort", "max_tokens"},
        signs=True,
        strict=False,
        keywords=KEYWORDS | {"additionalProperties"},
        error=google_error,
        writes="signed",
        words={
            "field": 'Invalid JSON payload received. Unknown name "{0}": Cannot find field.',
            "keyword": "Invalid JSON payload received. Unknown name \"{0}\" at 'tools[0].function.parameters': Cannot"
            " find field.",
            "unanswered": "Please ensure that the number of function response parts is equal to the number of function"
            " call parts of the function call turn. {0}",
        },
        too_long=(
            400,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        ),
    ),
    "groq": Rules(
        fields=NO_STORE,
        thought_fields=frozenset({"reasoning"}),
        writes="reasoning",
        words={"field": "property '{0}' is unsupported"},
        too_long=(400, "Please reduce the length of the messages or completion."),
    ),
    "cerebras": Rules(
        fields=NO_STORE,
        thought_fields=frozenset({"reasoning"}),
        writes="reasoning",
        words={"field": "body.{0}: property 'body.{0}' is unsupported"},
        too_long=(400, ""),
    ),
    "nvidia": Rules(
        fields=BASE | USAGE | {"max_tokens"},
        strict=False,
        thought_fields=frozenset({"reasoning_content"}),
        error=detail_error,
        status=422,
        writes="reasoning_content",
    ),
    "together": Rules(
        fields=BASE | USAGE | {"max_tokens", "reasoning"},
        strict=False,
        thought_fields=frozenset({"reasoning"}),
        writes="reasoning",
        too_long=(
            422,
            "Input validation error: `inputs` tokens must be less: maximum context length is 131072.",
        ),
    ),
    "fireworks": Rules(
        fields=NO_STORE,
        thought_fields=frozenset({"reasoning_content"}),
        writes="reasoning_content",
        words={"field": "Extra inputs are not permitted, field: '{0}'"},
        too_long=(400, "The prompt is too long: 140000, model maximum context length: 131072"),
    ),
    "xai": Rules(
        model="grok-4",
        fields=BASE | USAGE | {"max_completion_tokens"},
        thought_fields=frozenset({"reasoning_content"}),
        error=plain_error,
        writes="reasoning_content",
        words={"field": "Model grok-4 does not support parameter {0}."},
        too_long=(
            400,
            "This model's maximum prompt length is 256000 but the request contains 300000 tokens.",
        ),
    ),
    "chutes": Rules(
        fields=NO_STORE,
        thought_fields=frozenset({"reasoning_content"}),
        error=vllm_error,
        writes="reasoning_content",
    ),
    "minimax": Rules(
        model="MiniMax-M2",
        fields=BASE | USAGE | {"max_completion_tokens", "reasoning_effort"},
        thought_fields=frozenset({"reasoning_details"}),
        error=minimax_error,
        writes="details",
        words={
            "system": "chat setting: system has to be first",
            "orphan": "tool result does not follow tool call",
            "blank": "chat content is empty",
        },
        too_long=(400, "context window exceeds limit"),
    ),
    "ollama": Rules(
        model="qwen3-coder",
        null=False,
        fields=ALL,
        thought_fields=frozenset({"reasoning"}),
        writes="whole",
        words={
            "null": "invalid message content type: <nil>",
            "arguments": "invalid tool call arguments: {0}",
        },
        too_long=(400, "prompt too long; exceeded max context length by 100 tokens"),
    ),
    "lmstudio": Rules(
        model="qwen/qwen3-coder-30b",
        null=False,
        thought_fields=frozenset({"reasoning_content"}),
        writes="tags",
        words={
            "system": "Error rendering prompt with jinja template: System message must be at the beginning."
        },
        too_long=(
            400,
            "The number of tokens to keep from the initial prompt is greater than the context length.",
        ),
    ),
    "llamacpp": Rules(
        model="local",
        null=False,
        thought_fields=frozenset({"reasoning_content"}),
        writes="reasoning_content",
        too_long=(400, "the request exceeds the available context size, try increasing it"),
    ),
    "vllm": Rules(
        model="Qwen/Qwen3-Coder-30B-A3B-Instruct",
        null=False,
        error=vllm_error,
        thought_fields=frozenset({"reasoning_content", "reasoning"}),
        writes="reasoning",
        words={"arguments": "Expecting value: {0}", "empty_tools": "`tools` should be non-empty"},
        too_long=(
            400,
            "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens.",
        ),
    ),
    "sglang": Rules(
        model="some-model",
        error=vllm_error,
        null=False,
        thought_fields=frozenset({"reasoning_content"}),
        writes="reasoning_content",
        too_long=(
            400,
            "The input (140000 tokens) is longer than the model's context length (131072 tokens).",
        ),
    ),
    "litellm": Rules(
        model="claude-behind",
        alternates=True,
        words={
            "no_tools": "litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without `tools=` param"
            " specified."
        },
        too_long=(
            400,
            "litellm.ContextWindowExceededError: prompt is too long: 210000 tokens > 200000 maximum",
        ),
    ),
}
"""Rules of the providers, by the name of their row."""

LEARNT: Mapping[str, Rules] = {
    "no optional fields": Rules(fields=BASE, strict=False, error=detail_error, status=422),
    "fields in words": Rules(fields=BASE, words={"field": "Unsupported parameter: {0}"}),
    "nine": Rules(ids=NINE, words=MISTRAL_WORDS),
    "forty": Rules(ids=r".{1,40}", words={"id": STRING_LIMIT}),
    "assistant after tool": Rules(user_after_tool=False),
    "no pictures": Rules(images=False),
    "needs thoughts": Rules(
        thought_fields=frozenset({"reasoning_content"}), needs_thoughts=True, writes="reasoning_content"
    ),
    "gemini's schemas": Rules(
        keywords=frozenset({"additionalProperties"}),
        words={"keyword": "Invalid JSON payload received. Unknown name \"{0}\" at 'tools[0].parameters'"},
    ),
}
"""Rules of providers without a known row. Each has one rule that a request of the plain form breaks."""
