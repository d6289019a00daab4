"""The form in which an MCP server asks for values, as fields that are answered one after another. Pure.

The form is untrusted JSON: parts that do not follow the protocol are left out. A value that the server would not accept
is refused while it can be typed again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Final
from urllib.parse import urlsplit

import msgspec
from jsonschema import Draft202012Validator, FormatChecker
from msgspec import Struct

from app_server_protocol.encoding import Json

LIMITS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum")
"""Names of the restrictions of a value in a form, in addition to its type, its format and its choices."""

KINDS: Final[Mapping[str, str]] = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "array": "a list as JSON",
}
BOOLEANS: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


_FORMATS: Final = FormatChecker(("email", "date"))
_FORMATS.checks("uri", raises=ValueError)(lambda text: bool(urlsplit(str(text)).scheme))
_FORMATS.checks("date-time", raises=ValueError)(lambda text: bool(datetime.fromisoformat(str(text))))


class InvalidAnswer(ValueError):
    """The typed value is invalid. The argument says what was expected."""


class FormChoice(Struct, frozen=True):
    value: Json
    title: str


class FormField(Struct, frozen=True):
    """One field of a form, for one value."""

    name: str
    schema: Mapping[str, Json]
    required: bool

    @property
    def kind(self) -> str:
        """The expected kind of value, as text for the user."""
        if not self.choices():
            return KINDS.get(str(self.schema.get("type")), "a value as JSON")
        several = self.schema.get("type") == "array"
        return "some of the list, with commas between them" if several else "one of the list"

    @property
    def has_default(self) -> bool:
        return self.schema.get("default") is not None

    def choices(self) -> list[FormChoice]:
        """Return the choices of the value, or of each part of it. Return nothing if any value is possible."""
        items = self.schema.get("items")
        for place in (self.schema, items if isinstance(items, dict) else {}):
            if isinstance(values := place.get("enum"), list):
                names = place.get("enumNames")
                titles = names if isinstance(names, list) and len(names) == len(values) else values
                return [FormChoice(value, _text(title)) for value, title in zip(values, titles, strict=True)]
            for key in ("oneOf", "anyOf"):
                if isinstance(place.get(key), list):
                    consts = [each for each in place[key] if isinstance(each, dict) and "const" in each]
                    return [
                        FormChoice(each["const"], _text(each.get("title", each["const"]))) for each in consts
                    ]
        return []

    def description(self) -> str:
        """Return the server's description of the field."""
        texts = [str(self.schema[key]) for key in ("title", "description") if self.schema.get(key)]
        limits = [f"{key} {_text(self.schema[key])}" for key in (*LIMITS, "format") if key in self.schema]
        if self.has_default:
            limits.append(f"otherwise {_text(self.schema['default'])}")
        lines = [": ".join([self.name, *("; ".join(each) for each in (texts, limits) if each)])]
        lines += [f"{number}) {each.title}" for number, each in enumerate(self.choices(), 1)]
        return "\n".join(lines)

    def value_of(self, line: str) -> Json:
        """Return the value of a typed line. Raises InvalidAnswer."""
        choices, kind = self.choices(), self.schema.get("type")
        if kind == "array" and choices:
            value: Json = [_chosen(part.strip(), choices) for part in line.split(",")]
        elif choices:
            value = _chosen(line, choices)
        elif kind == "boolean":
            if line.lower() not in BOOLEANS:
                raise InvalidAnswer("expected yes or no")
            value = BOOLEANS[line.lower()]
        elif kind == "string":
            value = line
        else:
            try:
                value = json.loads(line, parse_constant=_finite, parse_float=_finite)
            except (ValueError, RecursionError):
                raise InvalidAnswer(f"expected {self.kind}") from None
        self._check(value)
        return value

    def _check(self, value: Json) -> None:
        """Validate a value against the restrictions of the form, as far as they are a valid schema. Raises
        InvalidAnswer.
        """
        schema = {key: self.schema[key] for key in LIMITS if type(self.schema.get(key)) in (int, float)}
        words = {key: self.schema[key] for key in ("type", "format") if isinstance(self.schema.get(key), str)}
        schema |= {key: word for key, word in words.items() if key == "format" or word in KINDS}
        for error in Draft202012Validator(schema, format_checker=_FORMATS).iter_errors(value):
            raise InvalidAnswer(f"{error.message} (expected {self.kind})")


class FormAnswers(Struct):
    """A form that is being filled in."""

    fields: Sequence[FormField]
    values: dict[str, Json] = msgspec.field(default_factory=dict)
    _at: int = 0

    @property
    def number(self) -> int:
        """The number of the current field, counted from 1."""
        return self._at + 1

    @property
    def current(self) -> FormField | None:
        """The current field. None if all fields are answered."""
        return self.fields[self._at] if self._at < len(self.fields) else None

    def enter(self, line: str) -> None:
        """Enter a line for the current field; an empty one leaves it out. Raises InvalidAnswer."""
        field = self.current
        if field is None:
            return
        if line:
            self.values[field.name] = field.value_of(line)
        elif field.has_default:
            self.values[field.name] = field.schema["default"]
        elif field.required:
            raise InvalidAnswer(f"this value is required: expected {field.kind}")
        self._at += 1

    def begin_again(self) -> None:
        self.values, self._at = {}, 0

    def summary(self) -> str:
        """Return the values in the form in which they would be sent, as text for the user."""
        return "\n".join(f"{name} = {_text(value)}" for name, value in self.values.items()) or "(no values)"


def form_fields(schema: Json) -> list[FormField]:
    """Return the fields of a form. Return nothing if it has no fields that the protocol knows."""
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict):
        return []
    names = schema.get("required")
    required = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return [
        FormField(name, field if isinstance(field, dict) else {}, name in required)
        for name, field in {**fields, **{name: {} for name in required if name not in fields}}.items()
    ]


def _chosen(word: str, choices: Sequence[FormChoice]) -> Json:
    """Return the value of the choice with this value, title or number. Raises InvalidAnswer."""
    for each in choices:
        if word in (_text(each.value), each.title):
            return each.value
    if word.isascii() and word.isdecimal() and len(word) < 6 and 1 <= int(word) <= len(choices):
        return choices[int(word) - 1].value
    raise InvalidAnswer(f"expected a name or a number of the list, 1 to {len(choices)}")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _finite(number: str) -> float:
    """Return the number. Raises ValueError for numbers that Python accepts and JSON does not."""
    if not isfinite(value := float(number)):
        raise ValueError(f"{number} is no JSON")
    return value
