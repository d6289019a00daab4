"""The usual form of `initialize`, which is answered before an API is loaded."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.support.client_info import ClientProfile
from app_server.server.apis.plain_initialize import plain_initialize
from app_server_protocol.encoding import Json
from app_server_protocol.v1.setup import InitializeParams
from tests.support.client import Refused
from tests.support.loading import modules_loaded_by
from tests.support.world import MakeWorld

CLIENT: Json = {"name": "editor", "version": "7", "title": None}
OF_NEWER_CLIENTS: Json = {
    "experimentalApi": True,
    "optOutNotificationMethods": ["thread/status/changed"],
    "extensions": {"x": 1},
}


@pytest.mark.parametrize(
    "capabilities",
    [None, {}, {"elicitation": True}, OF_NEWER_CLIENTS, {"elicitation": {"form": None, "url": None}}],
)
def test_what_a_client_can_do_is_kept_as_it_was_sent(capabilities: Json) -> None:
    found = plain_initialize({"clientInfo": CLIENT, "capabilities": capabilities})
    assert found is not None
    assert (found.name, found.version, found.capabilities) == ("editor", "7", capabilities)


@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        {},
        {"clientInfo": {"name": "editor"}},
        {"clientInfo": {**CLIENT, "title": 5}},
        {"client_info": CLIENT},
        {"clientInfo": CLIENT, "client_info": CLIENT},
        {"clientInfo": CLIENT, "protocolVersion": 1},
    ],
)
def test_what_has_to_be_looked_at_is_left_for_the_conversation_api(params: Json) -> None:
    assert plain_initialize(params) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
clients = st.fixed_dictionaries(
    {}, optional={"name": json_values, "version": json_values, "title": json_values}
)
capabilities = json_values | st.dictionaries(
    st.sampled_from(["elicitation", "experimentalApi", "other"]), json_values
)


@given(st.fixed_dictionaries({"clientInfo": clients | json_values}, optional={"capabilities": capabilities}))
def test_only_what_the_conversation_api_accepts_is_answered_before(params: Mapping[str, Json]) -> None:
    plain = plain_initialize(dict(params))
    if plain is None:
        return
    full = InitializeParams.model_validate(params)
    assert (plain.name, plain.version) == (full.client_info.name, full.client_info.version)
    assert (plain.capabilities is None) == (full.capabilities is None)
    client = ClientProfile()
    client.announce(plain.capabilities)
    assert full.capabilities is None or client.elicitation == full.capabilities.elicitation


@pytest.mark.scenario
@pytest.mark.parametrize("extra", [{}, {"of": "later versions"}])
async def test_both_forms_are_answered_alike(world: MakeWorld, extra: Mapping[str, Json]) -> None:
    async with world(initialize=False) as w:
        params = {"clientInfo": CLIENT, "capabilities": OF_NEWER_CLIENTS, **extra}
        result = await w.client.call("initialize", params)
        with pytest.raises(Refused, match="Already initialized"):
            await w.client.call("initialize", {"clientInfo": CLIENT})
    assert result["userAgent"].startswith("editor/")
    assert result.keys() == {"userAgent", "codexHome", "platformFamily", "platformOs"}


SERVED = """
import anyio
from app_server.in_process import InProcessConnector

async def greet():
    async with InProcessConnector().open() as link:
        await link.write(b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"a","version":"1"}}}\\n')
        async for lines in link.lines():
            assert b'"userAgent"' in lines[0]
            break

anyio.run(greet)
"""


def test_an_initialize_loads_no_api() -> None:
    loaded = modules_loaded_by(SERVED)
    assert "app_server.server.apis.plain_initialize" in loaded
    assert {name for name in loaded if name.startswith("app_server_protocol.v")} <= {
        "app_server_protocol.values",
        "app_server_protocol.v1",
        "app_server_protocol.v2",
    }
    assert "app_server.server.apis.v1.v1_routes" not in loaded
    assert "app_server.server.apis.v2.v2_routes" not in loaded
