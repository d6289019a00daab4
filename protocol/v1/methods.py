"""The table of the conversation API: every method of it, once, from the rows beside their shapes."""

from typing import Final

from protocol.table import AnyClientRequest, AnyServerNotification, AnyServerRequest, Api, Table, by_method
from protocol.v1 import conversation, ops, setup, turn

_CLIENT_REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    setup.INITIALIZE,
    conversation.NEW_CONVERSATION,
    conversation.GET_CONVERSATION_SUMMARY,
    conversation.LIST_CONVERSATIONS,
    conversation.RESUME_CONVERSATION,
    conversation.ARCHIVE_CONVERSATION,
    turn.SEND_USER_MESSAGE,
    turn.SEND_USER_TURN,
    turn.INTERRUPT_CONVERSATION,
    conversation.ADD_CONVERSATION_LISTENER,
    conversation.REMOVE_CONVERSATION_LISTENER,
    ops.SUBMIT,
    setup.GIT_DIFF_TO_REMOTE,
    setup.LOGIN_API_KEY,
    setup.LOGIN_CHAT_GPT,
    setup.CANCEL_LOGIN_CHAT_GPT,
    setup.LOGOUT_CHAT_GPT,
    setup.GET_AUTH_STATUS,
    setup.GET_USER_SAVED_CONFIG,
    setup.SET_DEFAULT_MODEL,
    setup.GET_USER_AGENT,
    setup.USER_INFO,
    setup.FUZZY_FILE_SEARCH,
    setup.EXEC_ONE_OFF_COMMAND,
    setup.MODEL_LIST,
)
_SERVER_NOTIFICATIONS: Final[tuple[AnyServerNotification, ...]] = (
    setup.AUTH_STATUS_CHANGE,
    setup.LOGIN_CHAT_GPT_COMPLETE,
    conversation.SESSION_CONFIGURED,
)
_SERVER_REQUESTS: Final[tuple[AnyServerRequest, ...]] = (
    turn.EXEC_COMMAND_APPROVAL,
    turn.APPLY_PATCH_APPROVAL,
    turn.ELICITATION_REQUEST,
)

TABLE: Final = Table(
    api=Api.V1,
    client_requests=by_method(_CLIENT_REQUESTS),
    client_notifications=by_method((setup.INITIALIZED,)),
    server_notifications=by_method(_SERVER_NOTIFICATIONS),
    server_requests=by_method(_SERVER_REQUESTS),
)
