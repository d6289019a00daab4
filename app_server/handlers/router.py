"""From the table of methods to the functions that serve them: the readable list of routes.

Owns the handshake's rule (nothing before `initialize`), parsing of parameters and the wording of what is wrong
with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from pydantic import ValidationError

from app_server.handlers import (
    accounts,
    commands,
    conversations,
    files,
    handshake,
    listeners,
    models,
    saved_config,
    turns,
)
from app_server.handlers.context import HandlerContext
from app_server.handlers.errors import to_rpc_error
from app_server.handlers.then import Answer
from app_server.rpc.connection import Reply
from app_server.rpc.errors import RpcError, invalid_request
from protocol import methods
from protocol.base import Json, WireModel
from protocol.jsonrpc import Request
from protocol.methods import CLIENT_REQUESTS, ClientRequest, Scope
from protocol.validation import describe_validation_error, unknown_method

Handler = Callable[[HandlerContext, Json], Awaitable[WireModel | Answer]]

HANDLERS: Mapping[ClientRequest[Json, Json], Handler] = {
    methods.INITIALIZE: handshake.initialize,
    methods.GET_USER_AGENT: handshake.get_user_agent,
    methods.USER_INFO: handshake.user_info,
    methods.NEW_CONVERSATION: conversations.new_conversation,
    methods.RESUME_CONVERSATION: conversations.resume_conversation,
    methods.LIST_CONVERSATIONS: conversations.list_stored,
    methods.GET_CONVERSATION_SUMMARY: conversations.get_summary,
    methods.ARCHIVE_CONVERSATION: conversations.archive_conversation,
    methods.ADD_CONVERSATION_LISTENER: listeners.add_conversation_listener,
    methods.REMOVE_CONVERSATION_LISTENER: listeners.remove_conversation_listener,
    methods.SEND_USER_MESSAGE: turns.send_user_message,
    methods.SEND_USER_TURN: turns.send_user_turn,
    methods.INTERRUPT_CONVERSATION: turns.interrupt_conversation,
    methods.SUBMIT: turns.submit,
    methods.GIT_DIFF_TO_REMOTE: files.git_diff_to_remote,
    methods.FUZZY_FILE_SEARCH: files.fuzzy_file_search,
    methods.EXEC_ONE_OFF_COMMAND: commands.exec_one_off_command,
    methods.LOGIN_API_KEY: accounts.login_api_key,
    methods.LOGIN_CHAT_GPT: accounts.login_chat_gpt,
    methods.CANCEL_LOGIN_CHAT_GPT: accounts.cancel_login_chat_gpt,
    methods.LOGOUT_CHAT_GPT: accounts.logout_chat_gpt,
    methods.GET_AUTH_STATUS: accounts.get_auth_status,
    methods.GET_USER_SAVED_CONFIG: saved_config.get_user_saved_config,
    methods.SET_DEFAULT_MODEL: saved_config.set_default_model,
    methods.MODEL_LIST: models.model_list,
}


class MethodRouter:
    """Serves one connection."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._handlers = {row.method: handler for row, handler in HANDLERS.items()}

    def lane(self, request: Request) -> str | None:
        row = CLIENT_REQUESTS.get(request.method)
        if row is None or row.scope is Scope.NONE or not isinstance(request.params, dict):
            return None
        id = request.params.get("conversationId")
        return id.lower() if isinstance(id, str) else None

    async def call(self, request: Request) -> Reply:
        row = CLIENT_REQUESTS.get(request.method)
        if row is None:
            raise invalid_request(unknown_method(request.method), "unknown_method")
        params = _parse(row, request.params)
        if not self._context.client.initialized and row is not methods.INITIALIZE:
            raise invalid_request("Not initialized", "not_initialized")
        answer = await self._handlers[request.method](self._context, params)
        if isinstance(answer, Answer):
            return Reply(answer.result.to_json(), answer.then)
        return Reply(answer.to_json())

    async def notified(self, method: str, params: Json) -> None:
        """`initialized` is all there is, and nothing waits for it; others may come from newer clients."""

    def error(self, error: BaseException, method: str) -> RpcError:
        return to_rpc_error(error, method)


def _parse(row: ClientRequest[Json, Json], raw: Json) -> Json:
    try:
        return row.parse(raw)
    except ValidationError as error:
        message, field = describe_validation_error(error)
        raise invalid_request(message, "invalid_params", field or None) from None
