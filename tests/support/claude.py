"""A provider of the Messages API that is as strict as Claude: it refuses what Claude refuses, and signs each thought
for the conversation that contains it.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence

from app_server_protocol.encoding import Json
from tests.support.scripted_model import ModelRequest, Reply, failure

FIELDS = frozenset(
    {
        *("model", "max_tokens", "system", "messages", "tools", "stream", "thinking", "output_config"),
        *("tool_choice", "metadata"),
    }
)
BLOCK_FIELDS = {
    "text": {"text"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "image": {"source"},
}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Refused(Exception):
    """A request that Claude answers with a status 400."""


def _must(holds: object, words: str) -> None:
    if not holds:
        raise Refused(words)


def plain(value: Json) -> Json:
    """Return a value without its cache marks."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key != "cache_control"}
    return [plain(each) for each in value] if isinstance(value, list) else value


def _marks(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        if "cache_control" in value:
            yield value
        for each in value.values():
            yield from _marks(each)
    elif isinstance(value, list):
        for each in value:
            yield from _marks(each)


def signature(body: Json, answer: Sequence[Json], thought: str, *, until: int | None = None) -> str:
    """Return the signature that Claude gives a thought: a value of everything that stands before it. `answer` is the
    list of earlier blocks of the same answer.
    """
    before = [body.get("system"), body.get("tools"), body["messages"][:until], answer, thought]
    return hashlib.sha256(json.dumps(plain(before), sort_keys=True).encode()).hexdigest()


def check(body: Json, *, checks_head: bool = True) -> None:
    """Raise Refused for a request that Claude does not accept."""
    for name in body:
        _must(name in FIELDS, f"{name}: Extra inputs are not permitted")
    _must(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: Field required")
    marks = list(_marks(body))
    _must(len(marks) <= 4, "A maximum of 4 blocks with cache_control may be provided. Found 5.")
    for marked in marks:
        kind = marked.get("type")
        _must(
            kind not in ("thinking", "redacted_thinking"), "cache_control cannot be set for thinking blocks"
        )
        _must(kind != "text" or marked["text"], "cache_control cannot be set for empty text blocks")
    for block in body.get("system", ()):
        _must(block["text"].strip(), "system: text content blocks must contain non-whitespace text")
    names = [tool["name"] for tool in body.get("tools", ())]
    _must(len(set(names)) == len(names), "tools: Tool names must be unique.")
    for tool in body.get("tools", ()):
        _must(set(tool) <= {"name", "description", "input_schema", "cache_control"}, "tools: Extra inputs")
        _must(NAME.fullmatch(tool["name"]), "tools.0.name: String should match pattern")
        _must(tool["input_schema"].get("type") == "object", "tools.0.input_schema.type: Field required")
    _messages(body, checks_head=checks_head)


def _messages(body: Json, *, checks_head: bool) -> None:
    messages = body["messages"]
    _must(messages, "messages: at least one message is required")
    _must(messages[0]["role"] == "user", "messages: first message must use the user role")
    _must(messages[-1]["role"] == "user", "This model does not support assistant message prefill.")
    ids: set[str] = set()
    waiting: list[str] = []
    for n, message in enumerate(messages):
        _must(message["role"] == ("user", "assistant")[n % 2], "messages: roles must alternate")
        blocks = message["content"]
        _must(blocks, f"messages.{n}: content must not be empty")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        first = [block["tool_use_id"] for block in blocks[: len(results)] if block["type"] == "tool_result"]
        _must(
            results == waiting and first == results,
            f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: {waiting}",
        )
        waiting = []
        for at, block in enumerate(blocks):
            _block(block, message["role"])
            if block["type"] == "tool_use":
                _must(block["id"] not in ids, "messages: `tool_use` ids must be unique")
                _must("tools" in body, "tools: Requests which include `tool_use` must define tools")
                ids.add(block["id"])
                waiting.append(block["id"])
            if block["type"] == "thinking":
                known = signature(body, blocks[:at], block["thinking"], until=n)
                own = not checks_head and len(block["signature"]) == len(known)
                _must(
                    own or block["signature"] == known,
                    f"messages.{n}.content.{at}: Invalid `signature` in `thinking` block. The block is bound to a"
                    " different conversation",
                )
        final = blocks[-1]["type"]
        _must(
            message["role"] == "user" or final not in ("thinking", "redacted_thinking"),
            f"messages.{n}: The final block in an assistant message cannot be `thinking`.",
        )
    _must(not waiting, "`tool_use` ids were found without `tool_result` blocks")


def _block(block: Json, role: str) -> None:
    kind = block["type"]
    _must(
        kind in BLOCK_FIELDS, f"Input tag '{kind}' found using 'type' does not match any of the expected tags"
    )
    extra = set(block) - BLOCK_FIELDS[kind] - {"type", "cache_control"}
    _must(not extra, f"{extra}: Extra inputs are not permitted")
    of_user = kind in ("tool_result", "image")
    _must(kind == "text" or of_user == (role == "user"), f"`{kind}` blocks are not permitted here")
    match kind:
        case "text":
            _must(block["text"].strip(), "text content blocks must contain non-whitespace text")
        case "tool_use":
            _must(isinstance(block["input"], dict), "tool_use.input: Input should be a valid dictionary")
            _must(
                NAME.fullmatch(block["id"]) and NAME.fullmatch(block["name"]), "String should match pattern"
            )
        case "tool_result":
            content = block.get("content")
            for each in content if isinstance(content, list) else ():
                _must(each["type"] in ("text", "image"), "tool_result.content: invalid block")
                _block(each, "user")
            _must(content or not block.get("is_error"), "content cannot be empty if `is_error` is true")
        case "image":
            source = block["source"]
            ours = {"base64": {"type", "media_type", "data"}, "url": {"type", "url"}}
            _must(set(source) == ours.get(source["type"]), "source: invalid")
        case _:
            pass


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def thinking(words: str, sign: str = "") -> Json:
    return {"type": "thinking", "thinking": words, "signature": sign}


def tool_use(name: str, arguments: Json, id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def shell(command: str, id: str) -> Json:
    return tool_use("shell", {"command": ["sh", "-c", command]}, id)


def events(
    *blocks: Json, stop: str = "end_turn", usage: Json = None, id: str = "msg_1", end: bool = True
) -> list[Json]:
    """Return the stream of an answer of these blocks."""
    start_usage = usage or {"input_tokens": 10, "cache_read_input_tokens": 0, "output_tokens": 1}
    message: Json = {"id": id, "type": "message", "role": "assistant", "content": [], "usage": start_usage}
    out: list[Json] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for n, block in enumerate(blocks):
        empty, deltas = _pieces(block)
        out.append({"type": "content_block_start", "index": n, "content_block": empty})
        out += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
        out.append({"type": "content_block_stop", "index": n})
    delta = {"stop_reason": stop, "stop_sequence": None}
    out.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5, "input_tokens": None}})
    return [*out, {"type": "message_stop"}] if end else out


def _pieces(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": each} for each in re.findall(r"\s*\S+\s*|\s+", block["text"])
            ]
        case "thinking":
            shown = re.findall(r"\s*\S+\s*|\s+", block["thinking"])
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": each} for each in shown),
                signed,
            ]
        case "tool_use":
            written = json.dumps(block["input"]) if block["input"] else ""
            parts = (written[: len(written) // 2], written[len(written) // 2 :])
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": part} for part in ("", *parts)
            ]
        case _:
            return block, []


def stream(frames: Sequence[Json]) -> bytes:
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in frames)


def claude_reply(*blocks: Json, stop: str = "end_turn", usage: Json = None, id: str = "msg_1") -> Reply:
    """Return an answer of these blocks."""
    return Reply(body=stream(events(*blocks, stop=stop, usage=usage, id=id)))


class StrictClaude:
    """Model author that answers requests with given blocks, signs their thoughts, and refuses what Claude refuses."""

    def __init__(self, *answers: Sequence[Json], checks_head: bool = True) -> None:
        self.answers = list(answers)
        self.refusals: list[str] = []
        self.answered = 0
        self._checks_head = checks_head

    def __call__(self, request: ModelRequest) -> Reply:
        try:
            check(request.body, checks_head=self._checks_head)
        except Refused as refusal:
            self.refusals.append(str(refusal))
            error = {"type": "invalid_request_error", "message": str(refusal)}
            return failure(400, {"type": "error", "error": error})
        blocks: list[Json] = []
        for each in self.answers[self.answered]:
            sign = (
                {"signature": signature(request.body, blocks, each["thinking"])} if "thinking" in each else {}
            )
            blocks.append({**each, **sign})
        self.answered += 1
        calls = any(each["type"] == "tool_use" for each in blocks)
        return claude_reply(*blocks, stop="tool_use" if calls else "end_turn", id=f"msg_{self.answered}")
