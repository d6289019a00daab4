"""Kinds of fields that several resources share: ids, texts, numbers, and what is refused in them."""

from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from protocol.ids import ConversationId, parse_conversation_id
from protocol.paths import is_unicode


def _uuid(text: str) -> ConversationId:
    parsed = parse_conversation_id(text)
    if parsed is None:
        raise ValueError("expected a UUID")
    return parsed


def _text(text: str) -> str:
    """`text` with lone surrogates replaced, which neither the model nor a file could be given."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


KnownId = Annotated[ConversationId, AfterValidator(_uuid)]
UuidText = Annotated[str, AfterValidator(_uuid)]
CleanText = Annotated[str, AfterValidator(_text)]
Flag = StrictBool
Count = Annotated[StrictInt, Field(ge=0, lt=2**64)]
