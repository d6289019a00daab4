"""The routes of the conversation API: rows of its table with their handlers and contexts.

`model/list` is a method of the thread API too, whose route serves both.
"""

from __future__ import annotations

from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v1.handlers import (
    accounts,
    commands,
    conversations,
    files,
    handshake,
    listeners,
    saved_config,
    turns,
)
from protocol.v1 import methods


def routes(services: ServerServices) -> tuple[Route, ...]:
    config, live, connection = services.config, services.conversations, services.handshake
    initialize = handshake.InitializeContext(connection, config.home)
    account = accounts.AccountContext(
        config, services.accounts.auth, services.accounts.logins, services.outgoing
    )
    command = commands.CommandContext(config, services.host.runner)
    conversation = conversations.ConversationContext(config, live, services.outgoing, connection.warm_up)
    file = files.FileContext(services.host.search, services.host.git)
    listener = listeners.ListenerContext(live, services.new_id)
    return (
        route(methods.INITIALIZE, handshake.initialize, initialize),
        route(methods.GET_USER_AGENT, handshake.get_user_agent, initialize),
        route(methods.USER_INFO, accounts.user_info, account),
        route(methods.NEW_CONVERSATION, conversations.new_conversation, conversation),
        route(methods.RESUME_CONVERSATION, conversations.resume_conversation, conversation),
        route(methods.LIST_CONVERSATIONS, conversations.list_stored, conversation),
        route(methods.GET_CONVERSATION_SUMMARY, conversations.get_summary, conversation),
        route(methods.ARCHIVE_CONVERSATION, conversations.archive_conversation, conversation),
        route(methods.ADD_CONVERSATION_LISTENER, listeners.add_conversation_listener, listener),
        route(methods.REMOVE_CONVERSATION_LISTENER, listeners.remove_conversation_listener, listener),
        route(methods.SEND_USER_MESSAGE, turns.send_user_message, live),
        route(methods.SEND_USER_TURN, turns.send_user_turn, live),
        route(methods.INTERRUPT_CONVERSATION, turns.interrupt_conversation, live),
        route(methods.SUBMIT, turns.submit, live),
        route(methods.GIT_DIFF_TO_REMOTE, files.git_diff_to_remote, file),
        route(methods.FUZZY_FILE_SEARCH, files.fuzzy_file_search, file),
        route(methods.EXEC_ONE_OFF_COMMAND, commands.exec_one_off_command, command),
        route(methods.LOGIN_API_KEY, accounts.login_api_key, account),
        route(methods.LOGIN_CHAT_GPT, accounts.login_chat_gpt, account),
        route(methods.CANCEL_LOGIN_CHAT_GPT, accounts.cancel_login_chat_gpt, account),
        route(methods.LOGOUT_CHAT_GPT, accounts.logout_chat_gpt, account),
        route(methods.GET_AUTH_STATUS, accounts.get_auth_status, account),
        route(methods.GET_USER_SAVED_CONFIG, saved_config.get_user_saved_config, config),
        route(methods.SET_DEFAULT_MODEL, saved_config.set_default_model, config),
    )
