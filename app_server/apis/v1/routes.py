"""The routes of the conversation API: rows of its table with their handlers. A family of methods, with its shapes and
its handlers, is loaded when the client first uses one of them.

`model/list` is a method of the thread API too, whose route serves both.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from app_server.apis.router import FindRoute, HandlerModules, RouteFamilies
from app_server.apis.services import ServerServices

_BY_METHOD: Final = {
    "addConversationListener": "conversations",
    "archiveConversation": "stored",
    "cancelLoginChatGpt": "setup",
    "execOneOffCommand": "setup",
    "fuzzyFileSearch": "setup",
    "getAuthStatus": "setup",
    "getConversationSummary": "stored",
    "getUserAgent": "setup",
    "getUserSavedConfig": "setup",
    "gitDiffToRemote": "setup",
    "initialize": "setup",
    "interruptConversation": "conversations",
    "listConversations": "stored",
    "loginApiKey": "setup",
    "loginChatGpt": "setup",
    "logoutChatGpt": "setup",
    "newConversation": "conversations",
    "removeConversationListener": "conversations",
    "resumeConversation": "stored",
    "sendUserMessage": "conversations",
    "sendUserTurn": "conversations",
    "setDefaultModel": "setup",
    "submit": "operations",
    "userInfo": "setup",
}

HANDLERS: Final = HandlerModules(
    lambda name: import_module(f"app_server.apis.v1.handlers.{name}").routes, _BY_METHOD
)


def find_route(services: ServerServices) -> FindRoute:
    """Return the function that finds the routes of one connection."""
    return RouteFamilies(HANDLERS.serving, lambda name: HANDLERS.load(name)(services)).find
