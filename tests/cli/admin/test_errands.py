"""Logins, stored threads, MCP servers and settings on the command line, as users and scripts use them."""

import json
import os
import re
import shutil
import subprocess
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.docs.markdown_blocks import ROOT, Block, blocks
from tests.engine.auth.oauth_issuer import scripted_issuer
from tests.engine.auth.test_accounts import browse
from tests.support.library import serving_model
from tests.support.program import BIN, SCRIPT
from tests.support.protected_mcp_server import protected_mcp_server
from tests.support.scripted_model import Reply, ScriptedModel, patches, reply, says, script
from tests.support.terminal import Terminal
from tests.support.waiting import until
from tests.support.world import PATH, WHOLE_SCENARIO, make_folders

pytestmark = pytest.mark.process

DOCUMENTED = [
    block
    for block in blocks(ROOT / "docs" / "command-line.md")
    if block.mark == "run by tests/cli/admin/test_errands.py"
]
KEY = "sk-of-the-user-0123456789"
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch"


@dataclass(frozen=True, slots=True)
class Place:
    root: Path
    environment: Mapping[str, str]

    @property
    def config(self) -> Path:
        return self.root / "home" / "config.toml"

    async def run(self, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command line of `app-server`."""
        done = await anyio.run_process(
            (SCRIPT, *words),
            input=stdin.encode(),
            check=False,
            env={**self.environment, **environment},
            cwd=self.root / "workspace",
        )
        return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())

    def terminal(self, *words: str, **environment: str) -> Terminal:
        return Terminal(columns=120).start(
            (SCRIPT, *words), environment={**self.environment, **environment}, cwd=self.root / "workspace"
        )


@asynccontextmanager
async def place_in(root: Path, *replies: Reply, tables: str = "") -> AsyncIterator[Place]:
    make_folders(root)
    with anyio.fail_after(WHOLE_SCENARIO):
        async with serving_model(ScriptedModel(list(replies)), root, {}, tables) as environment:
            yield Place(root, {**environment, "PATH": f"{BIN}:{PATH}"})


# --- threads


async def test_a_stored_thread_is_found_named_exported_archived_and_deleted(tmp_path: Path) -> None:
    replies = (
        reply(says("Let me look."), script("echo '```'; exit 3")),
        reply(patches(PATCH, "c2")),
        reply(says("Done.")),
    )
    async with place_in(tmp_path, *replies) as place:
        none = await place.run("threads", "list")
        assert (none.returncode, none.stdout, none.stderr) == (0, "", "no stored threads\n")
        assert (await place.run("exec", "What is here?")).stdout == "Done.\n"

        listed = await place.run("threads", "list", "--here", "--search", "What is")
        id, time, folder, words = listed.stdout.rstrip("\n").split("\t")
        assert (folder, words) == (str(tmp_path / "workspace"), "What is here?")
        assert time.endswith("Z")
        assert json.loads((await place.run("threads", "list", "--json")).stdout)[0]["id"] == id
        assert (await place.run("threads", "list", "--search", "nothing like it")).stdout == ""

        assert (await place.run("threads", "rename", id, "the look")).returncode == 0
        shown = await place.run("threads", "show", "the look")
        assert f"id        {id}\nname      the look\nbegins    What is here?\n" in shown.stdout

        exported = await place.run("threads", "export", "the look")
        assert exported.stdout.startswith(f"# the look\n\n- id: {id}\n")
        blocks = ("## User\n\nWhat is here?\n\n## Assistant\n\nLet me look.\n", "\n## Assistant\n\nDone.\n")
        assert all(block in exported.stdout for block in blocks), exported.stdout
        assert "(exit 3):\n\n````console\n$ sh -c " in exported.stdout
        assert re.search("exit 3.\n```\n````\n", exported.stdout)
        assert "new.txt` (add, completed):\n\n```diff\n" in exported.stdout
        victim = tmp_path / "victim"
        victim.write_text("mine")
        (tmp_path / "workspace" / "out.json").symlink_to(victim)
        await place.run("threads", "export", "--format", "json", "-o", "out.json", id)
        assert victim.read_text() == "mine"
        out = tmp_path / "workspace" / "out.json"
        assert (out.is_symlink(), out.stat().st_mode & 0o777) == (False, 0o600)
        turn = json.loads((tmp_path / "workspace" / "out.json").read_text())["turns"][0]
        assert [item["type"] for item in turn["items"]][-2:] == ["fileChange", "agentMessage"]

        assert (await place.run("threads", "archive", "the look")).returncode == 0
        assert (await place.run("threads", "list")).stdout == ""
        assert id in (await place.run("threads", "list", "--archived")).stdout
        assert (await place.run("threads", "unarchive", "the look")).returncode == 0

        refused = await place.run("threads", "delete", "the look")
        assert (refused.returncode, refused.stderr.splitlines()[-1]) == (2, "→ add --yes")
        assert (await place.run("threads", "delete", "--yes", "the look")).returncode == 0
        gone = await place.run("threads", "show", "the look")
        assert (gone.returncode, gone.stdout) == (1, "")
        assert gone.stderr == (
            "app-server threads show: there is no thread 'the look'\n"
            "→ `app-server threads list` shows their ids and names\n"
        )


async def test_a_stored_thread_goes_back_to_a_message_with_its_files(tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(patches(PATCH)), reply(says("Done."))) as place:
        done = await place.run("exec", "--skip-git-repo-check", "-s", "workspace-write", "Make it.")
        made = tmp_path / "workspace" / "new.txt"
        assert (done.returncode, made.read_text()) == (0, "one\n"), done.stderr
        id = (await place.run("threads", "list")).stdout.split("\t")[0]
        listed = await place.run("threads", "rewind", id)
        assert "1 files  Make it." in listed.stdout

        shown = await place.run("threads", "rewind", id, "--to", "1")
        assert "1 file deleted; 1 turns leave the conversation\n" in shown.stdout
        assert "nothing was done; `--yes` does it" in shown.stderr
        assert made.exists()
        gone = await place.run("threads", "rewind", id, "--to", "1", "--yes")
        assert (gone.returncode, made.exists()) == (0, False), gone.stderr
        undo = gone.stderr.split("--to ")[1].split()[0]
        back = await place.run("threads", "rewind", id, "--to", undo, "--restore", "files", "--yes")
        assert (back.returncode, made.read_text()) == (0, "one\n"), back.stderr
        doctor = (await place.run("doctor", "--json")).stdout
        found = [check["found"] for check in json.loads(doctor)["checks"] if check["name"] == "checkpoints"]
        assert found == ["1 thread, 0 MiB; beyond 1,024 MiB those of the oldest threads go"]
        wrong = await place.run("threads", "rewind", id, "--to", "7")
        assert (wrong.returncode, "there is no message 7" in wrong.stderr) == (1, True)


async def test_a_name_of_two_threads_names_none(tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(says("a")), reply(says("b"))) as place:
        for prompt in ("one", "two"):
            await place.run("exec", prompt)
        ids = [line.split("\t")[0] for line in (await place.run("threads", "list")).stdout.splitlines()]
        for id in ids:
            await place.run("threads", "rename", id, "same")
        done = await place.run("threads", "archive", "same")
        assert (done.returncode, len(ids)) == (1, 2)
        assert "2 threads have the name 'same'" in done.stderr
        assert all(id in done.stderr for id in ids)
        assert len((await place.run("threads", "list", "--limit", "1")).stdout.splitlines()) == 1


async def test_deleting_is_asked_about_at_a_terminal(tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(says("a"))) as place:
        await place.run("exec", "keep me?")
        id = (await place.run("threads", "list")).stdout.split("\t")[0]
        for answer, status in (("n", 1), ("y", 0)):
            with place.terminal("threads", "delete", id) as terminal:
                terminal.wait_for(f"Delete {id} for ever? [y/N]")
                terminal.say(answer)
                assert terminal.wait_for_end() == status
            assert ((await place.run("threads", "list")).stdout == "") is (answer == "y")


async def test_a_list_fits_the_terminal(tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(says("a"))) as place:
        await place.run("exec", "long \x1b[2J words " * 20)
        with place.terminal("threads", "list") as terminal:
            assert terminal.wait_for_end() == 0
            [line] = terminal.wait_for("…").strip().splitlines()
        assert (len(line), line[-1]) == (120, "…")


async def test_a_terminal_is_not_driven_by_what_is_exported(tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(says("a\x9b2Jb"))) as place:
        await place.run("exec", "hi")
        id = (await place.run("threads", "list")).stdout.split("\t")[0]
        for form in ("markdown", "json"):
            with place.terminal("threads", "export", "--format", form, id) as terminal:
                assert terminal.wait_for_end() == 0
                assert "a\ufffd2Jb" in terminal.wait_for("2Jb")


# --- settings


async def test_settings_are_shown_written_and_removed(tmp_path: Path) -> None:
    async with place_in(tmp_path, tables="# a comment\n") as place:
        assert (await place.run("config", "path")).stdout == f"{place.config}\n"
        assert (await place.run("config", "get", "model")).stdout == "scripted\n"
        wrote = await place.run("config", "set", "profiles.fast.model_reasoning_effort", "low")
        assert (wrote.returncode, wrote.stderr.split(" in ")[0]) == (
            0,
            "wrote profiles.fast.model_reasoning_effort",
        )
        assert "# a comment" in place.config.read_text()
        everything = (await place.run("config", "get")).stdout.splitlines()
        assert {'model = "scripted"', 'profiles.fast.model_reasoning_effort = "low"'} <= set(everything)
        fast = await place.run("config", "get", "profiles.fast")
        assert fast.stdout == 'profiles.fast.model_reasoning_effort = "low"\n'
        assert json.loads((await place.run("config", "get", "--json", "profiles")).stdout) == {
            "fast": {"model_reasoning_effort": "low"}
        }
        assert (await place.run("config", "unset", "profiles.fast")).returncode == 0
        gone = await place.run("config", "get", "profiles.fast")
        assert (gone.returncode, gone.stdout) == (1, "")


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("modle", "x", "unknown setting `modle`; did you mean `model`?"),
        ("features.view_image_tol", "true", "did you mean `view_image_tool`?"),
        ("sandbox_mode", "open", "`sandbox_mode` must be one of"),
        ("model_provider", "nobody", "Model provider `nobody` not found"),
        ("a..b", "1", "is not a key"),
        ("app_server.client_rights", "true", "only the user changes it"),
    ],
)
async def test_what_no_thread_could_begin_with_is_not_written(
    key: str, value: str, problem: str, tmp_path: Path
) -> None:
    async with place_in(tmp_path) as place:
        before = place.config.read_bytes()
        done = await place.run("config", "set", key, value)
        assert done.returncode == 1
        assert done.stderr.startswith("app-server config set: ")
        assert problem in done.stderr
        assert place.config.read_bytes() == before


async def test_a_draft_takes_the_place_of_the_settings_once_it_can_be_used(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        place.config.chmod(0o640)
        before = place.config.read_text()
        done = await place.run("config", "edit", EDITOR="true")
        assert (done.returncode, done.stderr) == (0, "nothing was changed\n")
        done = await place.run("config", "edit", EDITOR="sed -i s/^model.=.*/modle=1/")
        assert (done.returncode, "did you mean `model`" in done.stderr) == (0, True), done.stderr
        assert place.config.read_text() == before.replace('model = "scripted"', "modle=1")
        assert place.config.stat().st_mode & 0o777 == 0o640
        kept = place.config.read_text()
        done = await place.run("config", "edit", EDITOR="sed -i s/^sandbox_mode.*/sandbox_mode=7/")
        assert done.returncode == 1
        assert "`sandbox_mode` must be" in done.stderr
        assert place.config.read_text() == kept
        draft = Path(done.stderr.rstrip().rpartition(" ")[2])
        assert "sandbox_mode=7" in draft.read_text()
        assert draft.is_relative_to(tmp_path / "home")  # no command can change it there
        done = await place.run("config", "edit", EDITOR="no-such-editor")
        assert (done.returncode, "no-such-editor" in done.stderr) == (1, True)


async def test_a_draft_may_name_files_of_the_home(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        (tmp_path / "home" / "mine.md").write_text("Be brief.")
        editor = "sed -i '1i model_instructions_file = \"mine.md\"'"
        done = await place.run("config", "edit", EDITOR=editor)
        assert (done.returncode, done.stderr) == (0, f"wrote {place.config}\n")


async def test_settings_that_are_no_file_are_told_and_not_waited_for(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        place.config.unlink()
        os.mkfifo(place.config)
        done = await place.run("config", "edit", EDITOR="true")
        assert (done.returncode, "it is a FIFO" in done.stderr) == (1, True)


async def test_at_a_terminal_a_draft_is_edited_again(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        editor = tmp_path / "editor"
        again = tmp_path / "again"
        spoil = f"sed -i s/^sandbox_mode.*/sandbox_mode=7/ $1; touch {again}"
        editor.write_text(f"#!/bin/sh\nif [ -e {again} ]; then sed -i /=7/d $1; else {spoil}; fi\n")
        editor.chmod(0o755)
        with place.terminal("config", "edit", EDITOR=str(editor)) as terminal:
            terminal.wait_for("Edit it again? [y/N]")
            terminal.say("y")
            assert terminal.wait_for_end() == 0
            terminal.wait_for("wrote ")
        assert "sandbox_mode" not in place.config.read_text()


# --- MCP servers


async def test_mcp_servers_are_added_listed_and_removed(tmp_path: Path) -> None:
    server = Path(__file__).parents[2] / "support" / "mcp_server.py"
    async with place_in(tmp_path) as place:
        added = await place.run(
            "mcp", "add", "a-b", "--env", "TOKEN=secret-1", "--", "python3", "-I", str(server)
        )
        assert added.returncode == 0, added.stderr
        assert "[mcp_servers.a-b]" in place.config.read_text()
        twice = await place.run("mcp", "add", "a-b", "--url", "https://example.org")
        assert (twice.returncode, "there is an MCP server 'a-b' already" in twice.stderr) == (1, True)
        await place.run(
            "mcp", "add", "docs", "--url", "https://example.org/mcp", "--bearer-token-env-var", "T"
        )
        listed = await place.run("mcp", "list")
        assert [line.split() for line in listed.stdout.splitlines()] == [
            ["a-b", "python3", "-I", str(server)],
            ["docs", "https://example.org/mcp"],
        ]
        as_json = await place.run("mcp", "list", "--json")
        shown = {each["name"]: each for each in json.loads(as_json.stdout)}
        assert (shown["docs"]["transport"]["bearer_token_env_var"], shown["docs"]["enabled"]) == ("T", True)
        assert (shown["a-b"]["transport"]["command"], shown["a-b"]["auth_status"]) == (
            "python3",
            "unsupported",
        )
        assert "secret-1" not in as_json.stdout
        assert (await place.run("mcp", "remove", "docs")).returncode == 0
        started = await place.run("mcp", "list", "--start")
        assert "echo" in started.stdout.splitlines()[1], started.stdout
        assert (await place.run("mcp", "remove", "a-b")).returncode == 0
        gone = await place.run("mcp", "remove", "a-b")
        assert json.loads((await place.run("mcp", "list", "--json")).stdout) == []
        assert (gone.returncode, gone.stderr) == (
            1,
            "app-server mcp remove: there is no MCP server 'a-b'\n→ `app-server mcp list` shows which there are\n",
        )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("x",), "expected either --url URL or -- COMMAND [ARG...]"),
        (("x", "--url", "https://a.example", "--", "sh"), "expected either --url URL or -- COMMAND [ARG...]"),
        (("a.b", "--", "sh"), "NAME: expected letters, digits, hyphens and underscores, got 'a.b'"),
        (("x", "--", "no-such-program"), "there is no program 'no-such-program'"),
        (
            ("x", "--url", "https://a.example", "--env", "A=1"),
            "--env is for servers that are started by a command",
        ),
        (
            ("x", "--bearer-token-env-var", "T", "--", "sh"),
            "--bearer-token-env-var is for servers with --url",
        ),
    ],
)
async def test_what_is_no_mcp_server_is_not_added(
    words: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    async with place_in(tmp_path) as place:
        before = place.config.read_bytes()
        done = await place.run("mcp", "add", *words)
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"app-server mcp add: {problem}")
        assert place.config.read_bytes() == before


# --- logins

NEEDS_LOGIN = "requires_openai_auth = true"


async def test_a_key_from_stdin_is_stored_used_and_forgotten(tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(says("a")), tables=NEEDS_LOGIN) as place:
        nobody = await place.run("login", "status")
        assert (nobody.returncode, nobody.stderr.splitlines()[0]) == (
            1,
            "app-server login status: Not logged in",
        )
        done = await place.run("login", "--with-api-key", stdin=f"{KEY}\n")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "Logged in\n")
        status = await place.run("login", "status")
        assert (status.returncode, status.stderr) == (0, "Logged in using an API key\n")
        assert (await place.run("exec", "hi")).stdout == "a\n"
        assert (await place.run("logout")).stderr == "Logged out\n"
        assert (await place.run("login", "status")).returncode == 1
        for wrong in ("", "two words", "k\u00e9y", "x" * 10_001):
            refused = await place.run("login", "--with-api-key", stdin=wrong)
            assert (refused.returncode, wrong in refused.stderr) == (2, wrong == ""), refused.stderr


async def test_a_key_that_is_typed_is_not_shown(tmp_path: Path) -> None:
    async with place_in(tmp_path, tables=NEEDS_LOGIN) as place:
        with place.terminal("login", "--with-api-key") as terminal:
            terminal.wait_for("API key (it is not shown):")
            terminal.say(KEY)
            terminal.wait_for("Logged in")
            assert terminal.wait_for_end() == 0
            assert KEY not in terminal.text
        assert KEY in (tmp_path / "home" / "auth.json").read_text()
        with place.terminal("login", "--with-api-key") as terminal:
            terminal.wait_for("API key (it is not shown):")
            assert not termios.tcgetattr(terminal.inner)[3] & termios.ECHO
            terminal.press("\x03")
            assert terminal.wait_for_end() == 130
            assert termios.tcgetattr(terminal.inner)[3] & termios.ECHO


async def test_without_a_key_a_turn_fails_at_once_and_names_the_command(tmp_path: Path) -> None:
    async with place_in(tmp_path, tables=NEEDS_LOGIN) as place:
        done = await place.run("exec", "hi")
        assert (done.returncode, "log in: `app-server login`" in done.stderr) == (1, True), done.stderr
        assert "retrying" not in done.stderr


async def test_a_provider_without_logins_says_where_its_key_is(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        done = await place.run("login", "--with-api-key", stdin=KEY)
        assert (done.returncode, done.stderr.splitlines()[0]) == (
            1,
            "app-server login: the provider `scripted` needs no login",
        )


async def test_a_browser_logs_in(tmp_path: Path) -> None:
    with scripted_issuer() as issuer:
        async with place_in(tmp_path, tables=NEEDS_LOGIN) as place:
            url = tmp_path / "url"
            browser = tmp_path / "browser"
            browser.write_text(f'#!/bin/sh\nprintf %s "$1" >{url}.new; mv {url}.new {url}\n')
            browser.chmod(0o755)
            more = {"APP_SERVER_AUTH_ISSUER": issuer.url, "BROWSER": f"{browser} %s"}
            with place.terminal("login", **more) as terminal:
                terminal.wait_for("Open this page to log in")
                await until(url.exists)
                assert await browse(url.read_text(), code="code-1") == 200
                assert await anyio.to_thread.run_sync(terminal.wait_for_end) == 0
                terminal.wait_for("Logged in")
            assert (await place.run("login", "status")).stderr == "Logged in using ChatGPT\n"


async def test_a_code_logs_in_from_elsewhere(tmp_path: Path) -> None:
    with scripted_issuer() as issuer:
        async with place_in(tmp_path, tables=NEEDS_LOGIN) as place:
            done = await place.run("login", "--device-auth", APP_SERVER_AUTH_ISSUER=issuer.url)
            assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "Logged in"), done.stderr
            assert "\n  ABCD-1234\n" in done.stderr
            issuer.device = (404, {})
            refused = await place.run("login", "--device-auth", APP_SERVER_AUTH_ISSUER=issuer.url)
            assert (refused.returncode, refused.stderr.startswith("app-server login: ")) == (1, True)


async def test_an_address_that_is_copied_from_another_browser_logs_in(tmp_path: Path) -> None:
    with protected_mcp_server() as remote:
        tables = f'[mcp_servers.docs]\nurl = "{remote.mcp_url}"\n'
        async with (
            place_in(tmp_path, tables=tables) as place,
            await anyio.open_process(
                (SCRIPT, "mcp", "login", "docs", "--no-browser"),
                env={**place.environment, "NO_PROXY": "127.0.0.1"},
                cwd=place.root / "workspace",
            ) as process,
        ):
            assert process.stderr is not None
            assert process.stdin is not None
            said = ""

            async def wait_for(text: str) -> None:
                nonlocal said
                while text not in said:
                    said += (await process.stderr.receive()).decode() if process.stderr else ""

            await wait_for("press Enter.")
            (address,) = re.findall(r"^  (http\S+)$", said, re.MULTILINE)
            other = remote.browser(address).replace("/auth/callback", "/other")
            for line, answer in (
                ("no address", "expected an address that begins with http://127.0.0.1:"),
                (other, "expected an address"),
                (remote.browser(address, state="x"), "belongs to another login (state mismatch)"),
            ):
                said = ""
                await process.stdin.send(f"{line}\n".encode())
                await wait_for(answer)
            await process.stdin.send(f"  {remote.browser(address)}\n".encode())
            await wait_for("Logged in at docs")
            assert await process.wait() == 0
            assert remote.good_tokens == {"secret-access-1"}


async def test_a_login_elsewhere_goes_on_where_nothing_can_be_read(tmp_path: Path) -> None:
    with protected_mcp_server() as remote:
        tables = f'[mcp_servers.docs]\nurl = "{remote.mcp_url}"\n'
        async with place_in(tmp_path, tables=tables) as place:
            command = (SCRIPT, "mcp", "login", "docs", "--no-browser")
            env = {**place.environment, "NO_PROXY": "127.0.0.1"}
            async with await anyio.open_process(
                command, stdin=subprocess.DEVNULL, env=env, cwd=place.root / "workspace"
            ) as process:
                assert process.stderr is not None
                said = ""
                while "press Enter." not in said:
                    said += (await process.stderr.receive()).decode()
                (address,) = re.findall(r"^  (http\S+)$", said, re.MULTILINE)
                assert await visited(remote.browser(address)) == 200
                assert await process.wait() == 0


async def visited(url: str) -> int:
    async with httpx2.AsyncClient(trust_env=False) as browser:
        return (await browser.get(url)).status_code


async def test_ctrl_c_gives_a_login_up(tmp_path: Path) -> None:
    with scripted_issuer() as issuer:
        async with place_in(tmp_path, tables=NEEDS_LOGIN) as place:
            with place.terminal("login", "--no-browser", APP_SERVER_AUTH_ISSUER=issuer.url) as terminal:
                terminal.wait_for("Open this page to log in")
                terminal.press("\x03")
                assert terminal.wait_for_end() == 130
            assert (await place.run("login", "status")).returncode == 1


# --- docs/command-line.md


@pytest.mark.parametrize("block", DOCUMENTED, ids=str)
async def test_the_commands_of_the_documentation_run_as_they_stand(block: Block, tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(says("a")), tables=NEEDS_LOGIN) as place:
        await place.run("login", "--with-api-key", stdin=KEY)
        await place.run("exec", "hi")
        done = await anyio.run_process(
            ("sh", "-exc", block.text),
            check=False,
            env={**place.environment, "OPENAI_API_KEY": KEY},
            cwd=tmp_path / "workspace",
        )
    assert done.returncode == 0, done.stderr.decode()


async def test_the_status_of_a_login_knows_keys_of_the_environment_and_of_other_providers(
    tmp_path: Path,
) -> None:
    async with place_in(tmp_path / "a", tables=NEEDS_LOGIN) as place:
        status = await place.run("login", "status", OPENAI_API_KEY=KEY)
        assert (status.returncode, status.stderr) == (0, "Logged in using an API key\n")
        status = await place.run("login", "status")
        assert (status.returncode, "Not logged in" in status.stderr) == (1, True)
        claim = (
            'model_providers.own={name = "Own", base_url = "http://127.0.0.1:9", env_key = "OPENAI_API_KEY"}'
        )
        status = await place.run("login", "status", "-c", claim, OPENAI_API_KEY=KEY)
        assert (status.returncode, "Not logged in" in status.stderr) == (1, True)
    async with place_in(tmp_path / "b", tables='env_key = "DESK_KEY"') as place:
        status = await place.run("login", "status")
        assert status.returncode == 1
        assert "the key of the provider `scripted` is missing\n→ set DESK_KEY" in status.stderr
        status = await place.run("login", "status", DESK_KEY=KEY)
        assert (status.returncode, "its key is in DESK_KEY" in status.stderr) == (0, True)


async def test_a_configuration_that_cannot_be_used_is_told_once(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        done = await place.run("exec", "-p", "nope", "hi")
        assert done.stderr.count("not found") == 1
        assert "none is configured" in done.stderr


async def test_facts_for_other_programs(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        listed = (await place.run("features", "list", "--enable", "grep_files")).stdout.splitlines()
        found = {line.split()[0]: line.split()[-1] for line in listed}
        assert (found["grep_files"], found["read_file"]) == ("true", "false")
        shown = json.loads((await place.run("debug", "models")).stdout)["models"]
        assert shown
        assert all({"slug", "context_window", "max_context_window"} <= each.keys() for each in shown)
        bundled = (await place.run("debug", "models", "--bundled")).stdout
        rows = {each["slug"]: each for each in json.loads(bundled)["models"]}
        assert rows["gpt-6.2-sol"]["service_tiers"][0]["id"] == "priority"
        assert rows["gpt-6.2-sol"]["supported_reasoning_levels"][0]["effort"] == "low"
        (place.root / "mine.json").write_text(bundled)
        setting = f"model_catalog_json={json.dumps(str(place.root / 'mine.json'))}"
        own = (await place.run("debug", "models", "-c", setting)).stdout
        assert json.loads(own)["models"] == shown


async def test_a_command_runs_in_the_sandbox_with_its_own_streams(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        done = await place.run("sandbox", "--", "sh", "-c", "cat; echo seen >&2; exit 3", stdin="given\n")
        assert (done.returncode, done.stdout, done.stderr) == (3, "given\n", "seen\n")
        outside = place.root / "outside"
        refused = await place.run("sandbox", "-P", ":read-only", "--", "touch", str(outside))
        assert refused.returncode != 0
        assert not outside.exists()
        unnamed = await place.run("sandbox")
        assert unnamed.returncode == 2
        assert "no command is named" in unnamed.stderr


async def test_threads_of_codex_are_listed_shown_exported_archived_and_gone_on_with(tmp_path: Path) -> None:
    async with place_in(tmp_path, reply(says("by id")), reply(says("by last"))) as place:
        day = tmp_path / "home" / "sessions" / "2026" / "11" / "28"
        shutil.copytree(ROOT / "tests" / "data" / "codex-0.171", day)
        (last,) = day.glob("*T15-35-58-*")
        of_here = last.read_text().replace("/work/project", str(tmp_path / "workspace"))
        last.write_text(of_here.replace('"model_provider":"mock"', '"model_provider":"scripted"'))
        (second,) = day.glob("*_*")
        id = second.name[28:64]

        listed = (await place.run("threads", "list")).stdout.splitlines()
        assert [line.split("\t")[2:] for line in listed if line.startswith(id)] == [
            ["/work/project", "first words"]
        ]
        assert len(listed) == 5, "all but the one that worked for another"
        assert "begins    first words\n" in (await place.run("threads", "show", id)).stdout
        exported = (await place.run("threads", "export", id)).stdout
        for words in ("first words", "second answer", "failing words", "after revert", "answer after revert"):
            assert f"\n\n{words}\n" in exported
        assert "new.txt` (add, completed)" in exported

        assert (await place.run("threads", "archive", id)).returncode == 0
        assert sorted(day.glob(f"*{id}*")) == []
        assert (await place.run("threads", "unarchive", id)).returncode == 0
        assert len(sorted(day.glob(f"*{id}*"))) == 2
        refused = await place.run("threads", "delete", "--yes", id)
        assert refused.returncode == 1
        assert "goes on from it" in refused.stderr

        assert (await place.run("exec", "resume", id, "go on")).stdout == "by id\n"
        done = await place.run("exec", "resume", "--last", "go on")
        assert (done.stdout, done.returncode) == ("by last\n", 0), done.stderr
        assert "by id" in second.read_text()
        assert "by last" in last.read_text()
