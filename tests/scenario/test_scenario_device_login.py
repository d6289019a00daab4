"""Logging in with a device code, and logins that the settings do not allow for requests to the model."""

import json

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says
from tests.support.thread_client import say, start
from tests.support.world import MakeWorld, Transport
from tests.unit.auth.oauth_issuer import scripted_issuer

START = "account/login/start"
DEVICE = {"type": "chatgptDeviceCode"}


@pytest.mark.parametrize("transport", ["memory", pytest.param("process", marks=pytest.mark.process)])
async def test_a_login_with_a_device_code(world: MakeWorld, transport: Transport) -> None:
    with scripted_issuer() as issuer:
        issuer.device_polls = [(403, {})]
        environment = {"APP_SERVER_AUTH_ISSUER": issuer.url, "NO_PROXY": "127.0.0.1"}
        async with world(environment=environment, transport=transport) as w:
            started = await w.client.call(START, DEVICE)
            assert started == {
                "type": "chatgptDeviceCode",
                "loginId": started["loginId"],
                "verificationUrl": f"{issuer.url}/codex/device",
                "userCode": "ABCD-1234",
            }
            completed = (await w.client.expect("account/login/completed"))["params"]
            assert completed == {"loginId": started["loginId"], "success": True, "error": None}
            updated = (await w.client.expect("account/updated"))["params"]
            assert (updated["authMode"], updated["planType"]) == ("chatgpt", "pro")
            assert json.loads((w.home / "auth.json").read_text())["tokens"]["access_token"] == "access-1"
        assert "access-1" not in json.dumps(w.client.received())


async def test_a_login_with_a_device_code_is_cancelled(world: MakeWorld) -> None:
    with scripted_issuer() as issuer:
        issuer.device_polls = [(403, {})] * 100_000
        environment = {"APP_SERVER_AUTH_ISSUER": issuer.url, "NO_PROXY": "127.0.0.1"}
        async with world(environment=environment) as w:
            first = await w.client.call(START, DEVICE)
            second = await w.client.call(START, DEVICE)
            ended = (await w.client.expect("account/login/completed"))["params"]
            assert (ended["loginId"], ended["success"]) == (first["loginId"], False)
            await w.client.call("account/login/cancel", {"loginId": second["loginId"]})
            ended = (await w.client.expect("account/login/completed"))["params"]
            assert ended == {
                "loginId": second["loginId"],
                "success": False,
                "error": "the login was cancelled",
            }
            issuer.device = (404, {})
            with pytest.raises(Refused, match="no logins with a device code"):
                await w.client.call(START, DEVICE)


@pytest.mark.parametrize(("forced", "headers"), [("api", ["Bearer sk-mine"]), ("chatgpt", [])])
async def test_the_settings_decide_which_login_the_model_is_asked_with(
    world: MakeWorld, forced: str, headers: list[str]
) -> None:
    """Without any request about the account before; it is not asked with the wrong one, which counts as none."""

    def store(w: Json) -> None:
        (w.home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-mine"}')

    how: Json = {"config": {"forced_login_method": forced}, "provider": {"requires_openai_auth": True}}
    async with world(reply(says("hi")), before=store, **how) as w:
        await say(w.client, await start(w.client))
        assert [each.headers.get("authorization") for each in w.model.requests] == headers
