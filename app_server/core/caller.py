"""The client on whose behalf the engine works: what a conversation takes from who opened it, and a turn from who began
it. A server may have several clients, each with an environment and a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from app_server_protocol.structs import Discreet

OPENAI_API_KEY = "OPENAI_API_KEY"
CODEX_API_KEY = "CODEX_API_KEY"


class ClientIdentity(Struct, frozen=True):
    """Names by which requests present their sender."""

    originator: str
    user_agent: str


class Caller(Discreet, frozen=True, eq=False, kw_only=True):
    """Environment and identity that one client brings."""

    HIDDEN = ("environment",)

    environment: Mapping[str, str] | None
    """Of its commands, keys and proxies. None: it brings none."""
    identity: Callable[[], ClientIdentity]
    """Asked when it is needed: a client says who it is after it has connected."""
    elicitation: Callable[[], bool]
    """Tells whether it answers questions of MCP servers."""
    key_variables: tuple[str, ...] = (OPENAI_API_KEY,)
    """Variables with an API key that stands in for a stored login, the first one first."""
    first_key_variable: str | None = None
    """Variable with an API key that counts ahead of a stored login; None if there is none."""


class CurrentCaller:
    """For whom a session works: who opened it, then who began its last turn. A client without an environment works in
    the one before, at first in that of the server.
    """

    def __init__(self, opener: Caller, environment: Mapping[str, str]) -> None:
        """`environment` is the server's."""
        self.caller, self.environment = opener, environment
        self.use(opener)

    def use(self, caller: Caller | None) -> None:
        """Work for this client from now on; None: nobody in particular asked."""
        if caller is not None:
            self.caller = caller
            if caller.environment is not None:
                self.environment = caller.environment

    @property
    def api_keys(self) -> Mapping[str, str]:
        """Return the keys that may stand in for a stored login, by their variables, the first one first."""
        return env_api_keys(self.environment, self.caller.key_variables)

    @property
    def first_api_keys(self) -> Mapping[str, str]:
        """Return the key that counts ahead of a stored login, by its variable."""
        return first_api_keys(self.environment, self.caller)


def first_api_keys(environment: Mapping[str, str], caller: Caller) -> Mapping[str, str]:
    """Return the key in an environment that counts ahead of a stored login, by its variable; none if there is none."""
    name = caller.first_key_variable
    return env_api_keys(environment, () if name is None else (name,))


def env_api_keys(environment: Mapping[str, str], variables: tuple[str, ...]) -> Mapping[str, str]:
    """Return the values of these variables that have one, in their order."""
    return {name: environment[name] for name in variables if environment.get(name)}
