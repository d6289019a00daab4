"""A provider of Chat Completions that refuses what real providers refuse, by its rules. The checker is pure.

`check` reads a request and raises `Refused` with the provider's own error text. The form of its answers is a rule, too.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from app_server_protocol.encoding import Json
from tests.support.scripted_model import Reply, failure
from tests.support.strict_provider import Answer, Refused, written

BASE = frozenset({"model", "messages", "stream", "tools", "response_format"})
USAGE = frozenset({"stream_options"})
ALL = BASE | USAGE | {"reasoning_effort", "max_completion_tokens", "max_tokens", "parallel_tool_calls"}
KEYWORDS = frozenset({"$schema", "$defs", "$ref", "$id", "const", "patternProperties", "propertyNames"})
"""JSON Schema keywords that some servers do not know."""

WORDS: Mapping[str, str] = {
    "field": "{0}: Extra inputs are not permitted",
    "role": "Unexpected role '{0}'",
    "system": "System message must be at the beginning.",
    "alternates": "Conversation roles must alternate user/assistant/user/assistant/...",
    "user_after_tool": "Unexpected role 'user' after role 'tool'",
    "unanswered": "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {0}",
    "orphan": "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'.",
    "id": "Invalid 'messages[{1}].tool_calls[0].id': '{0}'",
    "id_again": "Duplicate tool_call_id {0}",
    "blank": "messages.{0}: text content blocks must contain non-whitespace text",
    "null": "Invalid type for 'messages[{0}].content': content field is required, got null",
    "arguments": "Failed to parse tool call arguments as JSON: {0}",
    "no_tools": "Requests which include `tool_calls` must define tools. Pass `tools=` param",
    "empty_tools": "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array"
    " instead.",
    "keyword": "Invalid schema of the tool {1}: unsupported keyword {0}",
    "strict": "tools[0].function.strict: Extra inputs are not permitted",
    "image": "Failed to deserialize the JSON body into the target type: messages[{0}]: unknown variant `image_url`,"
    " expected `text`",
    "thought": "'messages.{0}' : property '{1}' is unsupported",
    "foreign": "messages.{0}: {1} was not made by this model",
    "no_thought": "The reasoning_content in the thinking mode must be passed back to the API.",
    "no_signature": "Function call is missing a thought_signature in functionCall parts. This is required for tools to"
    " work correctly, and missing thought_signature may lead to degraded model performance.",
    "last": "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
    "name": "Invalid 'tools[0].function.name': string does not match pattern",
}
"""Error text of each rule, for a provider without a text of its own."""


def openai_error(status: int, words: str) -> Json:
    return {"error": {"message": words, "type": "invalid_request_error", "param": None, "code": None}}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of one provider: what it refuses, the error texts, and how it writes answers."""

    model: str = "some-model"
    fields: frozenset[str] = ALL
    roles: frozenset[str] = frozenset({"system", "user", "assistant", "tool"})
    alternates: bool = True
    """Whether messages of the user and of the assistant have to alternate."""
    user_after_tool: bool = True
    ids: str = r"[A-Za-z0-9_-]{1,64}"
    null: bool = True
    """Whether a message with calls may have no content."""
    images: bool = True
    parses_arguments: bool = True
    keywords: frozenset[str] = KEYWORDS
    """JSON Schema keywords that it refuses."""
    strict: bool = True
    """Whether tools may have the field `strict`."""
    thought_fields: frozenset[str] = frozenset()
    """Fields of thoughts that a message of the assistant may have."""
    needs_thoughts: bool = False
    """Whether every message of the assistant has to have thoughts, even if they are empty."""
    signs: bool = False
    """Whether calls have signatures, as Gemini's have."""
    status: int = 400
    error: Callable[[int, str], Json] = openai_error
    words: Mapping[str, str] = field(default_factory=dict)
    """Error texts of this provider, by rule."""
    too_long: tuple[int, str] = (400, "This model's maximum context length is 131072 tokens.")
    writes: str = "plain"
    """Form of the answers: `plain`, `reasoning_content`, `reasoning`, `details`, `parts`, `signed`, `tags` or `whole`
    (each call in one piece, with equal index and arguments as objects).
    """

    def refuse(self, rule: str, *places: object) -> Refused:
        return Refused(rule, (self.words.get(rule) or WORDS[rule]).format(*places))


def check(body: Json, rules: Rules, made: frozenset[str] = frozenset()) -> None:
    """Raise Refused for a request that the provider does not accept. `made` has the thoughts and signatures that the
    provider made itself.
    """
    for name in body:
        if name not in rules.fields:
            raise rules.refuse("field", name)
    _tools(body, rules)
    messages = body["messages"]
    waiting: list[str] = []
    ids: set[str] = set()
    before = ""
    for n, message in enumerate(messages):
        role = message["role"]
        if role not in rules.roles:
            raise rules.refuse("role", role)
        if role in ("system", "developer") and n:
            raise rules.refuse("system")
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                raise rules.refuse("orphan")
            waiting.remove(message["tool_call_id"])
        else:
            if waiting:
                raise rules.refuse("unanswered", ", ".join(waiting))
            _order(role, before, rules)
        _content(message, n, rules)
        if role == "assistant":
            waiting = [each["id"] for each in _calls(message, n, rules, ids)]
            _thoughts(message, n, rules, made)
        before = role
    if waiting:
        raise rules.refuse("unanswered", ", ".join(waiting))
    if before == "assistant" and rules.alternates:
        raise rules.refuse("last")
    if ids and "tools" not in body:
        raise rules.refuse("no_tools")


def _order(role: str, before: str, rules: Rules) -> None:
    if rules.alternates and (role == before or (role == "assistant" and before in ("", "system"))):
        raise rules.refuse("alternates")
    if role == "user" and before == "tool" and not rules.user_after_tool:
        raise rules.refuse("user_after_tool")


def _tools(body: Json, rules: Rules) -> None:
    if body.get("tools") == []:
        raise rules.refuse("empty_tools")
    for tool in body.get("tools", ()):
        function = tool["function"]
        if "strict" in function and not rules.strict:
            raise rules.refuse("strict")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", function["name"]):
            raise rules.refuse("name")
        for keyword in _keywords(function["parameters"]):
            if keyword in rules.keywords:
                raise rules.refuse("keyword", keyword, function["name"])


def _keywords(schema: Json) -> Iterator[str]:
    """Yield the keywords of a schema. Names of properties are not keywords."""
    if isinstance(schema, list):
        for each in schema:
            yield from _keywords(each)
    elif isinstance(schema, dict):
        for name, value in schema.items():
            yield name
            if name in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
                for each in value.values():
                    yield from _keywords(each)
            elif name not in ("enum", "const", "default", "examples"):
                yield from _keywords(value)


def _content(message: Json, n: int, rules: Rules) -> None:
    content = message.get("content")
    if content is None:
        if message["role"] != "assistant" or not message.get("tool_calls") or not rules.null:
            raise rules.refuse("null", n)
        return
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts:
        if part["type"] == "image_url":
            if not rules.images:
                raise rules.refuse("image", n)
            if message["role"] != "user":
                raise rules.refuse("role", f"{message['role']} with an image")
        elif not part["text"].strip() and not message.get("tool_calls") and message["role"] != "tool":
            raise rules.refuse("blank", n)


def _calls(message: Json, n: int, rules: Rules, ids: set[str]) -> list[Json]:
    calls: list[Json] = message.get("tool_calls") or []
    if "tool_calls" in message and not calls:
        raise rules.refuse("empty_tools")
    for at, call in enumerate(calls):
        if not re.fullmatch(rules.ids, call["id"]):
            raise rules.refuse("id", call["id"], n)
        if call["id"] in ids:
            raise rules.refuse("id_again", call["id"])
        ids.add(call["id"])
        if rules.parses_arguments:
            try:
                parsed = json.loads(call["function"]["arguments"])
            except ValueError as error:
                raise rules.refuse("arguments", error) from None
            if not isinstance(parsed, dict):
                raise rules.refuse("arguments", "not an object")
        if ("extra_content" in call) != rules.signs and (at == 0 or not rules.signs):
            raise rules.refuse("no_signature") if rules.signs else rules.refuse("field", "extra_content")
    return calls


def _thoughts(message: Json, n: int, rules: Rules, made: frozenset[str]) -> None:
    for name in message.keys() - {"role", "content", "tool_calls"}:
        if name not in rules.thought_fields:
            raise rules.refuse("thought", n, name)
        for text in _texts(message[name]):
            if text and text not in made:
                raise rules.refuse("foreign", n, name)
    if rules.needs_thoughts and not rules.thought_fields & message.keys():
        raise rules.refuse("no_thought", n)
    for call in message.get("tool_calls") or ():
        signature = (call.get("extra_content") or {}).get("google", {}).get("thought_signature")
        if signature not in (None, "skip_thought_signature_validator") and signature not in made:
            raise rules.refuse("foreign", n, "thought_signature")


def _texts(value: Json) -> list[str]:
    return [value] if isinstance(value, str) else [str(each.get("text")) for each in value]


# --- answers
class StrictChat:
    """Model author that sends the answers of a script in the form of this provider, and refuses what it refuses."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._made: set[str] = set()

    @property
    def wire(self) -> str:
        return "chat"

    @property
    def model(self) -> str:
        return self._rules.model

    def check(self, body: Json) -> None:
        check(body, self._rules, frozenset(self._made))

    def refusal(self, words: str) -> Reply:
        return failure(self._rules.status, self._rules.error(self._rules.status, words))

    def too_long(self) -> Reply:
        status, words = self._rules.too_long
        if not words:
            return Reply(status=status, body=b"")
        return failure(status, self._rules.error(status, words))

    def write(self, answer: Answer, n: int, body: Json) -> Reply:
        """Return an answer as a stream."""
        chunks = list(self._deltas(answer, n))
        finish = "tool_calls" if answer.calls else "stop"
        frames: list[Json] = [
            {"id": f"chat-{n}", "choices": [{"index": 0, "delta": delta}]} for delta in chunks
        ]
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        end: Json = {"index": 0, "delta": {}, "finish_reason": finish}
        frames.append({"id": f"chat-{n}", "choices": [end], "usage": usage})
        comment = ": PROCESSING\n\n" if self._rules.writes == "details" else ""
        return Reply(
            body=(comment + "".join(f"data: {json.dumps(each)}\n\n" for each in frames)).encode()
            + b"data: [DONE]\n\n"
        )

    def _deltas(self, answer: Answer, n: int) -> Iterator[Json]:
        writes = self._rules.writes
        yield {"role": "assistant", "content": ""}
        half = len(answer.thought) // 2
        pieces = (answer.thought[:half], answer.thought[half:])
        match writes:
            case "reasoning_content" | "reasoning":
                yield from ({writes: each} for each in pieces)
            case "details":
                for each in pieces:
                    yield {"reasoning_details": [{"type": "reasoning.text", "text": each, "index": 0}]}
            case "parts":
                thinking = {"type": "thinking", "thinking": [{"type": "text", "text": answer.thought}]}
                yield {"content": [thinking]}
            case "tags":
                yield from ({"content": each} for each in ("<think>", *pieces, "</think>\n"))
            case _:
                pass
        self._made.add(answer.thought)
        if answer.text:
            yield {"content": [{"type": "text", "text": answer.text}] if writes == "parts" else answer.text}
        yield from self._call_deltas(answer, n)

    def _call_deltas(self, answer: Answer, n: int) -> Iterator[Json]:
        writes = self._rules.writes
        for at, (id, name, arguments) in enumerate(answer.calls):
            text = written(arguments)
            piece: dict[str, Json] = {"index": at, "id": id, "type": "function", "function": {"name": name}}
            if writes == "signed" and at == 0:
                self._made.add(f"signed {n}")
                piece["extra_content"] = {"google": {"thought_signature": f"signed {n}"}}
            if writes in ("whole", "tags", "signed"):
                index = {"index": 0} if writes == "whole" else {}
                whole: Json = arguments if writes == "whole" else text
                yield {"tool_calls": [{**piece, **index, "function": {"name": name, "arguments": whole}}]}
                continue
            yield {"tool_calls": [piece]}
            for part in (text[:7], text[7:]):
                yield {"tool_calls": [{"index": at, "function": {"arguments": part}}]}
