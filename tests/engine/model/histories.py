"""Generated histories of conversations for tests of the writers: any items of any API, in any order that a model
produces.
"""

from hypothesis import strategies as st

from app_server_protocol.encoding import Json
from app_server_protocol.item_origin import FAILED, ItemOrigin
from app_server_protocol.responses import (
    CallItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    InputImage,
    InputText,
    LocalShellCall,
    LocalShellExec,
    LocalShellStatus,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
    SummaryText,
)

CLAUDE = "claude-opus-5-5"
PICTURE = "data:image/png;base64,AAAA"
WORDS = st.text('ab é😀"\\\n', max_size=6)


def origin(answer: str, provider: str = "anthropic", wire: str = "messages", **kept: Json) -> ItemOrigin:
    return ItemOrigin(answer=answer, provider=provider, model=CLAUDE, wire=wire, kept=kept)


def user(words: str, role: str = "user") -> MessageItem:
    return MessageItem(role=role, content=(InputText(text=words),))


def output(id: str, words: str = "done", *images: str, **kept: Json) -> FunctionCallOutput:
    parts = (InputText(text=words), *(InputImage(image_url=url) for url in images)) if images else None
    payload = FunctionCallOutputPayload(content=words, content_items=parts)
    return FunctionCallOutput(call_id=id, output=payload, origin=origin("1", **kept) if kept else None)


@st.composite
def histories(draw: st.DrawFn, *, whole: bool = False, foreign: bool = False) -> list[ResponseItem]:
    """Draw a history of any wires, with calls that share ids. If not `whole`, it also has calls without outputs and
    outputs without calls. With `foreign` all items are of other APIs than Responses, whose servers give each id once.
    """
    items: list[ResponseItem] = []
    for n in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            items.append(user(draw(WORDS), draw(st.sampled_from(("user", "developer")))))
        wire = draw(st.sampled_from(("messages", "chat", *(() if foreign else (None,)))))
        of = None if wire is None else origin(f"{n}-m", wire=wire)
        for _ in range(draw(st.integers(0, 4))):
            kinds = (
                *("text", "thought", "call", "custom", "shell", "seen", "picture"),
                *(() if whole else ("output",)),
            )
            kind, answered = draw(st.sampled_from(kinds)), whole or draw(st.booleans())
            items += _some(kind, draw(WORDS), draw(st.sampled_from("xyz|")), of, answered=answered)
    return items


def _some(kind: str, words: str, id: str, of: ItemOrigin | None, *, answered: bool) -> list[ResponseItem]:
    made: CallItem
    match kind:
        case "text":
            return [MessageItem(role="assistant", content=(OutputText(text=words),), origin=of)]
        case "thought":
            return [ReasoningResponseItem(summary=(SummaryText(text=words),), origin=of)]
        case "call":
            made = FunctionCall(name=words, arguments=words, call_id=id, origin=of)
            return [made, output(id, words)] if answered else [made]
        case "custom":
            made = CustomToolCall(name="apply_patch", input=words, call_id=id, origin=of)
            return [made, CustomToolCallOutput(call_id=id, output=words)] if answered else [made]
        case "shell":
            action = LocalShellExec(command=(words,))
            made = LocalShellCall(call_id=id, status=LocalShellStatus.COMPLETED, action=action, origin=of)
            return [made, output(id, words)] if answered else [made]
        case "seen":
            made = FunctionCall(name="view_image", arguments="{}", call_id=id, origin=of)
            return [made, output(id, words, PICTURE)]
        case "output":
            return [output(id, words, **{FAILED: True})]
        case _:
            return [MessageItem(role="user", content=(InputImage(image_url=PICTURE),))]
