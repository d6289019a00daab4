"""Meanings of fields for reference pages: the text under a field where it is declared, or else the meaning that its
name has everywhere; and which fields are experimental.
"""

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from sys import modules
from typing import Final

from pydantic.alias_generators import to_camel

from app_server_protocol.encoding import JsonSerializable
from app_server_protocol.export.definitions import references
from app_server_protocol.export.schemas import Schema

EVERYWHERE: Final[Mapping[str, str]] = {
    "threadId": "the thread's id",
    "turnId": "the turn's id",
    "itemId": "the item's id",
    "processId": "the client's own name for the command",
    "watchId": "the client's own name for the watch",
    "loginId": "the id of the login that was begun",
    "cursor": "`nextCursor` of the page before",
    "nextCursor": "for the next page; null on the last one",
    "backwardsCursor": "for the page in the other direction",
    "limit": "the most entries of a page",
    "cwd": "an absolute path of a folder",
    "path": "an absolute path",
    "model": "the name by which the provider knows it",
    "modelProvider": "its name in `model_providers`, or a built-in one",
    "approvalPolicy": "when the user is asked",
    "approvalsReviewer": "who answers approvals",
    "sandbox": "what commands may do",
    "sandboxPolicy": "what commands may do",
    "permissions": "the name of a permission profile, in place of a sandbox",
    "activePermissionProfile": "the permission profile in force; null where a sandbox was named",
    "runtimeWorkspaceRoots": "folders that belong to the workspace, absolute",
    "config": "further settings, by their dotted names in `config.toml`",
    "baseInstructions": "in place of the instructions of the model",
    "developerInstructions": "a message of the developer ahead of the first words",
    "instructionSources": "files with instructions that the model was sent",
    "collaborationMode": "work, or plan first",
    "personality": "the tone of the answers",
    "serviceTier": "a tier of the provider's, such as `priority`",
    "reasoningEffort": "how hard the model thinks",
    "delta": "the next piece of the text",
    "startedAtMs": "milliseconds since 1970",
    "completedAtMs": "milliseconds since 1970",
    "durationMs": "milliseconds",
    "timeoutMs": "milliseconds",
    "sortDirection": "`asc` or `desc`",
    "reason": "why, in words for the user",
}
"""Meanings of names that have the same meaning in every shape."""


def meaning(model: type[JsonSerializable], field: str) -> str:
    """Return the meaning of a field, on one line; "" if there is no text about it. `field` is its name on the wire."""
    said = declared_meanings(model).get(field) or EVERYWHERE.get(field, "")
    first = said.partition("\n\n")[0]
    return " ".join(first.split()).removesuffix(".")


@cache
def declared_meanings(model: type[JsonSerializable]) -> Mapping[str, str]:
    """Return the texts under the fields of a class and its bases, by their names on the wire and in Python."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not kind.__module__.startswith("app_server_protocol."):
            continue
        body = _class_bodies(kind.__module__).get(kind.__name__, [])
        for declared, text in pairwise(body):
            match declared, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    found[name] = found[to_camel(name)] = said
                case _:
                    pass
    return found


@cache
def _class_bodies(module: str) -> Mapping[str, list[ast.stmt]]:
    """Return the bodies of the classes of a module by their names, except classes that are made at run time."""
    parsed = ast.parse(inspect.getsource(modules[module]))
    return {node.name: node.body for node in parsed.body if isinstance(node, ast.ClassDef)}


def is_experimental(stable: Mapping[str, Schema], name: str, field: str) -> bool:
    """Return whether a definition has the field only for clients that opted in; the fields of an entirely experimental
    shape are not marked one by one.
    """
    return name in stable and field not in stable[name].get("properties", {})


def alternatives(definitions: Mapping[str, Schema], definition: Schema) -> list[Schema]:
    """Return the members of a union of objects, with references resolved; an empty list for any other shape."""
    members = [*definition.get("oneOf", ()), *definition.get("anyOf", ())]
    found: list[Schema] = []
    for member in members:
        named = next(references(member), None) if "$ref" in member else None
        found.append(definitions[named] if named else member)
    return found if all("properties" in each for each in found) else []
