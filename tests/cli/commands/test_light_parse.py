"""The light parse of command lines of servers and proxies agrees with argparse: both read the same declaration."""

import argparse

from hypothesis import given
from hypothesis import strategies as st

from app_server.cli.parse_command import parse
from app_server.server.proxy.server_options import (
    CONVERSATIONS,
    PROXY,
    SERVING,
    SETTINGS,
    Option,
    read_options,
)

DECLARED = (*SETTINGS, *CONVERSATIONS, *SERVING, *PROXY)
VALUES = (
    "a=1",
    "=",
    "",
    "read-only",
    "never",
    "/",
    "capability-token",
    "unix://",
    "acp",
    "proxy",
    "app-server",
    "-x",
)
OWN = {each.name for each in PROXY}


@st.composite
def written(draw: st.DrawFn, option: Option) -> list[str]:
    """Draw the words of an option: with a value or without, with a value of its kind or another."""
    name = draw(st.sampled_from(option.names))
    if option.metavar is None:
        return [name]
    value = draw(st.sampled_from((*option.choices, *VALUES)))
    return [f"{name}={value}"] if draw(st.booleans()) else [name, value]


WORDS = st.lists(
    st.one_of(
        st.sampled_from(("app-server", "acp", "proxy")).map(lambda word: [word]),
        st.sampled_from(DECLARED).flatmap(written),
    ),
    max_size=6,
).map(lambda parts: [word for part in parts for word in part])


def name_of(args: argparse.Namespace) -> tuple[object, object]:
    """Return the command and the API as the light parse names them."""
    if args.command == "proxy":
        return "proxy", args.api
    return None, "acp" if args.command == "acp" else None


@given(WORDS)
def test_what_it_reads_argparse_reads_too(words: list[str]) -> None:
    options = read_options(words)
    if options is None:
        return
    if OWN & options.keys():  # argparse knows the options of a proxy behind its name only
        words = [
            "proxy",
            *(word for word in words if word not in ("proxy", "acp")),
            *["acp"] * words.count("acp"),
        ]
        if read_options(words) != options:
            return  # one of the words was a value
    args = parse(words)
    assert name_of(args) == (options.pop("command"), options.pop("api"))
    given_here = {
        name: value for name, value in vars(args).items() if name in {each.name for each in DECLARED}
    }
    assert {name: value for name, value in given_here.items() if value not in (None, False)} == options
