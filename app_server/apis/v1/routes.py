"""The routes of the conversation API: rows of its table with their handlers and contexts.

`model/list` is a method of the thread API too, whose route serves both.
"""

from __future__ import annotations

from app_server.apis.router import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v1.handlers import conversations, host, setup, turns
from protocol.v1 import methods


def routes(services: ServerServices) -> tuple[Route, ...]:
    config, live, connection = services.config, services.conversations, services.handshake
    initialize = setup.InitializeContext(connection, config.home)
    account = setup.AccountContext(services.accounts, services.outgoing)
    conversation = conversations.ConversationContext(config, live, services.outgoing, services.stored)
    listener = conversations.ListenerContext(live, services.machine.new_id)
    return (
        route(methods.INITIALIZE, setup.initialize, initialize),
        route(methods.GET_USER_AGENT, setup.get_user_agent, initialize),
        route(methods.USER_INFO, setup.user_info, account),
        route(methods.NEW_CONVERSATION, conversations.new_conversation, conversation),
        route(methods.RESUME_CONVERSATION, conversations.resume_conversation, conversation),
        route(methods.LIST_CONVERSATIONS, conversations.list_stored, conversation),
        route(methods.GET_CONVERSATION_SUMMARY, conversations.get_summary, conversation),
        route(methods.ARCHIVE_CONVERSATION, conversations.archive_conversation, conversation),
        route(methods.ADD_CONVERSATION_LISTENER, conversations.add_conversation_listener, listener),
        route(methods.REMOVE_CONVERSATION_LISTENER, conversations.remove_conversation_listener, listener),
        route(methods.SEND_USER_MESSAGE, turns.send_user_message, live),
        route(methods.SEND_USER_TURN, turns.send_user_turn, live),
        route(methods.INTERRUPT_CONVERSATION, turns.interrupt_conversation, live),
        route(methods.SUBMIT, turns.submit, live),
        route(methods.GIT_DIFF_TO_REMOTE, host.git_diff_to_remote, services.host),
        route(methods.FUZZY_FILE_SEARCH, host.fuzzy_file_search, services.host),
        route(methods.EXEC_ONE_OFF_COMMAND, host.exec_one_off_command, services.host),
        route(methods.LOGIN_API_KEY, setup.login_api_key, account),
        route(methods.LOGIN_CHAT_GPT, setup.login_chat_gpt, account),
        route(methods.CANCEL_LOGIN_CHAT_GPT, setup.cancel_login_chat_gpt, account),
        route(methods.LOGOUT_CHAT_GPT, setup.logout_chat_gpt, account),
        route(methods.GET_AUTH_STATUS, setup.get_auth_status, account),
        route(methods.GET_USER_SAVED_CONFIG, setup.get_user_saved_config, config),
        route(methods.SET_DEFAULT_MODEL, setup.set_default_model, config),
    )
