"""Patches that lead out, into fences, or onto what is no file, with nobody to ask and with a user who declines: nothing
outside changes, nothing is half written, nothing hangs.
"""

import os
import socket
from pathlib import Path

import pytest

from tests.faults.rig import Place, conversing
from tests.support.scripted_model import ScriptedModel, patches, reply, says

ABUSES = {
    "traversal": "*** Add File: ../outside/new\n+x",
    "traversal through a file": "*** Add File: kept/../../outside/new\n+x",
    "an absolute path": "*** Add File: {outside}/new\n+x",
    "a sibling of the same name": "*** Add File: {workspace}-evil\n+x",
    "an update outside": "*** Update File: ../outside/file\n@@\n-kept\n+evil",
    "a deletion outside": "*** Delete File: ../outside/file",
    "a move outside": "*** Update File: kept\n*** Move to: ../outside/new\n@@\n-kept\n+evil",
    "one inside, one outside": "*** Update File: kept\n@@\n-kept\n+evil\n*** Add File: ../outside/new\n+x",
    "the server's home": "*** Add File: {home}/planted\n+x",
    "a link to a file": "*** Update File: link\n@@\n-kept\n+evil",
    "a link to a folder": "*** Add File: folder-link/new\n+x",
    "a dangling link": "*** Add File: dangling\n+x",
    "a chain of links": "*** Add File: chain/new\n+x",
    "a deletion beyond a link": "*** Delete File: folder-link/file",
    "a hook": "*** Add File: .git/hooks/pre-commit\n+x",
    "a hook by a move": "*** Update File: kept\n*** Move to: .git/hooks/pre-commit\n@@\n-kept\n+evil",
    "git's settings": "*** Update File: .git/config\n@@\n-[core]\n+[core] fsmonitor = x",
    "our own settings": "*** Add File: .codex/config.toml\n+[mcp_servers.x]",
    "context that is missing": "*** Update File: kept\n@@\n-nothing\n+evil",
    "a second hunk that fails": "*** Update File: kept\n@@\n-kept\n+evil\n@@\n-nothing\n+evil",
    "a second file that fails": "*** Delete File: kept\n*** Update File: absent\n@@\n-a\n+b",
    "a folder": "*** Delete File: folder",
    "a file as a folder": "*** Add File: kept/new\n+x",
    "a pipe": "*** Update File: pipe\n@@\n-a\n+b",
    "a link to a pipe": "*** Update File: pipe-link\n@@\n-a\n+b",
    "a socket": "*** Update File: socket\n@@\n-a\n+b",
    "a device": "*** Update File: /dev/null\n@@\n-a\n+b",
    "an endless device": "*** Update File: /dev/zero\n@@\n-a\n+b",
    "a process": "*** Update File: /proc/self/environ\n@@\n-a\n+b",
    "a NUL": "*** Add File: a\0b\n+x",
    "a long name": "*** Add File: " + "n" * 300 + "\n+x",
    "dots": "*** Add File: ..\n+x",
    "no operation": "*** Chmod File: kept",
    "an addition and a deletion": "*** Add File: new\n+x\n*** Delete File: new",
}


def furnish(place: Place) -> None:
    outside, inside = place.root / "outside", place.workspace
    for folder in (outside, inside / ".git" / "hooks", inside / "folder"):
        folder.mkdir(parents=True)
    for file in (outside / "file", inside / "kept", inside / "folder" / "file"):
        file.write_text("kept\n")
    (inside / ".git" / "config").write_text("[core]\n")
    (inside / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    os.mkfifo(inside / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        before = os.getcwd()
        os.chdir(inside)  # a socket's path is short
        try:
            one.bind("socket")
        finally:
            os.chdir(before)
    links = {
        "link": "../outside/file",
        "folder-link": "../outside",
        "dangling": "../outside/new",
        "first": "../outside",
        "chain": "first",
        "pipe-link": "pipe",
    }
    for name, target in links.items():
        (inside / name).symlink_to(target)


def tree(root: Path) -> dict[str, str]:
    """Every file with its content, every link with its target."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith(("home", "user", "server.log")):
            continue
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = path.read_text() if path.is_file() else "no file"
    return found


@pytest.mark.parametrize("approval", ["never", "on-request"])
async def test_no_patch_leaves_its_place(tmp_path: Path, approval: str) -> None:
    place = Place(tmp_path, approval=approval, sandbox="workspace-write")
    place.settings = "[sandbox_workspace_write]\nexclude_tmpdir_env_var = true\nexclude_slash_tmp = true\n"
    furnish(place)
    names = {
        "outside": str(tmp_path / "outside"),
        "workspace": str(place.workspace),
        "home": str(place.home),
    }
    calls = []
    for n, abuse in enumerate(ABUSES.values()):
        text = abuse.replace("{outside}", names["outside"])
        text = text.replace("{workspace}", names["workspace"]).replace("{home}", names["home"])
        calls.append(patches(f"*** Begin Patch\n{text}\n*** End Patch", f"abuse-{n}"))
    good = "*** Begin Patch\n*** Add File: good\n+good\n*** End Patch"
    model = ScriptedModel([reply(*calls, patches(good, "good")), reply(says("done"))])
    before = tree(tmp_path)
    async with conversing(place, model) as server:
        server.client.decide("applyPatchApproval", "denied")
        server.client.decide("execCommandApproval", "denied")
        conversation = await server.open()
        assert (await server.client.turn(conversation)).last_message == "done"
        asked = [m for m in server.client.received() if m.get("method") == "applyPatchApproval"]
        assert bool(asked) == (approval == "on-request")
    after = tree(tmp_path)
    assert after.pop("workspace/good") == "good\n"
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == set()
    assert not (place.home / "planted").exists()
    outputs = model.requests[1].outputs()
    assert len(outputs) == len(ABUSES) + 1
