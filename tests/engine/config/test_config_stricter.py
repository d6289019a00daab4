"""The command lines of a shared server and of its client both have rights; the stricter ones hold."""

import pytest

from app_server.engine.config.config_values import CliOverrides, RequestOverrides
from app_server.engine.config.layers import combine
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace


def settings(client: CliOverrides, server: CliOverrides) -> dict[str, Json]:
    return dict(combine({}, replace(client, above=server), RequestOverrides()).settings)


def setting(key: str, value: str | None) -> CliOverrides:
    return CliOverrides(settings=() if value is None else ((key, value),))


@pytest.mark.parametrize(
    ("client", "server", "counts"),
    [
        ("read-only", "danger-full-access", "read-only"),
        ("danger-full-access", "read-only", "read-only"),
        ("workspace-write", "danger-full-access", "workspace-write"),
        ("read-only", None, "read-only"),
        ("nonsense", "read-only", "read-only"),
    ],
)
def test_the_stricter_sandbox_counts(client: str, server: str | None, counts: str) -> None:
    own, of_server = setting("sandbox_mode", client), setting("sandbox_mode", server)
    assert settings(own, of_server) == {"sandbox_mode": counts}


def test_the_policy_counts_that_asks_about_more() -> None:
    never, untrusted = (setting("approval_policy", each) for each in ("never", "untrusted"))
    for one, other in ((never, untrusted), (untrusted, never)):
        assert settings(one, other) == {"approval_policy": "untrusted"}


def test_a_workspace_has_what_both_give() -> None:
    def workspace(**more: str) -> CliOverrides:
        return CliOverrides(settings=tuple((f"sandbox_workspace_write.{k}", v) for k, v in more.items()))

    client = workspace(network_access="false", exclude_slash_tmp="true", writable_roots='["/a", "/b"]')
    server = workspace(network_access="true", exclude_tmpdir_env_var="true", writable_roots='["/b", "/c"]')
    for one, other in ((client, server), (server, client)):
        assert settings(one, other)["sandbox_workspace_write"] == {
            "network_access": False,
            "exclude_slash_tmp": True,
            "exclude_tmpdir_env_var": True,
            "writable_roots": ["/b"],
        }


@pytest.mark.parametrize(
    ("client", "server", "counts"),
    [
        (("sandbox_mode", "read-only"), ("default_permissions", ":workspace"), ("sandbox_mode", "read-only")),
        (
            ("default_permissions", ":danger-full-access"),
            ("sandbox_mode", "read-only"),
            ("sandbox_mode", "read-only"),
        ),
        (
            ("default_permissions", ":read-only"),
            ("sandbox_mode", "danger-full-access"),
            ("default_permissions", ":read-only"),
        ),
        (("default_permissions", "own"), ("sandbox_mode", "read-only"), ("sandbox_mode", "read-only")),
        (("sandbox_mode", "read-only"), ("default_permissions", "own"), ("default_permissions", "own")),
    ],
)
def test_permission_profiles_are_compared_with_modes(
    client: tuple[str, str], server: tuple[str, str], counts: tuple[str, str]
) -> None:
    def as_json(setting: tuple[str, str]) -> tuple[str, str]:
        return setting[0], f'"{setting[1]}"'

    found = settings(CliOverrides(settings=(as_json(client),)), CliOverrides(settings=(as_json(server),)))
    assert found == {counts[0]: counts[1]}
