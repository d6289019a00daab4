"""Every kind of error that the code gives is in docs/embedding.md, and no other."""

import ast
import re
from collections.abc import Iterator

from tests.docs.markdown_blocks import ROOT

FOLDERS = ("apis", "conversations", "rpc", "startup", "core/client_files")
MADE_BY = {"invalid_request": "invalid_request", "internal_error": "internal"}
"""Functions that make an error, and the kind where none is given."""


def kinds() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((ROOT / "app_server" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield from kinds_of(node)


def kinds_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[_]) if name in MADE_BY:
            yield MADE_BY[name]
        case ast.Call(func=ast.Name(id=name), args=[_, ast.Constant(value=str(kind)), *_]) if name in MADE_BY:
            yield kind
        case ast.Call(func=ast.Name(id="not_found"), args=[ast.Constant(value=str(what)), _]):
            yield f"{what.replace(' ', '_')}_not_found"
        case ast.Call(func=ast.Name(id="FileRefused"), args=[_, *kind]):
            yield from words(kind[0]) if kind else ("file",)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "kind":
                    yield from words(value)
        case _:
            pass


def words(value: ast.AST) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(kind)):
            yield kind
        case ast.IfExp(body=body, orelse=other):
            yield from (*words(body), *words(other))
        case _:
            pass


def documented() -> set[str]:
    text = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    section = text.partition("## Errors")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    lists = section.partition("Kinds of the thread API alone")[2]
    return {word for part in (*rows, lists) for word in re.findall(r"`([a-z_]+)`", part)} - {"kind"}


def test_the_documented_kinds_are_those_of_the_code() -> None:
    assert set(kinds()) - documented() == set()
    assert documented() - set(kinds()) == set()
