"""Converts parameters of the conversation API into engine operations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from protocol.items import ImageInput, LocalImageInput, TextInput, UserInput
from protocol.ops import UserInputOp, UserTurnOp
from protocol.v1.turn import (
    ImageInputItem,
    InputItem,
    LocalImageInputItem,
    SendUserMessageParams,
    SendUserTurnParams,
    TextInputItem,
)


def user_input(params: SendUserMessageParams) -> UserInputOp:
    return UserInputOp(items=user_items(params.items))


def user_turn(params: SendUserTurnParams) -> UserTurnOp:
    return UserTurnOp(
        items=user_items(params.items),
        cwd=params.cwd,
        approval_policy=params.approval_policy,
        sandbox_policy=params.sandbox_policy,
        model=params.model,
        effort=params.effort,
        summary=params.summary,
    )


def user_items(items: Sequence[InputItem]) -> tuple[UserInput, ...]:
    return tuple(_item(item) for item in items)


def _item(item: InputItem) -> UserInput:
    match item:
        case TextInputItem():
            return TextInput(text=item.data.text)
        case ImageInputItem():
            return ImageInput(image_url=item.data.image_url)
        case LocalImageInputItem():
            return LocalImageInput(path=item.data.path)
        case _:
            assert_never(item)
