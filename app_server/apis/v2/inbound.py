"""What a client of the thread API says as the engine's input, and back. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pydantic import ValidationError

from app_server.rpc.errors import invalid_request
from protocol import items as engine
from protocol.responses import ResponseItem, checked_response_item
from protocol.structs import Json
from protocol.v2 import item_parts as wire
from protocol.validation import PREFIX, describe_validation_error


class UnsupportedInput(ValueError):
    """Input of a kind that no model here takes."""


def user_inputs(items: Sequence[wire.UserInput]) -> tuple[engine.SentInput, ...]:
    """Convert the client's inputs. Raises UnsupportedInput for sounds."""
    return tuple(_engine_input(item) for item in items)


def response_items(given: Sequence[Json], field: str) -> tuple[ResponseItem, ...]:
    """Check items of the model's API. One of a kind that is not known here passes; nothing comes of it. Raises RpcError
    where an item is invalid, or there is none.
    """
    if not given:
        raise invalid_request(f"{field} must not be empty", "invalid_params", field)
    return tuple(_response_item(raw, field, n) for n, raw in enumerate(given))


def _response_item(raw: Json, field: str, n: int) -> ResponseItem:
    try:
        return checked_response_item(raw)
    except ValidationError as error:
        problem = describe_validation_error(error)[0].removeprefix(PREFIX)
        text = f"{field}[{n}] is not a valid response item: {problem}"
        raise invalid_request(text, "invalid_params", f"{field}.{n}") from error


def shown_inputs(items: Sequence[engine.SentInput]) -> tuple[wire.UserInput, ...]:
    return tuple(_shown_input(item) for item in items)


def _engine_input(item: wire.UserInput) -> engine.SentInput:
    match item:
        case wire.TextUserInput():
            elements = tuple(element.to_value() for element in item.text_elements)
            return engine.TextInput(text=item.text, text_elements=elements)
        case wire.ImageUserInput():
            return engine.ImageInput(image_url=item.url)
        case wire.LocalImageUserInput():
            return engine.LocalImageInput(path=item.path)
        case wire.SkillUserInput():
            return engine.SkillInput(name=item.name, path=item.path)
        case wire.MentionUserInput():
            return engine.MentionInput(name=item.name, path=item.path)
        case wire.AudioUserInput() | wire.LocalAudioUserInput():
            raise UnsupportedInput(f"input of type `{item.type}` is not supported")
        case _:
            assert_never(item)


def _shown_input(item: engine.SentInput) -> wire.UserInput:
    """Show an input, unvalidated: what is stored must not keep an item from being shown."""
    match item:
        case engine.TextInput():
            return wire.TextUserInput.model_construct(
                text=item.text, text_elements=tuple(map(_element, item.text_elements))
            )
        case engine.ImageInput():
            return wire.ImageUserInput.model_construct(url=item.image_url)
        case engine.LocalImageInput():
            return wire.LocalImageUserInput.model_construct(path=item.path)
        case engine.SkillInput():
            return wire.SkillUserInput.model_construct(name=item.name, path=item.path)
        case engine.MentionInput():
            return wire.MentionUserInput.model_construct(name=item.name, path=item.path)
        case _:
            assert_never(item)


def _element(value: Json) -> wire.TextElement:
    match value:
        case {"byteRange": {"start": start, "end": end}, **rest}:
            part = wire.ByteRange.model_construct(start=start, end=end)
            shown: Json = rest.get("placeholder")
            return wire.TextElement.model_construct(byte_range=part, placeholder=shown)
        case _:
            nothing = wire.ByteRange.model_construct(start=0, end=0)
            return wire.TextElement.model_construct(byte_range=nothing, placeholder=None)
