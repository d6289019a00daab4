"""Questions of tools as requests of the thread API, and the client's answers for the engine. Pure.

An answer of another shape is none: the tool fails, the question was not answered.
"""

from __future__ import annotations

from typing import Final

from protocol.base import Json
from protocol.engine.questions import (
    ToolCallAnswer,
    ToolCallQuestion,
    UserInputAnswer,
    UserInputQuestion,
)
from protocol.responses import InputImage, InputText
from protocol.v2.methods import TABLE
from protocol.v2.question import (
    DynamicToolCallParams,
    ToolRequestUserInputOption,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
)

TOOL_CALL: Final = TABLE.server_requests["item/tool/call"]
USER_INPUT: Final = TABLE.server_requests["item/tool/requestUserInput"]

INVALID: Final = "dynamic tool response was invalid"


def tool_call_params(thread_id: str, turn_id: str, call: ToolCallQuestion) -> DynamicToolCallParams:
    return DynamicToolCallParams(
        thread_id=thread_id,
        turn_id=turn_id,
        call_id=call.call_id,
        namespace=call.namespace,
        tool=call.tool,
        arguments=call.arguments,
    )


def user_input_params(thread_id: str, turn_id: str, asked: UserInputQuestion) -> ToolRequestUserInputParams:
    """Another answer than the ones to choose from may always be given."""
    questions = tuple(
        ToolRequestUserInputQuestion(
            id=each.id,
            header=each.header,
            question=each.text,
            is_other=True,
            options=tuple(
                ToolRequestUserInputOption(label=choice.label, description=choice.description)
                for choice in each.choices
            ),
        )
        for each in asked.inquiries
    )
    return ToolRequestUserInputParams(
        thread_id=thread_id,
        turn_id=turn_id,
        item_id=asked.call_id,
        questions=questions,
        is_blocking=True,
    )


def tool_call_answer(result: Json) -> ToolCallAnswer | None:
    """None for an error. Parts that are not understood make the whole answer invalid."""
    if result is None:
        return None
    match result:
        case {"success": bool(success), "contentItems": [*items]}:
            parts = [_part(item) for item in items]
            if None not in parts:
                return ToolCallAnswer(success, tuple(part for part in parts if part is not None))
        case _:
            pass
    return ToolCallAnswer(False, (InputText(text=INVALID),))


def user_input_answer(result: Json) -> UserInputAnswer | None:
    match result:
        case {"answers": dict(given)}:
            answers = {id: _texts(answer) for id, answer in given.items()}
            return UserInputAnswer({id: texts for id, texts in answers.items() if texts is not None})
        case _:
            return None


def _part(item: Json) -> InputText | InputImage | None:
    match item:
        case {"type": "inputText", "text": str(text)}:
            return InputText(text=text)
        case {"type": "inputImage", "imageUrl": str(url)}:
            return InputImage(image_url=url)
        case {"type": "inputAudio", "audioUrl": str()}:
            return InputText(text="[a sound was left out: the model takes none]")
        case _:
            return None


def _texts(answer: Json) -> tuple[str, ...] | None:
    match answer:
        case {"answers": [*texts]} if all(isinstance(text, str) for text in texts):
            return tuple(texts)
        case _:
            return None
