"""Settings without credentials, and writing back what was shown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.config.effective import shown_value, with_credentials, without_credentials
from app_server.core.errors import InvalidSettings
from app_server.masking import MASK
from protocol.base import Json

SECRET = "s3cr3t"

SETTINGS: dict[str, Json] = {
    "model": "m",
    "model_auto_compact_token_limit": 5,
    "tool_output_token_limit": 6,
    "cli_auth_credentials_store": "file",
    "openai_base_url": f"https://me:{SECRET}@host/v1?a=b",
    "model_providers": {
        "p": {
            "base_url": f"https://host/v1?api_key={SECRET}&b=c",
            "env_key": "VARIABLE",
            "experimental_bearer_token": SECRET,
            "http_headers": {"X-Team": SECRET},
            "query_params": {"key": SECRET},
            "env_http_headers": {"Authorization": "VARIABLE"},
        }
    },
    "mcp_servers": {
        "env": {"command": "c", "args": ["run", f"--token={SECRET}", "--api-key", SECRET, "--quiet"]},
        "web": {"url": "https://host/", "bearer_token_env_var": "VARIABLE", "env": {"A": SECRET, "B": ""}},
    },
    "shell_environment_policy": {"set": {"PASSWORD": SECRET}, "inherit": "all"},
    "otel": {"exporter": {"otlp-http": {"endpoint": "https://host", "headers": {"k": SECRET}}}},
    "notify": ["program", f"--password={SECRET}"],
    "unknown": {"my_secret": SECRET, "numbers": {"token": 17}, "list_of_tokens": 1},
    "features": {"token": True},
}


def test_no_credential_is_shown_and_all_else_is() -> None:
    shown = without_credentials(SETTINGS)
    assert SECRET not in json.dumps(shown)
    assert shown["openai_base_url"] == f"https://{MASK}@host/v1?a=b"
    provider = shown["model_providers"]["p"]
    assert provider["base_url"] == f"https://host/v1?api_key={MASK}&b=c"
    assert (provider["env_key"], provider["env_http_headers"]) == ("VARIABLE", {"Authorization": "VARIABLE"})
    assert provider["http_headers"] == {"X-Team": MASK}
    servers = shown["mcp_servers"]
    assert servers["env"]["command"] == "c"
    assert servers["env"]["args"] == ["run", f"--token={MASK}", "--api-key", MASK, "--quiet"]
    assert servers["web"] == {
        "url": "https://host/",
        "bearer_token_env_var": "VARIABLE",
        "env": {"A": MASK, "B": ""},
    }
    assert shown["unknown"]["numbers"] == {"token": MASK}
    assert shown["features"] == {"token": True}
    same = (
        "model",
        "model_auto_compact_token_limit",
        "tool_output_token_limit",
        "cli_auth_credentials_store",
    )
    assert [shown[key] for key in same] == [SETTINGS[key] for key in same]


@pytest.mark.parametrize(
    "key", [("model_providers", "p"), ("mcp_servers",), ("notify",), ("openai_base_url",)]
)
def test_what_is_written_back_as_it_was_shown_stays(key: tuple[str, ...]) -> None:
    present: Json = SETTINGS
    for part in key:
        present = present[part]
    assert with_credentials(shown_value(key, present), present, key) == present


def test_a_list_may_be_rearranged() -> None:
    present = ["--token=a", "--password=b", "c"]
    written = ["c", f"--password={MASK}", f"--token={MASK}", "new"]
    assert with_credentials(written, present, ("notify",)) == ["c", "--password=b", "--token=a", "new"]


@pytest.mark.parametrize(
    ("value", "present"),
    [(MASK, None), ({"env": {"NEW": MASK}}, {"env": {"A": "x"}}), ([MASK], ["x"]), (f"a{MASK}", "x")],
)
def test_a_hidden_value_with_nothing_behind_it_is_refused(value: Json, present: Json) -> None:
    with pytest.raises(InvalidSettings, match="stands for a value that is not there"):
        with_credentials(value, present, ("mcp_servers", "x"))


def test_a_new_credential_is_taken() -> None:
    assert with_credentials("new", "old", ("model_providers", "p", "experimental_bearer_token")) == "new"


@given(st.recursive(st.text("ab:/?=&@*-key", max_size=12), lambda inner: st.lists(inner, max_size=3)))
def test_showing_and_writing_back_is_lossless(value: Json) -> None:
    for key in (("notify",), ("model_providers", "p", "http_headers", "x")):
        shown = shown_value(key, value)
        assert shown_value(key, shown) == shown
        if MASK in repr(value):
            continue
        back = with_credentials(shown, value, key)
        assert shown_value(key, back) == shown
