"""What a client of the thread API says as the engine's input, and back. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from protocol import items as engine
from protocol.v2 import input as wire


class UnsupportedInput(ValueError):
    """Input of a kind that no model here takes."""


def user_inputs(items: Sequence[wire.UserInput]) -> tuple[engine.UserInput, ...]:
    """Raises UnsupportedInput for sounds. A skill or a mention becomes a link in the text, which the model may follow;
    how a client shows parts of the text (`text_elements`) is not kept."""
    return tuple(_engine_input(item) for item in items)


def shown_inputs(items: Sequence[engine.UserInput]) -> tuple[wire.UserInput, ...]:
    return tuple(_shown_input(item) for item in items)


def _engine_input(item: wire.UserInput) -> engine.UserInput:
    match item:
        case wire.TextUserInput():
            return engine.TextInput(text=item.text)
        case wire.ImageUserInput():
            return engine.ImageInput(image_url=item.url)
        case wire.LocalImageUserInput():
            return engine.LocalImageInput(path=item.path)
        case wire.SkillUserInput():
            return engine.TextInput(text=f"[${item.name}]({item.path})")
        case wire.MentionUserInput():
            return engine.TextInput(text=f"[@{item.name}]({item.path})")
        case wire.AudioUserInput() | wire.LocalAudioUserInput():
            raise UnsupportedInput(f"input of type `{item.type}` is not supported")
        case _:
            assert_never(item)


def _shown_input(item: engine.UserInput) -> wire.UserInput:
    """Not validated: what is stored must not keep an item from being shown."""
    match item:
        case engine.TextInput():
            return wire.TextUserInput.model_construct(text=item.text)
        case engine.ImageInput():
            return wire.ImageUserInput.model_construct(url=item.image_url)
        case engine.LocalImageInput():
            return wire.LocalImageUserInput.model_construct(path=item.path)
        case _:
            assert_never(item)
