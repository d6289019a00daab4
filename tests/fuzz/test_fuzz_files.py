"""Files that somebody spoiled: rollouts and configurations are read as far as they go, or refused by name."""

from pathlib import Path

import pytest
from hypothesis import given

from app_server.core.config.load import load_config
from app_server.core.config.types import CliOverrides, RequestOverrides
from app_server.core.errors import ConfigError, ConversationError
from app_server.core.rollout.reader import read_rollout
from tests.fuzz.mutation import mutated, thorough

ROLLOUT = (Path(__file__).parents[1] / "data" / "codex-0.58-rollout.jsonl").read_bytes()
LINES = ROLLOUT.splitlines(keepends=True)
ROLLOUTS = (ROLLOUT, b"".join(LINES[:1]), b"".join(LINES[:5]), b"".join([*LINES[:2], *LINES[-3:]]))
CONFIGS = (
    b'model = "m"\nmodel_provider = "p"\n[model_providers.p]\nname = "P"\nbase_url = "http://x/v1"\n'
    b'[mcp_servers.a]\ncommand = "x"\nargs = ["a"]\nenv = { A = "1" }\nstartup_timeout_sec = 1.5\n',
    b'approval_policy = "never"\nsandbox_mode = "workspace-write"\n[sandbox_workspace_write]\n'
    b'writable_roots = ["~/x"]\nnetwork_access = true\n[profiles.q]\nmodel = "n"\n',
    b'notify = ["a"]\n[otel]\nexporter = { otlp-http = { endpoint = "http://x", protocol = "json" } }\n'
    b'[features]\nghost_commit = false\n[projects."/x"]\ntrust_level = "trusted"\n',
    b'[shell_environment_policy]\ninherit = "core"\nset = { A = "b" }\n[tools]\nweb_search = true\n'
    b"[history]\nmax_bytes = 5\n",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@thorough
@given(data=mutated(ROLLOUTS))
def test_a_spoiled_rollout_is_read_as_far_as_it_goes(folder: Path, data: bytes) -> None:
    path = folder / "rollout-2025-01-01T00-00-00-0199a213-81c0-7800-8aa1-bbab2a035a53.jsonl"
    path.write_bytes(data)
    refused: ConversationError | None = None
    try:
        stored = read_rollout(path)
    except ConversationError as error:
        refused = error
    assert str(refused) if refused is not None else stored.meta.id


@thorough
@given(data=mutated(CONFIGS))
def test_a_spoiled_configuration_is_used_or_refused_by_name(folder: Path, data: bytes) -> None:
    (folder / "config.toml").write_bytes(data)
    refused: ConfigError | None = None
    try:
        config = load_config(
            folder, cwd=folder, cli=CliOverrides(), request=RequestOverrides(), env={"HOME": "/h"}
        )
    except ConfigError as error:
        refused = error
    assert len(str(refused)) < 3000 if refused is not None else config.model
