"""A login with a device code from the code to the stored tokens, and every way in which it may end otherwise."""

import anyio
import pytest

from app_server.core.auth.auth_manager import AuthManager, LoginOutcome
from app_server.core.auth.authorize import code_challenge
from app_server.core.auth.home_login import AuthMethod
from app_server.core.auth.issuer import Issuer
from app_server.core.auth.login import DeviceLoginFlow, open_device_login
from app_server.core.auth.storage import StoredAuth, read_auth, write_auth
from app_server.core.config.types import LoginSettings
from app_server.core.errors import AuthError
from protocol.base import Json
from tests.unit.auth.oauth_issuer import ScriptedIssuer

PENDING = (403, {"error": "authorization_pending"})


async def outcome(flow: DeviceLoginFlow) -> LoginOutcome:
    with anyio.fail_after(20):
        return await flow.run_login()


async def test_a_login(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    issuer.device_polls = [PENDING, (404, {}), PENDING]
    flow = await open_device_login(auth)
    assert (flow.verification_url, flow.user_code) == (f"{issuer.url}/codex/device", "ABCD-1234")
    assert await outcome(flow) == LoginOutcome(True)
    credentials = await auth.credentials()
    assert credentials is not None
    assert (credentials.bearer, credentials.account_id, credentials.method) == (
        "access-1",
        "acct-1",
        AuthMethod.CHATGPT,
    )
    (exchange,) = issuer.fields("authorization_code")
    assert (exchange["code"], exchange["redirect_uri"]) == ("the-code", f"{issuer.url}/deviceauth/callback")
    polls = [fields for path, fields in issuer.requests if path.endswith("/deviceauth/token")]
    assert polls == [{"device_auth_id": "device-1", "user_code": "ABCD-1234"}] * 4
    assert "ABCD" not in repr(flow._code)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((404, {}), "no logins with a device code"),
        ((500, {"error": "sorry"}), r"gave no device code \(status 500, sorry\)"),
        ((200, {}), "answered without a device code"),
        ((200, {"device_auth_id": "d", "user_code": "a\nb"}), "answered without a device code"),
        ((200, [1]), "answered without a device code"),
    ],
)
async def test_an_issuer_that_gives_no_code(
    auth: AuthManager, issuer: ScriptedIssuer, answer: tuple[int, Json], text: str
) -> None:
    issuer.device = answer
    with pytest.raises(AuthError, match=text):
        await open_device_login(auth)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            (400, {"error": "expired_token"}),
            "the login server refused the device (status 400, expired_token)",
        ),
        ((200, {}), "the login server answered without the code of a login"),
        (
            (200, {"authorization_code": "c", "code_verifier": "v", "code_challenge": code_challenge("w")}),
            "the login server's verifier does not belong to its code",
        ),
    ],
)
async def test_a_device_that_is_refused(
    auth: AuthManager, issuer: ScriptedIssuer, answer: tuple[int, Json], text: str
) -> None:
    issuer.device_polls = [answer]
    assert await outcome(await open_device_login(auth)) == LoginOutcome(False, text)
    assert read_auth(auth.home) is None


async def test_a_login_that_is_cancelled_while_the_issuer_is_asked(
    auth: AuthManager, issuer: ScriptedIssuer
) -> None:
    flow = await open_device_login(auth)
    issuer.gate.clear()
    issuer.asked.clear()
    ended: list[LoginOutcome] = []

    async def run() -> None:
        ended.append(await outcome(flow))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await issuer.until_asked()
        flow.cancel()
    issuer.gate.set()
    assert ended == [LoginOutcome(False, "the login was cancelled")]
    early = await open_device_login(auth)
    early.cancel()
    assert await outcome(early) == LoginOutcome(False, "the login was cancelled")
    assert read_auth(auth.home) is None


async def test_a_login_that_nobody_finishes_ends(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    issuer.device_polls = [PENDING] * 10_000
    flow = await open_device_login(auth)
    assert await flow.run_login(0.05) == LoginOutcome(False, "the login was not finished in time")


async def test_an_issuer_that_cannot_be_reached_for_a_while_is_asked_again(
    auth: AuthManager, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = await open_device_login(auth)
    url, tries = issuer.url, [0]
    ask = Issuer.poll_device_code

    async def poll(self: Issuer, code: object) -> object:
        tries[0] += 1
        self._base_url = "http://127.0.0.1:1" if tries[0] == 1 else url
        return await ask(self, code)  # type: ignore[arg-type]

    monkeypatch.setattr(Issuer, "poll_device_code", poll)
    assert await outcome(flow) == LoginOutcome(True)
    assert tries == [2]


async def test_settings_that_forbid_the_login(auth: AuthManager) -> None:
    auth.follow(LoginSettings(forced_method="api"))
    with pytest.raises(AuthError, match="forced_login_method"):
        await open_device_login(auth)
    auth.follow(LoginSettings(workspace_id="acct-2"))
    refused = await outcome(await open_device_login(auth))
    assert refused.error is not None
    assert "forced_chatgpt_workspace_id" in refused.error


async def test_settings_of_a_conversation_decide_which_login_it_uses(auth: AuthManager) -> None:
    write_auth(auth.home, StoredAuth(api_key="sk-mine"))
    assert await auth.under(LoginSettings(forced_method="chatgpt")).credentials() is None
    mine = await auth.under(LoginSettings(forced_method="api")).credentials()
    assert mine is not None
    assert mine.bearer == "sk-mine"
    assert auth.settings.forced_method is None
