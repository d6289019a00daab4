"""A provider of the Responses API that refuses what real providers refuse, by its rules. The checker is pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from app_server_protocol.encoding import Json
from tests.support.scripted_model import Reply, done, failure, reply, says
from tests.support.strict_provider import Answer, Refused, written

FIELDS = frozenset(
    {
        *("model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls", "reasoning"),
        *(
            "store",
            "stream",
            "include",
            "prompt_cache_key",
            "text",
            "service_tier",
            "max_output_tokens",
            "client_metadata",
        ),
    }
)
ITEMS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content", "id", "phase"}),
    "reasoning": frozenset({"type", "summary", "content", "encrypted_content", "id"}),
    "function_call": frozenset({"type", "name", "arguments", "call_id", "id"}),
    "function_call_output": frozenset({"type", "call_id", "output"}),
    "local_shell_call": frozenset({"type", "call_id", "status", "action", "id"}),
    "custom_tool_call": frozenset({"type", "name", "input", "call_id", "id", "status"}),
    "custom_tool_call_output": frozenset({"type", "call_id", "output"}),
}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of one provider: the requests that it refuses."""

    model: str
    fields: frozenset[str] = FIELDS
    roles: frozenset[str] = frozenset({"user", "assistant", "developer", "system"})
    custom_tools: bool = True
    web_search: bool = True
    item_ids: bool = False
    """Whether the provider knows items by their ids, so that a request may send them back. Otherwise items must have no
    ids.
    """
    parses_arguments: bool = False
    encrypts: bool = True
    """Whether thoughts are encrypted. Otherwise they are plain."""
    too_long: str = (
        "Your input exceeds the context window of this model. Please adjust your input and try again."
    )
    words: Mapping[str, str] = field(default_factory=dict)

    def refuse(self, rule: str, words: str) -> Refused:
        return Refused(rule, self.words.get(rule, words))


def check(body: Json, rules: Rules, made: frozenset[str] = frozenset()) -> None:
    """Raise Refused for a request that the provider does not accept. `made` has the encrypted thoughts that the
    provider made itself.
    """
    for name in body:
        if name not in rules.fields:
            raise rules.refuse("field", f"Unknown parameter: '{name}'.")
    for tool in body.get("tools", ()):
        kind = tool["type"]
        if (kind == "custom" and not rules.custom_tools) or (kind == "web_search" and not rules.web_search):
            raise rules.refuse("tool", f'Only `type:"function"` tools are supported, not {kind}')
    waiting: dict[str, str] = {}
    seen: set[str] = set()
    for n, item in enumerate(body["input"]):
        _item(item, n, rules, made)
        kind, id = item["type"], item.get("call_id", "")
        if kind in ("function_call", "custom_tool_call", "local_shell_call"):
            if len(id) > 64:
                raise rules.refuse("id", f"Invalid 'input[{n}].call_id': string too long. Maximum length 64.")
            if id in seen:
                raise rules.refuse("id_again", f"Duplicate call_id {id}")
            seen.add(id)
            waiting[id] = kind
        elif kind.endswith("_output") and _pair(waiting.pop(id, "")) != kind:
            raise rules.refuse("orphan", f"No tool call found for function call output with call_id {id}.")
    if waiting:
        raise rules.refuse("unanswered", f"No tool output found for function call {next(iter(waiting))}.")


def _pair(kind: str) -> str:
    """Return the item kind of the output of a call."""
    return "function_call_output" if kind == "local_shell_call" else f"{kind}_output"


def _item(item: Json, n: int, rules: Rules, made: frozenset[str]) -> None:
    kind = item["type"]
    if kind not in ITEMS or (kind.startswith(("custom", "local")) and not rules.custom_tools):
        raise rules.refuse("item", f"Invalid value: '{kind}' at 'input[{n}]'.")
    if extra := item.keys() - ITEMS[kind]:
        raise rules.refuse("field", f"Unknown parameter: 'input[{n}].{min(extra)}'.")
    if "id" in item and not rules.item_ids:
        raise rules.refuse("item_id", f"Item with id '{item['id']}' not found. Items are not persisted.")
    match kind:
        case "message":
            if item["role"] not in rules.roles:
                raise rules.refuse("role", f"input[{n}].role: unknown role {item['role']}")
            if not any(part.get("text", "an image").strip() for part in item["content"]):
                raise rules.refuse("blank", f"input[{n}].content must not be blank")
        case "reasoning":
            secret = item.get("encrypted_content")
            if rules.encrypts and secret not in made:
                raise rules.refuse("foreign", "The encrypted content could not be verified.")
        case "function_call" if rules.parses_arguments:
            try:
                parsed = json.loads(item["arguments"])
            except ValueError as error:
                raise rules.refuse("arguments", f"tool call arguments are no JSON: {error}") from None
            if not isinstance(parsed, dict):
                raise rules.refuse("arguments", "tool call arguments are no JSON object")
        case _:
            pass


class StrictResponses:
    """Model author that sends the answers of a script, and refuses what this provider refuses."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._made: set[str] = set()

    @property
    def wire(self) -> str:
        return "responses"

    @property
    def model(self) -> str:
        return self._rules.model

    def check(self, body: Json) -> None:
        check(body, self._rules, frozenset(self._made))

    def refusal(self, words: str) -> Reply:
        return failure(400, {"error": {"message": words, "type": "invalid_request_error"}})

    def too_long(self) -> Reply:
        return self.refusal(self._rules.too_long)

    def write(self, answer: Answer, n: int, body: Json) -> Reply:
        items: list[Json] = []
        if answer.thought:
            thought: Json = {"type": "reasoning", "id": f"rs_{n}", "summary": []}
            if self._rules.encrypts:
                secret = hashlib.sha256(f"{n} {answer.thought}".encode()).hexdigest()
                self._made.add(secret)
                thought |= {"encrypted_content": secret}
                thought["summary"] = [{"type": "summary_text", "text": answer.thought}]
            else:
                thought["content"] = [{"type": "reasoning_text", "text": answer.thought}]
            items.append(done(thought))
        if answer.text:
            items.append(says(answer.text, f"msg_{n}"))
        for at, (_, name, arguments) in enumerate(answer.calls):
            id = f"call_{n}_{at}"  # unique, as the ids of these providers are
            call = {"type": "function_call", "call_id": id, "name": name, "arguments": written(arguments)}
            items.append(done({**call, "id": f"fc_{n}_{id}"}))
        return reply(*items)


PLAIN_THOUGHTS = "openai/gpt-oss-20b"

PROVIDERS: Mapping[str, Rules] = {
    "openai": Rules(model="gpt-6.2-sol"),
    "azure": Rules(model="gpt-6.2-sol", item_ids=True),
    "openrouter": Rules(model="qwen/qwen3-coder", custom_tools=False, web_search=False),
    "deepseek": Rules(
        model="deepseek-v4-pro",
        custom_tools=False,
        web_search=False,
        roles=frozenset({"user", "assistant", "system"}),
        encrypts=False,
    ),
    "vllm": Rules(
        model=PLAIN_THOUGHTS,
        custom_tools=False,
        web_search=False,
        parses_arguments=True,
        encrypts=False,
        too_long="This model's maximum context length is 131072 tokens. However, you requested 140000 tokens.",
    ),
    "ollama": Rules(model=PLAIN_THOUGHTS, custom_tools=False, web_search=False, encrypts=False),
}
"""Rules of the providers, by the name of their row."""

LEARNT: Mapping[str, Rules] = {
    "functions only": Rules(model="gpt-5.1", custom_tools=False),
    "no developer": Rules(model="some-model", roles=frozenset({"user", "assistant", "system"})),
    "parses arguments": Rules(model="some-model", parses_arguments=True),
    "few fields": Rules(model="some-model", fields=FIELDS - {"include", "prompt_cache_key", "service_tier"}),
}
"""Rules of providers without a known row."""
