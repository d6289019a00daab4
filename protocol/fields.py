"""Kinds of fields that several resources share: ids, paths, texts, and what is refused in them."""

from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from protocol.ids import ConversationId, parse_conversation_id


def _uuid(text: str) -> ConversationId:
    parsed = parse_conversation_id(text)
    if parsed is None:
        raise ValueError("expected a UUID")
    return parsed


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path must not contain a NUL character")
    if not is_unicode(text):
        raise ValueError("a path must be valid Unicode text")
    return text


def _text(text: str) -> str:
    """`text` with lone surrogates replaced, which neither the model nor a file could be given."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode it: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


KnownId = Annotated[ConversationId, AfterValidator(_uuid)]
UuidText = Annotated[str, AfterValidator(_uuid)]
PathText = Annotated[str, AfterValidator(_path)]
CleanText = Annotated[str, AfterValidator(_text)]
Flag = StrictBool
Count = Annotated[StrictInt, Field(ge=0, lt=2**64)]
