"""Known facts about providers and families of models."""

import logging

import pytest

from app_server.engine.auth.credentials import AuthMethod, Credentials
from app_server.engine.config.config_values import ProviderConfig, WireApi
from app_server.engine.model.endpoints import CHATGPT_URL, OPENAI_URL, Endpoint, endpoint, is_azure
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace
from tests.engine.model.scripted import IDENTITY, provider_config

API_KEY = Credentials("sk-login", None, AuthMethod.API_KEY)
CHATGPT = Credentials("at-1", "account-1", AuthMethod.CHATGPT)


def resolve(env: dict[str, str] | None = None, login: Credentials | None = None, **fields: Json) -> Endpoint:
    return endpoint(provider_config(**fields), "responses", env=env or {}, identity=IDENTITY, login=login)


def test_address_with_query() -> None:
    target = resolve(base_url="http://h/v1/", query_params={"api-version": "1", "x": "a b&c"})
    assert target.url == "http://h/v1/responses?api-version=1&x=a+b%26c"


def test_default_addresses() -> None:
    openai: dict[str, Json] = {"base_url": None, "requires_openai_auth": True}
    assert resolve(**openai).url == f"{OPENAI_URL}/responses"
    assert resolve(login=API_KEY, **openai).url == f"{OPENAI_URL}/responses"
    assert resolve(login=CHATGPT, **openai).url == f"{CHATGPT_URL}/responses"
    with pytest.raises(ModelError, match="mock"):
        resolve(base_url=None)


def test_headers_from_configuration_and_environment() -> None:
    target = resolve(
        {"EXTRA": " extra ", "BLANK": "  ", "KEY": "key-1"},
        env_key="KEY",
        http_headers={"X-Own": "yes", "Originator": "other"},
        env_http_headers={"x-extra": "EXTRA", "x-blank": "BLANK", "x-absent": "ABSENT"},
    )
    assert target.headers == {
        "originator": "other",
        "user-agent": "tests/1.0",
        "x-own": "yes",
        "x-extra": "extra",
        "authorization": "Bearer key-1",
    }


def test_the_messages_api_has_its_own_headers_unless_the_user_says_otherwise() -> None:
    def headers(**fields: Json) -> dict[str, str]:
        found = resolve({"KEY": "key-1"}, env_key="KEY", wire_api=WireApi.MESSAGES, **fields).headers
        return {name: value for name, value in found.items() if name not in ("originator", "user-agent")}

    assert headers() == {"anthropic-version": "2023-06-01", "x-api-key": "key-1"}
    own: dict[str, Json] = {"auth": "bearer", "http_headers": {"Anthropic-Version": "2030-01-01"}}
    assert headers(**own) == {"anthropic-version": "2030-01-01", "authorization": "Bearer key-1"}
    assert resolve({"KEY": "k"}, env_key="KEY", auth="x-api-key").headers["x-api-key"] == "k"
    with pytest.raises(ModelError, match="cannot be sent"):
        resolve({"KEY": "two words"}, env_key="KEY", wire_api=WireApi.MESSAGES)


@pytest.mark.parametrize(
    "host",
    [
        "bedrock-runtime.us-east-1.amazonaws.com",
        "bedrock-runtime.cn-north-1.amazonaws.com.cn",
        "us-east5-aiplatform.googleapis.com",
        "aiplatform.googleapis.com",
    ],
)
def test_hosts_that_want_signed_requests_are_refused_over_the_messages_api(host: str) -> None:
    url = f"https://{host}/v1"
    with pytest.raises(ModelError, match="use a gateway such as LiteLLM"):
        resolve(base_url=url, wire_api=WireApi.MESSAGES)
    assert resolve(base_url=url, wire_api=WireApi.CHAT).url
    assert resolve(base_url="https://bedrock.example.com/v1", wire_api=WireApi.MESSAGES).url


def test_which_secret_counts() -> None:
    def secret(env: dict[str, str], login: Credentials | None, **fields: Json) -> str | None:
        return resolve(env, login, **fields).secret

    assert secret({"KEY": "k"}, CHATGPT, env_key="KEY", experimental_bearer_token="b") == "b"
    assert secret({"KEY": "k"}, CHATGPT, env_key="KEY") == "k"
    assert secret({}, CHATGPT, env_key="KEY") == "at-1"
    assert secret({}, API_KEY) == "sk-login"
    assert secret({}, None) is None
    assert "authorization" not in resolve().headers


def test_the_account_goes_with_its_own_token_only() -> None:
    assert resolve(login=CHATGPT).headers["chatgpt-account-id"] == "account-1"
    assert "chatgpt-account-id" not in resolve({"KEY": "k"}, CHATGPT, env_key="KEY").headers


def test_a_missing_key_is_named_with_its_instructions() -> None:
    with pytest.raises(ModelError, match="Missing environment variable") as caught:
        resolve({"DESK_KEY": " "}, env_key="DESK_KEY", env_key_instructions="Get one at the desk.")
    assert str(caught.value) == "Missing environment variable: `DESK_KEY`. Get one at the desk."
    assert not caught.value.retryable
    with pytest.raises(ModelError, match=r"^Missing environment variable: `DESK_KEY`; set it to "):
        resolve(env_key="DESK_KEY")


def test_no_header_begins_another_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        target = resolve(http_headers={"x-a": "1\r\nx-b: secret", "x c": "1", "x-d": "ü", "x-e": "fine"})
    assert set(target.headers) == {"originator", "user-agent", "x-e"}
    assert "secret" not in caplog.text


def test_nothing_secret_is_shown() -> None:
    assert "key-1" not in repr(resolve({"KEY": "key-1"}, env_key="KEY", query_params={"key": "key-1"}))


def test_azure_is_recognised() -> None:
    def azure(**fields: Json) -> bool:
        return is_azure(provider_config(**fields))

    assert azure(name="Azure")
    assert azure(base_url="https://mine.openai.azure.com/openai")
    assert not azure(name="Azure", wire_api=WireApi.CHAT)
    assert not is_azure(ProviderConfig(id="x", name="x", wire_api=WireApi.RESPONSES))


def test_a_line_end_behind_a_key_is_no_part_of_it() -> None:
    stored = replace(API_KEY, bearer=f"{API_KEY.bearer}\n")
    assert resolve(login=stored).headers["authorization"] == f"Bearer {API_KEY.bearer}"
    assert resolve(experimental_bearer_token="key-1\r\n").headers["authorization"] == "Bearer key-1"
    assert resolve(http_headers={"x-a": "1\n"}).headers["x-a"] == "1"


@pytest.mark.parametrize("key", ["one\ntwo", "one two", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_told(key: str) -> None:
    with pytest.raises(
        ModelError, match="The key in KEY holds a blank, a line end or a character beyond"
    ) as told:
        resolve({"KEY": key}, env_key="KEY")
    assert key not in str(told.value)
