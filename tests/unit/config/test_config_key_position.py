"""A setting that cannot be used is found in the file: line and column, also of what TOML writes in odd ways."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import tomli
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.config.key_path import MAX_CHARACTERS, Key, find_key
from app_server.core.config.load import load_config
from app_server.core.config.saved import load_saved_config
from app_server.core.config.types import CliOverrides, RequestOverrides
from app_server.core.errors import ConfigError
from protocol.base import Json

ODD = '''\
# model = 0
note = """
model = 1 ["{
""" # not here
'a.b' . c = [ "]", # ]
  { d = 1, "e" = { f = 2 } }, { d = 3 },
]
when = 1979-05-27 07:32:00
model = 5

[ tables . "with dot." ]
"\\u006dodel" = 1
x = { model.y = '}' }
[[many]]
last = 1
'''


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (("note",), (2, 1)),
        (("a.b", "c"), (5, 1)),
        (("a.b", "c", "d"), (6, 5)),
        (("a.b", "c", "e", "f"), (6, 20)),
        (("model",), (9, 1)),
        (("tables", "with dot."), (11, 3)),
        (("tables", "with dot.", "model"), (12, 1)),
        (("tables", "with dot.", "x", "model", "y"), (13, 7)),
        (("many", "last"), (15, 1)),
        (("last",), None),
        (("d",), None),
    ],
)
def test_a_key_is_found_where_it_is_written(key: Key, place: tuple[int, int] | None) -> None:
    tomli.loads(ODD)
    assert find_key(ODD, key) == place


def test_in_a_file_that_nobody_wrote_by_hand_nothing_is_looked_for() -> None:
    assert find_key("a = 1\n" + "#" * MAX_CHARACTERS, ("a",)) is None


VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def keys_of(table: Mapping[str, Json], above: Key = ()) -> Iterator[Key]:
    for name, value in table.items():
        yield (*above, name)
        if isinstance(value, Mapping):
            yield from keys_of(value, (*above, name))


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_every_key_of_every_text_is_found(table: dict[str, Json]) -> None:
    text = tomlkit.dumps(table)
    try:
        written = tomli.loads(text)
    except ValueError:
        return  # the writer's own mistakes
    for key in keys_of(written):
        assert find_key(text, key) is not None, (key, text)


def problem(home: Path, text: str, cli: CliOverrides | None = None, **request: Json) -> str:
    (home / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(
            home, cwd=home, cli=cli or CliOverrides(), request=RequestOverrides(settings=request), env={}
        )
    return str(caught.value).replace(str(home), "HOME")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("approval_policy = 5\n", "HOME/config.toml:1:1: `approval_policy` must be a string, not an integer"),
        (
            "\ufeff# é\n  sandbox_mode = 'none'\n",
            "HOME/config.toml:2:3: `sandbox_mode` must be one of `read-only`, `workspace-write`, "
            "`danger-full-access`, not 'none'",
        ),
        (
            "profile = 'p'\nmodel = 'm'\n[profiles.p]\nmodel = 3\n",
            "HOME/config.toml:4:1: `model` must be a string, not an integer",
        ),
        (
            "[features]\nweb_search = 1\n",
            "HOME/config.toml:2:1: `features.web_search_request` must be true or false, not an integer",
        ),
        ("profile = 3\n", "HOME/config.toml:1:1: `profile` must be a string"),
    ],
)
def test_a_config_error_names_file_line_and_column(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, text) == f"error deriving config: {said}"


def test_what_another_layer_says_has_no_place(tmp_path: Path) -> None:
    wrong = "error deriving config: `model` must be a string, not an integer"
    assert problem(tmp_path, "model = 1\n", model=3) == wrong
    assert problem(tmp_path, "", CliOverrides(settings=(("model", "3"),))) == wrong
    not_a_key = problem(tmp_path, "model = 1\n", CliOverrides(settings=(("..", "3"),)))
    assert not_a_key == "error deriving config: '..' is not a key that settings can have"


def test_saved_settings_have_places_too(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("\n[tools]\nview_image = 'x'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.toml:3:1: `tools\.view_image` must be"):
        load_saved_config(tmp_path)
