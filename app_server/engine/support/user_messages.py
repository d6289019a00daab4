"""The messages about problems that a user can solve: the problem, and its remedy. Pure.

The errors on the wire and `app-server doctor` use the same messages. A text that clients match comes first in its
message and never changes.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class Problem(Struct, frozen=True):
    """A problem and its remedy; `str(problem)` is the whole message."""

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}." if self.advice else f"{self.what}."


NOBODY_LOGGED_IN = Problem(
    "Nobody is logged in",
    "set OPENAI_API_KEY where the server is started, or log in: `app-server login`, or from your editor",
)


def nobody_logged_in(elsewhere: str) -> Problem:
    """Return the problem that there is no login. `elsewhere`: sentences about providers that could be used without one;
    empty if there are none.
    """
    if not elsewhere:
        return NOBODY_LOGGED_IN
    return Problem(f"{NOBODY_LOGGED_IN} {elsewhere.removesuffix('.')}", "")


UNTRUSTED_POLICY = Problem(
    'The setting `approval_policy = "untrusted"` is deprecated: codex since 0.171 does not start with it. This server'
    " still asks about each command that is not known to only read",
    'remove it, or write "on-request", with which the sandbox decides about what is asked',
)


def hidden_files(profile: str, reason: str) -> Problem:
    """Return the problem that a profile hides files on a machine without namespaces. `reason`: why the machine has
    none.
    """
    return Problem(
        f"the permission profile `{profile}` hides files, and this machine refuses the namespaces that it needs:"
        f" {reason}",
        "allow user namespaces, or choose a profile that denies nothing inside of what it lets commands read",
    )


def profile_not_applied(profile: str, reason: str) -> Problem:
    return Problem(
        f"the permission profile `{profile}` cannot be applied here: {reason}",
        "name folders instead, or patterns below a smaller folder",
    )


def key_missing(variable: str) -> Problem:
    return Problem(
        f"Missing environment variable: `{variable}`",
        "set it to the provider's key where the server is started",
    )


def key_refused(provider: str, source: str) -> Problem:
    """Return the problem of a refused key. `source`: where the key comes from, as `in SOME_VARIABLE`."""
    return Problem(
        f"The provider `{provider}` refused the key {source}", "replace it by one that is valid there"
    )


def key_not_sent(provider: str) -> Problem:
    return Problem(
        f"The provider `{provider}` wants a key, and none is configured",
        f"name the variable that holds it: `env_key` in [model_providers.{provider}]",
    )


def no_base_url(provider: str) -> Problem:
    return Problem(
        f"The model provider `{provider}` has no `base_url`", f"add one to [model_providers.{provider}]"
    )


def model_unknown(provider: str, model: str, offer: str = "") -> Problem:
    """Return the problem of an unknown model. `offer`: a sentence about the models of the provider; empty if they are
    not known.
    """
    what = f"The provider `{provider}` does not offer the model `{model}`"
    if offer:
        return Problem(f"{what}. {offer.removesuffix('.')}", "")
    return Problem(what, "set `model` to one that it offers")


def address_unknown(provider: str, url: str) -> Problem:
    """Return the problem of an unknown address. `url`: the requested URL, without its query."""
    return Problem(
        f"Nothing is served at {url}",
        f"see `base_url` of the provider `{provider}`: that of most servers ends in `/v1`, and paths are added to it",
    )


def address_too_long(provider: str, url: str, path: str) -> Problem:
    """Return the problem that `base_url` already contains `path`, which is appended to each address."""
    return Problem(
        f"Nothing is served at {url}",
        f"take `/{path}` off the end of `base_url` of the provider `{provider}`: it is added to it",
    )


def other_api(provider: str, url: str) -> Problem:
    """Return the problem that the provider serves another API. `url`: the requested URL, without its query."""
    return Problem(
        f"Nothing is served at {url}",
        f"see `base_url` and `wire` of the provider `{provider}`: it may have another of the APIs `responses`, `chat`"
        " and `messages`",
    )


def responses_only(provider: str, model: str) -> Problem:
    return Problem(
        f"`{model}` calls tools over the Responses API only here",
        f'set `wire = "responses"` in [model_providers.{provider}]',
    )


def azure_address(provider: str, url: str) -> Problem:
    """Return the problem of an address at Azure. `url`: the requested URL, without its query."""
    return Problem(
        f"Nothing is served at {url}",
        f"see `base_url` of the provider `{provider}`: the address of Azure ends in `/openai/v1`",
    )


def provider_unreachable(provider: str, origin: str, reason: str) -> Problem:
    return Problem(
        f"No connection to {origin}: {reason}",
        f"see that the provider `{provider}` runs, and that its `base_url`, the proxy and the trusted "
        "certificates are right",
    )


def git_missing(search_path: str) -> Problem:
    return Problem(
        f"There is no git in {search_path}",
        "install it there, or in a folder of the PATH that no command can change, or turns cannot be undone and no diff"
        " to the remote can be made",
    )


def home_unwritable(home: str, reason: str) -> Problem:
    return Problem(
        f"The home {home} cannot be written: {reason}",
        "make it writable, or set CODEX_HOME to a folder that is",
    )


STORE_AGAIN = "make the home writable, or free some space on its disk"


def not_stored(reason: str) -> Problem:
    return Problem(
        f"This conversation cannot be stored at the moment ({reason}). "
        "It goes on, and is stored as soon as that is possible",
        STORE_AGAIN,
    )


def not_reverted(reason: str) -> Problem:
    return Problem(
        f"This conversation cannot go back, because it cannot be stored at the moment ({reason})",
        STORE_AGAIN,
    )


def lines_unreadable(path: Path, count: int) -> Problem:
    lines = "One line" if count == 1 else f"{count} lines"
    return Problem(
        f"{lines} of {path} cannot be read: what they say is neither shown nor sent to the model",
        "the file stays as it is; a newer version may read them",
    )


def working_directory_missing(path: str) -> Problem:
    return Problem(
        f"The working directory {path} is no folder: commands and patches fail in it",
        "name one that is there as `cwd`, or make it",
    )


def other_protocol(method: str, protocol: str, advice: str) -> Problem:
    return Problem(f"`{method}` is a method of {protocol}, which is not spoken here", advice)


SANDBOX_ADVICE = (
    "allow unprivileged user namespaces, or use a kernel with Landlock (`app-server doctor` says which)"
)


def weaker_sandbox(reason: str, gaps: str) -> Problem:
    return Problem(
        f"Commands run with a weaker sandbox ({reason}). Not covered: {gaps}. "
        "Refused: unix sockets, but for pairs",
        SANDBOX_ADVICE,
    )


def unprotected(folder: str, reason: str) -> Problem:
    return Problem(
        f"Commands could change {folder}, which they must not, and are refused: {reason}",
        f"put it outside of the folders that commands may write in, or {SANDBOX_ADVICE}",
    )


def no_sandbox(reason: str) -> Problem:
    return Problem(
        f"Commands cannot be confined on this machine and are refused: {reason}",
        f"{SANDBOX_ADVICE}, or let conversations run with `danger-full-access` inside of a container",
    )
