"""Writes `client/sync.py`, the client library without `async`, from the signatures of the asynchronous classes.

`python -m app_server.client.write_sync` after a change of one of them; a test compares the file. Each class wraps an
asynchronous one by `client/sync_portal.py`:

1. A coroutine function becomes a method that waits, a plain one a method that is called in the event loop.
2. An asynchronous generator becomes an iterator, an asynchronous context manager a context manager.
3. A class of the table below becomes its synchronous one, in parameters and results.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
TARGET: Final = HERE / "sync.py"

NEWLINE: Final = "\n"

CLASSES: Final = {
    "TurnHandle": ("SyncTurnHandle", ("turn_handle",)),
    "TurnStream": ("SyncTurnStream", ("event_stream",)),
    "EventSubscription": ("SyncSubscription", ("event_stream",)),
    "ThreadHandle": ("SyncThreadHandle", ("thread_handle",)),
    "AppServer": ("SyncAppServer", ("app_server", "request_client")),
}
"""Asynchronous classes with their synchronous names, and the modules that have their methods."""

BASES: Final = {"AppServer": "RequestClient"}
"""Base class whose methods a class has, too, from its last module."""

WITHOUT: Final = {"TurnHandle": {"abandon"}, "EventSubscription": {"close"}}
"""Methods that are not wrapped, or below by hand."""

BEGINNING: Final = '''\
"""The same library without `async`: for scripts and notebooks. An event loop of its own runs in a thread.

Every class wraps one of the asynchronous ones, with the same methods. `on_approval` runs in a thread of its own, so it
may wait for a person. If an exception of the calling thread (Ctrl-C) ends a call, the call is cancelled, which
interrupts the turn of a `run` or of a stream.

Written by `python -m app_server.client.write_sync`: do not edit it.
"""

from __future__ import annotations

'''

ITERATES: Final = """
    def __iter__(self) -> Iterator[{event}]:
        return self._caller.iterate(self._behind)
"""

ENTERS: Final = """
    def __enter__(self) -> Self:
        self._caller.call(self._behind.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self._caller.leave(lambda: self._behind.__aexit__(*raised))
"""

CLOSES: Final = """
    def close(self) -> None:
        \"""End the subscription. Waiting events can still be read.\"""
        self._caller.leave(self._behind.__aexit__)
"""


class AnnotationRewriter(ast.NodeTransformer):
    """Puts synchronous classes in the place of asynchronous ones, and notes what has to be imported."""

    def __init__(self, module: str, tree: ast.Module, imported: set[str]) -> None:
        self._imported = imported
        self._known: dict[str, tuple[str, str]] = {}
        for node in tree.body:
            match node:
                case ast.ImportFrom(module=str(source), names=names):
                    self._known |= {each.asname or each.name: (source, each.name) for each in names}
                case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                    self._known[name] = (f"app_server.client.{module}", name)
                case _:
                    pass

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in CLASSES:
            return ast.Name(CLASSES[node.id][0])
        if node.id == "AsyncIterator":
            return ast.Name("Iterator")
        if node.id in self._known:
            source, name = self._known[node.id]
            self._imported.add(f"from {source} import {name}")
        else:
            assert hasattr(builtins, node.id), node.id
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        assert isinstance(node.value, ast.Name)
        package, module = self._known[node.value.id]
        self._imported.add(f"from {package}.{module} import {node.attr}")
        return ast.Name(node.attr)


def source_of_sync() -> str:
    """Return the text of `client/sync.py`."""
    imported = {
        "from collections.abc import Iterator",
        "from contextlib import contextmanager",
        "from typing import Self, overload",
        "from app_server.client.sync_portal import SyncFace, connected",
    }
    classes = [_written_class(name, imported) for name in CLASSES]
    return _formatted("".join([BEGINNING, *(f"{each}\n" for each in sorted(imported)), *classes]))


def _written_class(name: str, imported: set[str]) -> str:
    own, modules = CLASSES[name]
    imported.add(f"from app_server.client.{modules[0]} import {name}")
    parts, names, generic = list[str](), set[str](), ""
    for module, class_name in zip(modules, (name, BASES.get(name)), strict=False):
        tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
        annotations = AnnotationRewriter(module, tree, imported)
        [found] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == class_name]
        generic = "[E]" if "Generic[E]" in map(ast.unparse, found.bases) else generic
        for node in found.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
                if node.name == "__init__":
                    parts += _written_attributes(node, annotations)
                elif node.name == "__anext__" and node.returns is not None:
                    event = ast.unparse(annotations.visit(node.returns))
                    parts.append(ITERATES.format(event=event))
                elif node.name[0] != "_" and node.name not in WITHOUT.get(name, ()):
                    parts.append(_written_method(name, node, annotations))
    if generic:
        imported |= {"from typing import Generic", "from app_server.client.event_stream import E"}
    parts += [CLOSES] if "close" in WITHOUT.get(name, ()) else []
    parts += [ENTERS] if "__aenter__" in names else []
    base = f"SyncFace[{name}{generic}]" + (f", Generic{generic}" if generic else "")
    return f'''

class {own}({base}):
    """`{name}` for code without an event loop."""
{NEWLINE.join(parts)}'''


def _written_attributes(
    node: ast.FunctionDef | ast.AsyncFunctionDef, annotations: AnnotationRewriter
) -> Iterator[str]:
    """Yield properties for the public attributes that a constructor takes from its parameters."""
    types = {each.arg: each.annotation for each in node.args.args}
    for each in ast.walk(node):
        match each:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=True):
                    match target, value:
                        case ast.Attribute(attr=name), ast.Name(id=given) if name[0] != "_":
                            annotation = types[given]
                            assert annotation is not None
                            kind = ast.unparse(annotations.visit(annotation))
                            body = f"return self._behind.{name}"
                            yield _indented(f"@property\ndef {name}(self) -> {kind}:\n{_indented(body)}")
                        case _:
                            pass
            case _:
                pass


def _written_method(
    owner: str, node: ast.FunctionDef | ast.AsyncFunctionDef, annotations: AnnotationRewriter
) -> str:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    wrapped = _mirrored(node.returns)
    annotations.visit(node.args)
    returns = ast.unparse(annotations.visit(node.returns)) if node.returns else "None"
    call = f"{{}}.{node.name}({_passed_on(node.args)})"
    text = ast.get_docstring(node)
    doc = "" if text is None else _docstring(text.replace("async for", "for").replace("async with", "with"))
    head = f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"
    behind = call.format("self._behind")
    if "overload" in decorators:
        return _indented(f"@overload\n{head} ...")
    if "property" in decorators:
        value = f"self._behind.{node.name}"
        body = f"return {wrapped}(self._caller, {value})" if wrapped else f"return {value}"
        return _indented(f"@property\n{head}\n{_indented(doc + body)}")
    if "asynccontextmanager" in decorators:
        body = f"with connected({call.format(owner)}) as (caller, server):\n    yield cls(caller, server)"
        return _indented(f"@classmethod\n@contextmanager\n{head}\n{_indented(doc + body)}")
    is_async = isinstance(node, ast.AsyncFunctionDef)
    if is_async and any(isinstance(each, ast.Yield) for each in ast.walk(node)):
        return _indented(f"{head}\n{_indented(doc + f'return self._caller.iterate({behind})')}")
    value = f"self._caller.{'call' if is_async else 'make'}(lambda: {behind})"
    body = f"return {wrapped}(self._caller, {value})" if wrapped else f"return {value}"
    return _indented(f"{head}\n{_indented(doc + body)}")


def _mirrored(returns: ast.expr | None) -> str | None:
    """Return the synchronous class of a result; None if it has none."""
    match returns:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)) if name in CLASSES:
            return CLASSES[name][0]
        case _:
            return None


def _passed_on(arguments: ast.arguments) -> str:
    """Return the arguments of a call with the parameters of a method."""

    def words() -> Iterator[str]:
        yield from (each.arg for each in arguments.args[1:])
        yield from (f"{each.arg}={each.arg}" for each in arguments.kwonlyargs)
        if arguments.kwarg is not None:
            yield f"**{arguments.kwarg.arg}"

    return ", ".join(words())


def _docstring(text: str) -> str:
    return f'"""{text}{NEWLINE if NEWLINE in text else ""}"""\n'


def _indented(text: str) -> str:
    return textwrap.indent(text.strip("\n"), "    ") + "\n"


def _formatted(text: str) -> str:
    """Return the text as `ruff` formats it, with sorted imports."""
    for arguments in (("check", "--quiet", "--fix", "--select", "I,F401"), ("format", "--quiet")):
        command = (sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(TARGET), "-")
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(source_of_sync(), encoding="utf-8")
