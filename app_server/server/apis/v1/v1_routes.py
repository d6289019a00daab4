"""The routes of the conversation API: rows of its table with their handlers. A family of methods, with its shapes and
its handlers, is loaded when the client first uses one of them.

`model/list` is a method of the thread API too, whose route serves both.
"""

from __future__ import annotations

from typing import Final

from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import FindRoute, HandlerModule, HandlerModules, RouteFamilies
from app_server.server.apis.v1.handlers import conversation_operations, conversations, misc, stored

_BY_METHOD: Final[dict[str, HandlerModule]] = {
    "addConversationListener": conversations,
    "archiveConversation": stored,
    "cancelLoginChatGpt": misc,
    "execOneOffCommand": misc,
    "fuzzyFileSearch": misc,
    "getAuthStatus": misc,
    "getConversationSummary": stored,
    "getUserAgent": misc,
    "getUserSavedConfig": misc,
    "gitDiffToRemote": misc,
    "initialize": misc,
    "interruptConversation": conversations,
    "listConversations": stored,
    "loginApiKey": misc,
    "loginChatGpt": misc,
    "logoutChatGpt": misc,
    "newConversation": conversations,
    "removeConversationListener": conversations,
    "resumeConversation": stored,
    "sendUserMessage": conversations,
    "sendUserTurn": conversations,
    "setDefaultModel": misc,
    "submit": conversation_operations,
    "userInfo": misc,
}

HANDLERS: Final = HandlerModules(_BY_METHOD)


def find_route(context: ConnectionContext) -> FindRoute:
    """Return the function that finds the routes of one connection."""
    return RouteFamilies[HandlerModule](HANDLERS.serving, lambda module: module.routes(context)).find
