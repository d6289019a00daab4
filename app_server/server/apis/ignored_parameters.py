"""Parameters of requests that no field takes, or without effect: their detection, and one warning about each.

A client that misspells a parameter would otherwise work under settings that it did not choose. Clients of later
versions send more than this server knows, so a request is refused for such a parameter only if its client asked for
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from pydantic import BaseModel

from app_server.engine.config.settings_reader import did_you_mean
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import INITIALIZE, shortened
from app_server_protocol.policy import snake
from app_server_protocol.rpc_errors import RpcError, invalid_field

MOST_FOUND: Final = 20
"""Maximum number of parameters of one request that the client is warned about."""

MOST_TOLD: Final = 200
"""Maximum number of parameters that one client is warned about."""


WITHOUT_EFFECT: Final = {
    "personality": "has no effect on this server",
    "responsesapi_client_metadata": "has no effect on this server: nothing of it is sent to a provider",
}
"""Fields of requests that are parsed and have no effect, with the text for the client."""


class IgnoredParameter(Struct, frozen=True):
    """A parameter that was ignored, or read in another spelling than its own."""

    place: str
    """Dotted name of the parameter, `[]` standing for each entry of an array."""
    fate: str
    """Effect of the parameter, as a predicate that follows its name."""


def ignored_parameters(raw: Json, params: BaseModel) -> Sequence[IgnoredParameter]:
    """Return the parameters of a request that are in none of the fields that were parsed from them, or in one without
    effect, each name once.

    Null, and arrays and objects without entries, ask for nothing and are not reported.
    """
    found: dict[str, IgnoredParameter] = {}
    without_effect = [
        IgnoredParameter(type(params).model_fields[name].alias or name, fate)
        for name, fate in WITHOUT_EFFECT.items()
        if name in params.model_fields_set and getattr(params, name)
    ]
    for each in (*without_effect, *_ignored(raw, params, "")):
        found.setdefault(each.place, each)
        if len(found) == MOST_FOUND:
            break
    return tuple(found.values())


def _ignored(raw: Json, made: object, place: str) -> Iterator[IgnoredParameter]:
    match raw, made:
        case dict(), BaseModel():
            if type(made).model_config.get("extra") == "allow" or made.__pydantic_root_model__:
                return
            fields = {name: field.alias or name for name, field in type(made).model_fields.items()}
            yield from _ignored_fields(raw, made, fields, place)
        case dict(), Struct():
            fields = dict(zip(made.__struct_fields__, made.__struct_encode_fields__, strict=True))
            yield from _ignored_fields(raw, made, fields, place)
        case dict(), dict():
            for key, value in made.items():
                yield from _ignored(raw.get(key), value, f"{place}.{key}")
        case list(), list() | tuple() if len(raw) == len(made):
            for sent, value in zip(raw, made, strict=True):
                if not isinstance(value, str | int):
                    yield from _ignored(sent, value, f"{place}[]")
        case _:
            return


def _ignored_fields(
    raw: Mapping[str, Json], made: object, fields: Mapping[str, str], place: str
) -> Iterator[IgnoredParameter]:
    """Yield the keys that no field takes. Other spellings of a field are reported at the top level only, because
    several are in use in nested objects.
    """
    by_key = {spelled: name for name, spelled in fields.items()}
    for key, value in raw.items():
        if value is None or value == [] or value == {}:
            continue
        at = f"{place}.{shortened(key)}".removeprefix(".")
        if key in by_key:
            yield from _ignored(value, getattr(made, by_key[key], None), at)
        elif key in fields:
            if not place:
                yield IgnoredParameter(at, f"was read as `{fields[key]}`, which is how it is spelled")
            yield from _ignored(value, getattr(made, key, None), at)
        elif snake(key) not in fields and key not in ("mode", "type"):
            yield IgnoredParameter(at, f"is unknown and was ignored{did_you_mean(key, set(by_key))}")


class ParameterCheck:
    """Check of the parameters that one client sends."""

    def __init__(self, strict: Callable[[], bool]) -> None:
        """Begin without warnings. `strict` returns whether such parameters make the client's requests invalid."""
        self._strict = strict
        self._told: set[tuple[str, str]] = set()

    def check(self, method: str, raw: Json, params: Json) -> str | None:
        """Return the warning for the client about its request; None if there is no new one. Raises RpcError for a
        strict client. Capabilities that `initialize` announces are not settings, so there is no warning about them.
        """
        if method == INITIALIZE or not raw or not isinstance(params, BaseModel):
            return None
        ignored = ignored_parameters(raw, params)
        if not ignored:
            return None
        if self._strict():
            raise refused(ignored[0])
        new = [each for each in ignored if (method, each.place) not in self._told]
        new = new[: max(0, MOST_TOLD - len(self._told))]
        self._told.update((method, each.place) for each in new)
        return f"{method}: {'; '.join(f'`{each.place}` {each.fate}' for each in new)}" if new else None


def refused(ignored: IgnoredParameter) -> RpcError:
    return invalid_field(f"`{ignored.place}` {ignored.fate.replace(' and was ignored', '')}", ignored.place)
