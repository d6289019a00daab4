"""What an error on the wire says is what doctor says: one sentence, of two parts."""

from pathlib import Path

from app_server.core import remedies
from app_server.core.config.load import load_config
from app_server.core.config.types import CliOverrides, Config, RequestOverrides
from app_server.core.diagnostics.home import check_home
from app_server.core.diagnostics.machine import check_git, check_sandbox
from app_server.core.diagnostics.providers import check_provider
from app_server.core.model.model_errors import ConnectionFailed, MissingVariable, NoBaseUrl
from app_server.core.model.model_list import ModelList, ModelsUnknown
from app_server.core.remedies import Problem
from app_server.core.sandbox.probe import SandboxState
from protocol.checks import Check

MINE = """\
model = "m"
model_provider = "mine"
[model_providers.mine]
name = "Mine"
base_url = "http://models.test/v1"
"""
KEYED = MINE + 'env_key = "MINE_KEY"\n'


def parts(check: Check) -> Problem:
    return Problem(check.found, check.advice)


def checked(home: Path, text: str, answer: ModelList | ModelsUnknown | None, **env: str) -> Check:
    (home / "config.toml").write_text(text)
    config: Config = load_config(home, cwd=home, cli=CliOverrides(), request=RequestOverrides(), env=env)
    return check_provider(config, config.provider, env, None, answer)


def test_of_providers(tmp_path: Path) -> None:
    """The sentences of `MissingVariable` and the like are the errors of a turn."""
    missing = checked(tmp_path, KEYED, None)
    assert str(parts(missing)) == str(MissingVariable("MINE_KEY", None))
    down = checked(tmp_path, MINE, ModelsUnknown("Connection refused", unreachable=True))
    assert str(parts(down)) == str(ConnectionFailed("mine", "http://models.test", "Connection refused"))
    without = checked(tmp_path, MINE.replace("base_url", "#base_url"), None)
    assert str(parts(without)) == str(NoBaseUrl("mine"))
    refused = checked(tmp_path, KEYED, ModelsUnknown("", 401), MINE_KEY="k")
    assert parts(refused) == remedies.key_refused("mine", "in MINE_KEY")
    keyless = checked(tmp_path, MINE, ModelsUnknown("", 401))
    assert parts(keyless) == remedies.key_not_sent("mine")
    unknown = checked(tmp_path, MINE, ModelList(("a",)))
    assert unknown.found == remedies.model_unknown("mine", "m").what
    nobody = checked(tmp_path, "", None)
    assert parts(nobody) == remedies.NOBODY_LOGGED_IN


def test_of_the_machine(tmp_path: Path) -> None:
    assert parts(check_git(None, "/bin")) == remedies.git_missing("/bin")
    for level in ("none", "degraded"):
        state = SandboxState("none" if level == "none" else "degraded", "why", ("gap",))
        check = check_sandbox(state, ())
        assert state.warning is not None
        what, _, advice = state.warning.partition("; ")
        assert check.found.startswith(what)
        assert check.advice == advice.removesuffix(".")
    (tmp_path / "home").write_text("")
    told = check_home(tmp_path / "home" / "below")
    assert parts(told).advice == remedies.home_unwritable("x", "y").advice
