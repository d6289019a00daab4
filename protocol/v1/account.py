"""Logging in and out, and who is logged in."""

from enum import StrEnum

from pydantic import Field

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.structs import WireStruct


class AuthMode(StrEnum):
    APIKEY = "apikey"
    CHATGPT = "chatgpt"


class LoginApiKeyParams(WireModel):
    api_key: str = Field(repr=False)


class LoginApiKeyResponse(WireStruct):
    pass


class LoginChatGptResponse(WireStruct):
    """Where the user's browser goes, and the id that `loginChatGptComplete` will carry."""

    login_id: str
    auth_url: str


class CancelLoginChatGptParams(WireModel):
    login_id: str


class CancelLoginChatGptResponse(WireStruct):
    pass


class LogoutChatGptResponse(WireStruct):
    pass


class GetAuthStatusParams(WireModel):
    include_token: Flag | None = None
    refresh_token: Flag | None = None


class GetAuthStatusResponse(WireModel):
    auth_method: AuthMode | None = None
    auth_token: str | None = Field(default=None, repr=False)
    requires_openai_auth: bool | None = None


class AuthStatusChangeNotification(WireStruct):
    """The way of logging in changed; null after a logout."""

    auth_method: AuthMode | None = None


class LoginChatGptCompleteNotification(WireStruct):
    """A login through the browser ended. After the answer to `loginChatGpt`; on success
    `authStatusChange` follows."""

    login_id: str
    success: bool
    error: str | None = None
