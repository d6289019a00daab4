"""The table of the Agent Client Protocol: the stable methods of version 1, once. Nothing else spells their names."""

from typing import Final

from protocol import names
from protocol.acp import prompt, session, tool_calls
from protocol.table import (
    AnyClientRequest,
    AnyServerRequest,
    Api,
    ClientNotification,
    ClientRequest,
    ServerRequest,
    Table,
    by_method,
)

_SESSION: Final = "sessionId"
"""Requests about the same session are served one after another, but for prompts: a later one joins the first."""

INITIALIZE: Final = ClientRequest(
    names.INITIALIZE,
    session.AgentInitializeRequest,
    session.AgentInitializeResponse,
    "The first request: version and capabilities of both sides, and ways to log in.",
)
AUTHENTICATE: Final = ClientRequest(
    "authenticate",
    session.AuthenticateRequest,
    session.AuthenticateResponse,
    "Logs in by one of the announced methods; answered when that is done.",
)
LOGOUT: Final = ClientRequest(
    "logout", session.LogoutRequest, session.LogoutResponse, "Deletes the stored login."
)
NEW_SESSION: Final = ClientRequest(
    "session/new", session.NewSessionRequest, session.NewSessionResponse, "Opens a session in a folder."
)
LOAD_SESSION: Final = ClientRequest(
    "session/load",
    session.LoadSessionRequest,
    session.LoadSessionResponse,
    "Opens a stored session and sends it again, as updates before the answer.",
    ordered_by=_SESSION,
)
RESUME_SESSION: Final = ClientRequest(
    "session/resume",
    session.ResumeSessionRequest,
    session.ResumeSessionResponse,
    "Opens a stored session without sending it again.",
    ordered_by=_SESSION,
)
LIST_SESSIONS: Final = ClientRequest(
    "session/list",
    session.ListSessionsRequest,
    session.ListSessionsResponse,
    "Stored sessions, the one that changed last first, by pages.",
)
CLOSE_SESSION: Final = ClientRequest(
    "session/close",
    session.CloseSessionRequest,
    session.CloseSessionResponse,
    "Ends a session, with the turn that runs; it stays stored.",
    ordered_by=_SESSION,
)
DELETE_SESSION: Final = ClientRequest(
    "session/delete",
    session.DeleteSessionRequest,
    session.DeleteSessionResponse,
    "Takes a session out of the list. Succeeds where there is none.",
    ordered_by=_SESSION,
)
SET_MODE: Final = ClientRequest(
    "session/set_mode",
    session.SetSessionModeRequest,
    session.SetSessionModeResponse,
    "Sets the mode; older clients know this way only.",
    ordered_by=_SESSION,
)
SET_CONFIG_OPTION: Final = ClientRequest(
    "session/set_config_option",
    session.SetSessionConfigOptionRequest,
    session.SetSessionConfigOptionResponse,
    "Sets an option; the answer has all of them.",
    ordered_by=_SESSION,
)
PROMPT: Final = ClientRequest(
    "session/prompt",
    prompt.PromptRequest,
    prompt.PromptResponse,
    "Says something; answered when the turn is over.",
)
STEERING: Final = ClientRequest(
    "_session/steering",
    prompt.SteeringRequest,
    prompt.SteeringResponse,
    "Says something to the turn that runs; answered at once. An extension.",
    extension=True,
)

CANCEL: Final = ClientNotification("session/cancel", "Ends the turn that runs.")
CANCEL_REQUEST: Final = ClientNotification("$/cancel_request", "Ends a request, in both directions.")

REQUEST_PERMISSION: Final = ServerRequest(
    "session/request_permission",
    tool_calls.RequestPermissionRequest,
    tool_calls.RequestPermissionResponse,
    "May a command run, or files change?",
)
CREATE_ELICITATION: Final = ServerRequest(
    "elicitation/create",
    tool_calls.CreateElicitationRequest,
    tool_calls.CreateElicitationResponse,
    "An MCP server asks the user.",
)
READ_TEXT_FILE: Final = ServerRequest(
    "fs/read_text_file",
    tool_calls.ReadTextFileRequest,
    tool_calls.ReadTextFileResponse,
    "The text of a file as the editor has it, with what is not saved.",
)
WRITE_TEXT_FILE: Final = ServerRequest(
    "fs/write_text_file",
    tool_calls.WriteTextFileRequest,
    tool_calls.WriteTextFileResponse,
    "Puts a text into the editor, and saves it.",
)

CLIENT_REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    *(INITIALIZE, AUTHENTICATE, LOGOUT),
    *(NEW_SESSION, LOAD_SESSION, RESUME_SESSION, LIST_SESSIONS, CLOSE_SESSION, DELETE_SESSION),
    *(SET_MODE, SET_CONFIG_OPTION, PROMPT, STEERING),
)
SERVER_REQUESTS: Final[tuple[AnyServerRequest, ...]] = (
    *(REQUEST_PERMISSION, CREATE_ELICITATION, READ_TEXT_FILE, WRITE_TEXT_FILE),
)

TABLE: Final = Table(
    api=Api.ACP,
    client_requests=by_method(CLIENT_REQUESTS),
    client_notifications=by_method((CANCEL, CANCEL_REQUEST)),
    server_notifications={},
    server_requests=by_method(SERVER_REQUESTS),
)
