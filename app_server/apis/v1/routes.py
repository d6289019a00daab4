"""The routes of the conversation API: rows of its table with what serves them. A family of methods, with its shapes
and its handlers, is loaded when the client first uses one of them.

`model/list` is a method of the thread API too, whose route serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from app_server.apis.router import FindRoute, Route, RouteFamilies
from app_server.apis.services import ServerServices

FAMILIES: Final = {
    "addConversationListener": "conversations",
    "archiveConversation": "conversations",
    "cancelLoginChatGpt": "setup",
    "execOneOffCommand": "setup",
    "fuzzyFileSearch": "setup",
    "getAuthStatus": "setup",
    "getConversationSummary": "conversations",
    "getUserAgent": "setup",
    "getUserSavedConfig": "setup",
    "gitDiffToRemote": "setup",
    "initialize": "setup",
    "interruptConversation": "turns",
    "listConversations": "conversations",
    "loginApiKey": "setup",
    "loginChatGpt": "setup",
    "logoutChatGpt": "setup",
    "newConversation": "conversations",
    "removeConversationListener": "conversations",
    "resumeConversation": "conversations",
    "sendUserMessage": "turns",
    "sendUserTurn": "turns",
    "setDefaultModel": "setup",
    "submit": "operations",
    "userInfo": "setup",
}
"""The module of `handlers` that serves a method."""


def load_for(method: str) -> None:
    """Import what serves a method, and turns behind a method that opens a conversation."""
    name = FAMILIES.get(method)
    for each in (name, "turns") if name == "conversations" else (name,):
        if each is not None:
            load(each)


def load(name: str) -> Callable[[ServerServices], tuple[Route, ...]]:
    """Import a module of handlers; return what makes its routes."""
    make: Callable[[ServerServices], tuple[Route, ...]]
    make = import_module(f"app_server.apis.v1.handlers.{name}").routes
    return make


def find_route(services: ServerServices) -> FindRoute:
    """Return what finds the routes of one connection."""
    return RouteFamilies(FAMILIES.get, lambda name: load(name)(services)).find
