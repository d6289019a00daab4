"""The client on whose behalf the engine works. A conversation takes values from the client that opened it, and a turn
from the client that began it. A server may have several clients, each with an environment and a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from app_server_protocol.values import Redacted

OPENAI_API_KEY = "OPENAI_API_KEY"
CODEX_API_KEY = "CODEX_API_KEY"


class ClientIdentity(Struct, frozen=True):
    """Names with which requests identify their sender."""

    originator: str
    user_agent: str


class ClientContext(Redacted, frozen=True, eq=False, kw_only=True):
    """The environment and identity of one client."""

    HIDDEN = ("environment",)

    environment: Mapping[str, str] | None
    """Environment of its commands, keys and proxies; None if the client has none."""
    identity: Callable[[], ClientIdentity]
    """Returns the client's identity. It is called on use: a client identifies itself after it has connected."""
    elicitation: Callable[[], bool]
    """Returns whether the client answers elicitations of MCP servers."""
    key_variables: tuple[str, ...] = (OPENAI_API_KEY,)
    """Variables with an API key that replaces a stored login, in order of precedence."""
    first_key_variable: str | None = None
    """Variable with an API key that takes precedence over a stored login; None if there is none."""


class TurnCaller(Struct, frozen=True):
    """The client that begins a turn. In a server only `ConversationContext.turn_caller` makes it, which also settles
    over which API the client is asked the questions of the turn.
    """

    client: ClientContext


class ActiveClient:
    """The client that a session works for: the one that opened it, then the one that began its last turn. A client
    without an environment works in that of the client before, or at first in that of the server.
    """

    def __init__(self, opener: ClientContext, environment: Mapping[str, str]) -> None:
        """`environment`: the environment of the server."""
        self.caller, self.environment = opener, environment
        self.use(opener)

    def use(self, caller: ClientContext | None) -> None:
        """Work for this client from now on. None, if no particular client asked, changes nothing."""
        if caller is not None:
            self.caller = caller
            if caller.environment is not None:
                self.environment = caller.environment

    @property
    def api_keys(self) -> Mapping[str, str]:
        """The keys that may replace a stored login, by their variables, in order of precedence."""
        return env_api_keys(self.environment, self.caller.key_variables)

    @property
    def first_api_keys(self) -> Mapping[str, str]:
        """The key that takes precedence over a stored login, by its variable; empty if there is none."""
        return first_api_keys(self.environment, self.caller)


def first_api_keys(environment: Mapping[str, str], caller: ClientContext) -> Mapping[str, str]:
    """Return the key in an environment that takes precedence over a stored login, by its variable; empty if there is
    none.
    """
    name = caller.first_key_variable
    return env_api_keys(environment, () if name is None else (name,))


def env_api_keys(environment: Mapping[str, str], variables: tuple[str, ...]) -> Mapping[str, str]:
    """Return the variables that have a value, in their order, with their values."""
    return {name: environment[name] for name in variables if environment.get(name)}
