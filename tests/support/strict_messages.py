"""Strict providers of the Messages API, in the form of the other strict providers: Claude, and servers that implement
its API.
"""

from app_server_protocol.encoding import Json
from tests.support import claude
from tests.support.scripted_model import Reply, failure
from tests.support.strict_provider import Answer, Refused


class StrictMessages:
    """Claude, which signs thoughts. With `signs` False it is another server of that API, which signs nothing."""

    def __init__(self, model: str, *, signs: bool = True, checks_head: bool = True) -> None:
        self._model, self._signs, self._checks_head = model, signs, checks_head

    @property
    def wire(self) -> str:
        return "messages"

    @property
    def model(self) -> str:
        return self._model

    def check(self, body: Json) -> None:
        try:
            claude.check(body if self._signs else _without_thoughts(body), checks_head=self._checks_head)
        except claude.Refused as refused:
            raise Refused("messages", str(refused)) from None
        if not self._signs:
            for message in body["messages"]:
                for block in message["content"]:
                    if block["type"] == "thinking" and block.get("signature") != "":
                        raise Refused("foreign", "messages: thinking.signature: Field required")

    def refusal(self, words: str) -> Reply:
        return failure(400, {"type": "error", "error": {"type": "invalid_request_error", "message": words}})

    def too_long(self) -> Reply:
        return self.refusal("prompt is too long: 210000 tokens > 200000 maximum")

    def write(self, answer: Answer, n: int, body: Json) -> Reply:
        blocks: list[Json] = []
        if answer.thought:
            sign = claude.signature(body, blocks, answer.thought) if self._signs else ""
            blocks.append(claude.thinking(answer.thought, sign))
        if answer.text:
            blocks.append(claude.text(answer.text))
        blocks += [claude.tool_use(name, arguments, id) for id, name, arguments in answer.calls]
        stop = "tool_use" if answer.calls else "end_turn"
        return claude.claude_reply(*blocks, stop=stop, id=f"msg_{n}")


def _without_thoughts(body: Json) -> Json:
    """Return a request without thoughts: such a server does not check their signatures."""
    kept = [
        {**message, "content": [each for each in message["content"] if each["type"] != "thinking"]}
        for message in body["messages"]
    ]
    return {**body, "messages": kept}


def providers() -> dict[str, StrictMessages]:
    """Return the providers by the name of their row."""
    return {
        "anthropic": StrictMessages("claude-opus-5-5"),
        "anthropic-compatible": StrictMessages("kimi-k2-thinking", signs=False),
    }
