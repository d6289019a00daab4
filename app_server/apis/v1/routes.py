"""The routes of the conversation API: rows of its table with their handlers.

`model/list` is a method of the thread API too, whose route serves both.
"""

from __future__ import annotations

from app_server.apis.router import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v1.handlers import conversations, setup, turns
from protocol.v1 import methods


def routes(services: ServerServices) -> tuple[Route, ...]:
    return (
        route(methods.INITIALIZE, setup.initialize, services),
        route(methods.GET_USER_AGENT, setup.get_user_agent, services),
        route(methods.USER_INFO, setup.user_info, services),
        route(methods.NEW_CONVERSATION, conversations.new_conversation, services),
        route(methods.RESUME_CONVERSATION, conversations.resume_conversation, services),
        route(methods.LIST_CONVERSATIONS, conversations.list_stored, services),
        route(methods.GET_CONVERSATION_SUMMARY, conversations.get_summary, services),
        route(methods.ARCHIVE_CONVERSATION, conversations.archive_conversation, services),
        route(methods.ADD_CONVERSATION_LISTENER, conversations.add_conversation_listener, services),
        route(methods.REMOVE_CONVERSATION_LISTENER, conversations.remove_conversation_listener, services),
        route(methods.SEND_USER_MESSAGE, turns.send_user_message, services),
        route(methods.SEND_USER_TURN, turns.send_user_turn, services),
        route(methods.INTERRUPT_CONVERSATION, turns.interrupt_conversation, services),
        route(methods.SUBMIT, turns.submit, services),
        route(methods.GIT_DIFF_TO_REMOTE, setup.git_diff_to_remote, services),
        route(methods.FUZZY_FILE_SEARCH, setup.fuzzy_file_search, services),
        route(methods.EXEC_ONE_OFF_COMMAND, setup.exec_one_off_command, services),
        route(methods.LOGIN_API_KEY, setup.login_api_key, services),
        route(methods.LOGIN_CHAT_GPT, setup.login_chat_gpt, services),
        route(methods.CANCEL_LOGIN_CHAT_GPT, setup.cancel_login_chat_gpt, services),
        route(methods.LOGOUT_CHAT_GPT, setup.logout_chat_gpt, services),
        route(methods.GET_AUTH_STATUS, setup.get_auth_status, services),
        route(methods.GET_USER_SAVED_CONFIG, setup.get_user_saved_config, services),
        route(methods.SET_DEFAULT_MODEL, setup.set_default_model, services),
    )
