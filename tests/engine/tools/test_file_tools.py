"""Display of files and pictures by tools, the commands that they run, and the tools that a model is offered."""

import base64
import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.config_values import Config, SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.model.catalogue import find_model
from app_server.engine.support.images import BROKEN, MAX_IMAGE_BYTES
from app_server.engine.tools.registry import BUILTIN_NAMES, build_tools
from app_server.engine.tools.tool_base import Tool, ToolCall, ToolFailure
from app_server.engine.workspace.files.model_reads import (
    LINE_BYTES,
    ReadError,
    braces,
    grep,
    list_folder,
    read_block,
    read_lines,
)
from app_server_protocol.encoding import Json
from app_server_protocol.events.command_events import ExecCommandBeginEvent
from app_server_protocol.policy import ReadOnly, ReviewDecision
from app_server_protocol.responses import InputImage, MessageItem
from app_server_protocol.values import replace
from tests.engine.tools.conftest import MakeLive, MakeScene, Scene, builtin, run
from tests.support.pictures import png

BLOCK = {"file_path": __file__, "mode": "indentation"}
READ, LIST, GREP = builtin("read_file"), builtin("list_dir"), builtin("grep_files")


# --- lines
def lines_of(path: Path, offset: int = 1, limit: int = 2000) -> list[str]:
    return read_lines(str(path), offset, limit).split("\n")


def test_lines_come_with_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\r\ntwo\n\nfour")
    assert lines_of(file) == ["L1: one", "L2: two", "L3: ", "L4: four"]
    assert lines_of(file, 2, 2) == ["L2: two", "L3: "]


@pytest.mark.parametrize(("content", "offset"), [(b"", 1), (b"one\n", 2), (b"one\ntwo", 3)])
def test_behind_the_last_line_there_is_nothing(tmp_path: Path, content: bytes, offset: int) -> None:
    file = tmp_path / "a"
    file.write_bytes(content)
    with pytest.raises(ReadError, match="offset exceeds file length"):
        lines_of(file, offset)


@given(
    st.lists(st.binary(max_size=LINE_BYTES).filter(lambda b: not set(b) & {10, 13}), min_size=1, max_size=30)
)
def test_every_line_is_there_whatever_its_bytes(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    file = tmp_path_factory.mktemp("lines") / "a"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    shown = read_lines(str(file), 1, 2000)
    expected = (f"L{n}: {line.decode('utf-8', 'replace')}" for n, line in enumerate(lines, 1))
    assert shown == "\n".join(expected)


@given(st.integers(1, 8))
def test_a_long_line_is_cut_between_characters(tmp_path_factory: pytest.TempPathFactory, shift: int) -> None:
    file = tmp_path_factory.mktemp("long") / "a"
    file.write_text("x" * shift + "€" * 100_000 + "\nnext", encoding="utf-8")
    first, second = lines_of(file)
    assert "\ufffd" not in first
    assert LINE_BYTES - 3 < len(first.removeprefix("L1: ").encode()) <= LINE_BYTES
    assert second == "L2: next"


def test_the_lines_around_one_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("x\n" * 30_000 + "def f():\n  one\n  two\ny\n", encoding="utf-8")
    shown = read_block(str(file), 30_002, 1, siblings=False, header=True, limit=10)
    assert shown == "L30001: def f():\nL30002:   one\nL30003:   two"
    assert read_block(str(file), 30_002, 1, siblings=False, header=True, limit=1) == "L30002:   one"
    with pytest.raises(ReadError, match="anchor_line exceeds file length"):
        read_block(str(file), 30_005, 1, siblings=False, header=True, limit=10)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing", "."):
        with pytest.raises(ReadError, match="failed to read file"):
            lines_of(tmp_path / name)


# --- folders
def tree(root: Path) -> Path:
    for name in ("b.txt", "a/x.py", "a/deep/y.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("import os\n")
    (root / "link").symlink_to("b.txt")
    return root


def test_entries_are_marked_and_indented(tmp_path: Path) -> None:
    shown = list_folder(str(tree(tmp_path)), 1, 25, 2).split("\n")
    assert shown[1:] == ["a/", "  deep/", "  x.py", "b.txt", "link@"]
    assert list_folder(str(tmp_path), 1, 25, 1).split("\n")[1:] == ["a/", "b.txt", "link@"]


def test_a_page_of_entries_says_that_there_are_more(tmp_path: Path) -> None:
    root = str(tree(tmp_path))
    assert list_folder(root, 2, 2, 2).split("\n")[1:] == ["  deep/", "  x.py", "More than 2 entries found"]
    assert list_folder(root, 4, 2, 2).split("\n")[1:] == ["b.txt", "link@"]
    with pytest.raises(ReadError, match="offset exceeds directory entry count"):
        list_folder(root, 9, 2, 2)


def test_an_empty_folder_is_no_mistake(tmp_path: Path) -> None:
    assert list_folder(str(tmp_path), 1, 25, 2) == f"Absolute path: {tmp_path}"


# --- searching
def test_files_with_a_match_come_newest_first(tmp_path: Path) -> None:
    tree(tmp_path)
    os.utime(tmp_path / "a" / "x.py", (1, 1))
    os.utime(tmp_path / "a" / "deep" / "y.py", (2, 2))
    found = grep("^import", str(tmp_path), "*.py", 10).split("\n")
    assert found == [str(tmp_path / "a/deep/y.py"), str(tmp_path / "a/x.py")]
    assert grep("^import", str(tmp_path), "*.py", 1).split("\n") == found[:1]
    assert grep("import", str(tmp_path / "b.txt"), None, 10) == str(tmp_path / "b.txt")


def test_what_is_ignored_hidden_or_no_text_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("seen", "ignored", ".hidden", ".git/config"):
        (tmp_path / name).write_text("needle\n")
    (tmp_path / "binary").write_bytes(b"\0needle")
    (tmp_path / ".gitignore").write_text("ignored\n")
    assert grep("needle", str(tmp_path), None, 10) == str(tmp_path / "seen")
    assert grep("nothing like it", str(tmp_path), None, 10) == "No matches found."


def test_a_pattern_that_is_none_is_the_models_to_mend(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="not a regular expression"):
        grep("(", str(tmp_path), None, 1)


@pytest.mark.parametrize(
    ("glob", "choices"),
    [
        ("*.py", ["*.py"]),
        ("*.{ts,tsx}", ["*.ts", "*.tsx"]),
        ("{a,b}.{c,d}", ["a.c", "a.d", "b.c", "b.d"]),
        ("{x", ["{x"]),
    ],
)
def test_braces_are_choices(glob: str, choices: list[str]) -> None:
    assert list(braces(glob)) == choices


# --- as tools
@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        (READ, {"file_path": "a"}, "file_path must be an absolute path"),
        (READ, {"file_path": "/a", "offset": 0}, "offset must be a 1-indexed line number"),
        (READ, {"file_path": "/a", "limit": 0}, "limit must be greater than zero"),
        (READ, {"file_path": "/nowhere/a"}, "failed to read file: No such file or directory"),
        (READ, {"file_path": "/a", "mode": "all"}, "failed to parse function arguments: .*mode"),
        (READ, {**BLOCK, "indentation": {"anchor_line": 0}}, "anchor_line must be a 1-indexed line number"),
        (READ, {**BLOCK, "indentation": {"max_lines": 0}}, "max_lines must be greater than zero"),
        (READ, {**BLOCK, "indentation": {"anchor_line": 1 << 30}}, "anchor_line exceeds file length"),
        (READ, {}, "failed to parse function arguments"),
        (LIST, {"dir_path": "a"}, "dir_path must be an absolute path"),
        (LIST, {"dir_path": "/", "depth": 0}, "depth must be greater than zero"),
        (LIST, {"dir_path": "/nowhere"}, "failed to read directory"),
        (GREP, {"pattern": " "}, "pattern must not be empty"),
        (GREP, {"pattern": "a", "path": "nowhere"}, "unable to access"),
    ],
)  # fmt: skip
async def test_mistakes_are_named(live: MakeLive, tool: Tool, arguments: Json, problem: str) -> None:
    with pytest.raises(ToolFailure, match=problem):
        await run(tool, live(), **arguments)


async def test_relative_places_are_the_turns(live: MakeLive) -> None:
    scene = live()
    tree(scene.ws)
    assert "y.py" in await run(GREP, scene, pattern="import", path="a/deep", include=None)
    assert (await run(READ, scene, file_path=str(scene.ws / "b.txt"), limit=None)) == "L1: import os"
    (scene.ws / "c.py").write_text("x = 1\n\ndef f():\n    return 1\n")
    file, block = str(scene.ws / "c.py"), {"anchor_line": 4, "max_lines": None}
    shown = await run(READ, scene, file_path=file, mode="indentation", indentation=block)
    assert shown == await run(READ, scene, file_path=file, mode="indentation", offset=4)
    assert shown == await run(READ, scene, file_path=file, mode="slice", offset=3)
    assert shown == "L3: def f():\nL4:     return 1"
    assert "x.py" in await run(LIST, scene, dir_path=str(scene.ws))


async def test_secrets_that_commands_cannot_read_these_cannot_either(live: MakeLive) -> None:
    scene = live(sandbox=ReadOnly())
    if (await scene.turn.commands.runner.sandbox.state()).level != "full":
        pytest.skip("hiding files takes namespaces")
    secret = scene.root / "home" / "auth.json"
    secret.write_text('{"OPENAI_API_KEY": "sentinel"}')
    try:
        shown = await run(READ, scene, file_path=str(secret))
    except ToolFailure as failure:
        shown = str(failure)
    assert "sentinel" not in shown
    assert "sentinel" not in await run(GREP, scene, pattern="sentinel", path=str(scene.root / "home"))


async def test_what_is_shown_is_bounded(live: MakeLive) -> None:
    scene = live()
    (scene.ws / "big").write_text("".join(f"{n}\n" for n in range(100_000)))
    shown = await run(READ, scene, file_path=str(scene.ws / "big"), limit=90_000)
    assert len(shown.encode()) < 11_000
    assert shown.endswith("L90000: 89999")


PNG = png() + bytes(range(256)) * 8192
"""Picture that is larger than the kept part of a command's output."""


async def test_an_image_is_attached_whole(live: MakeLive) -> None:
    scene = live()
    (scene.ws / "a.png").write_bytes(PNG)
    call = ToolCall("c1", "view_image", '{"path": "a.png", "detail": "high"}')
    output = await builtin("view_image").invoke(call, scene.turn)
    assert output.payload.content == "attached local image path"
    (message,) = output.followup_items
    assert isinstance(message, MessageItem)
    (image,) = message.content
    assert isinstance(image, InputImage)
    kind, _, data = image.image_url.partition(",")
    assert (kind, base64.b64decode(data)) == ("data:image/png;base64", PNG)
    assert scene.kinds() == ["view_image_tool_call"]


@pytest.mark.skipif(sys.platform != "linux", reason="the layers of Linux")
async def test_what_commands_cannot_read_is_not_shown(live: MakeLive) -> None:
    scene = live(sandbox=ReadOnly())
    secret = scene.root / "home" / "auth.json"
    secret.write_bytes(PNG)
    with pytest.raises(ToolFailure, match="unable to locate image at"):
        await run(builtin("view_image"), scene, path=str(secret))
    assert scene.said == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing.png", "unable to locate image at `{path}`: No such file or directory (os error 2)"),
        ("folder", "unable to read image at `{path}`: not a file"),
        ("pipe", "unable to read image at `{path}`: not a file"),
        ("/dev/zero", "unable to read image at `{path}`: not a file"),
        ("text.png", "unable to read image at `{path}`: not a PNG, JPEG, GIF or WebP image"),
        ("empty.png", "unable to read image at `{path}`: not a PNG, JPEG, GIF or WebP image"),
        ("broken.png", f"unable to read image at `{{path}}`: {BROKEN}"),
        ("huge.png", f"unable to read image at `{{path}}`: larger than {MAX_IMAGE_BYTES} bytes"),
        ("nul\0.png", "unable to locate image at `{path}`: no file can have this name"),
    ],
)
async def test_a_file_that_is_no_image_is_rejected_early(live: MakeLive, name: str, told: str) -> None:
    scene = live()
    prepare(scene.ws)
    path = os.path.join(scene.ws, name)
    with anyio.fail_after(20), pytest.raises(ToolFailure) as raised:
        await run(builtin("view_image"), scene, path=name)
    assert str(raised.value) == told.format(path=path)
    assert scene.said == []


def prepare(folder: Path) -> None:
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "text.png").write_text("not at all")
    (folder / "empty.png").touch()
    (folder / "broken.png").write_bytes(png()[:40] + b"rubbish" * 9)
    with (folder / "huge.png").open("wb") as huge:
        huge.write(PNG)
        huge.truncate(MAX_IMAGE_BYTES + 1)


PATCH = "*** Begin Patch\n*** Add File: new\n+x\n*** End Patch"


def begun(scene: Scene) -> ExecCommandBeginEvent:
    return next(event for event in scene.said if isinstance(event, ExecCommandBeginEvent))


async def test_an_argument_vector_is_run_without_a_shell(live: MakeLive) -> None:
    scene = live()
    told = json.loads(
        await run(builtin("shell"), scene, command=["printf", "%s", "$HOME"], timeout_ms=None, other=1)
    )
    assert told["output"] == "$HOME"


async def test_a_line_is_run_by_the_users_shell(live: MakeLive) -> None:
    scene = live()
    (scene.ws / "sub").mkdir()
    told = json.loads(
        await run(builtin("shell_command"), scene, command="echo $((1 + 1)); pwd", workdir="sub")
    )
    assert told["output"].splitlines() == ["2", str(scene.ws / "sub")]
    assert begun(scene).command == ("/bin/sh", "-lc", "echo $((1 + 1)); pwd")


async def test_a_line_keeps_its_time_limit(live: MakeLive) -> None:
    told = json.loads(await run(builtin("shell_command"), live(), command="sleep 30", timeout_ms=50))
    assert told["metadata"]["exit_code"] == 124


async def test_a_line_can_ask_to_leave_the_sandbox(scene: MakeScene) -> None:
    asked = scene(answers=[ReviewDecision.APPROVED])
    await run(
        builtin("shell_command"), asked, command="true", with_escalated_permissions=True, justification="why"
    )
    (question,) = asked.questions()
    assert question.reason == "why"
    assert asked.runner.confined == [False]


@pytest.mark.parametrize("script", [f"apply_patch <<'EOF'\n{PATCH}\nEOF", f"apply_patch '{PATCH}'"])
async def test_a_patch_in_a_line_is_applied_as_a_patch(live: MakeLive, script: str) -> None:
    scene = live()
    scene.turn.commands.shell_path = "/bin/bash"
    told = json.loads(await run(builtin("shell_command"), scene, command=script))
    assert told["output"] == "Success. Updated the following files:\nA new\n"
    assert Path(scene.ws, "new").read_text() == "x\n"
    assert scene.kinds() == ["patch_apply_begin", "exec_command_output_delta", "patch_apply_end"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [(builtin("shell"), {"command": "ls"}), (builtin("shell_command"), {"command": ["ls"]})],
)
async def test_one_form_is_not_taken_for_the_other(
    scene: MakeScene, tool: Tool, arguments: dict[str, Json]
) -> None:
    with pytest.raises(ToolFailure, match=r"\$\.command: "):
        await run(tool, scene(), **arguments)


RESOURCES = ["list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"]
ALWAYS = [*RESOURCES, "update_plan"]
"""Tools that are offered to every model, in this order, between the shell and the rest."""
FILES = ["grep_files", "read_file", "list_dir"]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(SettingsSource(home=tmp_path, cwd=tmp_path))


def offered(config: Config, model: str = "some-model", *features: str) -> list[str]:
    switched = replace(config, features=config.features.switched(on=features))
    return [tool.name for tool in build_tools(switched, find_model(model), None).offered]


@pytest.mark.parametrize(
    ("model", "tools"),
    [
        ("some-model", ["shell", *ALWAYS, "apply_patch", "view_image"]),
        ("gpt-5", ["shell", *ALWAYS, "view_image"]),
        ("gpt-5.1-codex", ["shell", *ALWAYS, "apply_patch", "view_image"]),
        ("gpt-oss:20b", ["shell", *ALWAYS, "apply_patch", "view_image"]),
        ("codex-mini-latest", ["local_shell", *ALWAYS, "view_image"]),
        ("codex-exp-1", ["shell", *ALWAYS, "apply_patch", *FILES, "view_image"]),
        ("test-gpt-5-codex", ["shell", *ALWAYS, *FILES, "view_image"]),
    ],
)
def test_a_family_has_its_tools_in_order(config: Config, model: str, tools: list[str]) -> None:
    assert offered(config, model) == tools


def test_features_add_tools_and_change_the_shell(config: Config) -> None:
    assert offered(config, "some-model", "unified_exec")[:2] == ["exec_command", "write_stdin"]
    assert offered(config, "codex-mini-latest", "shell_command_tool")[0] == "shell_command"
    assert "read_file" in offered(config, "some-model", "read_file")
    assert "grep_files" not in offered(config, "some-model", "read_file")
    assert "apply_patch" in offered(config, "some-model", "apply_patch_freeform")


def test_settings_take_tools_away_and_add_them(config: Config) -> None:
    switched = config.features.switched(on=["web_search_request"], off=["view_image_tool"])
    tools = offered(replace(config, features=switched))
    assert "view_image" not in tools
    assert tools[-1] == "web_search"


def test_every_habitual_name_of_the_shell_is_answered(config: Config) -> None:
    unified = replace(config, features=config.features.switched(on=["unified_exec"]))
    by_name = build_tools(unified, find_model("some-model"), None).by_name
    assert {"shell", "container.exec", "local_shell", "shell_command", "exec_command"} <= by_name.keys()


def test_what_is_offered_is_known_to_be_ours(config: Config) -> None:
    everything = offered(config, "codex-exp-1", "unified_exec", "web_search_request")
    assert set(everything) <= BUILTIN_NAMES
