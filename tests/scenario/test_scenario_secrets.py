"""The server reads for nobody what commands may not read: its credentials reach no model, client or transcript."""

import json
import os
from pathlib import Path

import pytest

from tests.support.editor import Editor
from tests.support.scripted_model import patches, reply, says
from tests.support.thread_client import say, start
from tests.support.world import MakeWorld, World

CANARY = "sk-canary-0123456789"
CREDENTIALS = ("auth.json", ".credentials.json")
API = ("v1", "v2", "acp")
CONFINED = {"sandbox_mode": "workspace-write", "approval_policy": "never"}


def plant(w: World) -> None:
    if (w.workspace / "link").is_symlink():
        return
    for name in CREDENTIALS:
        (w.home / name).write_text(f'{{"OPENAI_API_KEY": "{CANARY}"}}\n')
    (w.workspace / "link").symlink_to(w.home / "auth.json")
    (w.workspace / "folder").symlink_to(w.home)
    os.link(w.home / "auth.json", w.workspace / "hard")


async def talk(w: World, api: str) -> None:
    """One turn over an API; whoever is asked declines."""
    match api:
        case "v1":
            w.client.decide("applyPatchApproval", {"decision": "denied"})
            await w.client.turn(await w.open())
        case "v2":
            w.client.decide("item/fileChange/requestApproval", {"decision": "decline"})
            await say(w.client, await start(w.client, cwd=str(w.workspace)))
        case _:
            editor = Editor(w)
            await editor.start()
            editor.permit("reject_once")
            await editor.ends(await editor.session())


def told(w: World) -> str:
    """Everything that the model and the client received, and that was stored."""
    stored = [path.read_text() for path in (w.home / "sessions").rglob("*") if path.is_file()]
    return json.dumps([[each.body for each in w.model.requests], w.client.received(), stored])


@pytest.mark.parametrize("api", API)
@pytest.mark.parametrize("policy", ["never", "on-request", "untrusted"])
@pytest.mark.parametrize(
    "change",
    [
        "*** Delete File: {home}/auth.json",
        "*** Delete File: {home}/.credentials.json",
        "*** Delete File: link",
        "*** Delete File: folder/auth.json",
        "*** Delete File: hard",
        "*** Update File: {home}/auth.json\n*** Move to: moved\n@@\n-{{\n+x",
        "*** Add File: {home}/auth.json\n+x",
    ],
)
async def test_a_patch_shows_no_credentials(
    world: MakeWorld, tmp_path: Path, api: str, policy: str, change: str
) -> None:
    text = f"*** Begin Patch\n{change.format(home=tmp_path / 'home')}\n*** End Patch"
    replies, config = (reply(patches(text)), reply(says("ok"))), CONFINED | {"approval_policy": policy}
    async with world(*replies, config=config, acp=api == "acp", before=plant) as w:
        await talk(w, api)
        assert CANARY not in told(w)
        assert CANARY in (w.home / "auth.json").read_text()


@pytest.mark.parametrize("policy", ["never", "on-request"])
@pytest.mark.parametrize("name", ["{home}/auth.json", "link", "hard"])
async def test_hunks_do_not_tell_what_credentials_are(
    world: MakeWorld, tmp_path: Path, policy: str, name: str
) -> None:
    said = set()
    for guess in (f'{{"OPENAI_API_KEY": "{CANARY}"}}', "wrong"):
        change = f"*** Update File: {name.format(home=tmp_path / 'home')}\n@@\n-{guess}\n+x"
        replies = reply(patches(f"*** Begin Patch\n{change}\n*** End Patch")), reply(says("ok"))
        async with world(*replies, config=CONFINED | {"approval_policy": policy}, before=plant) as w:
            await talk(w, "v1")
            said.add(json.dumps(w.model.requests[1].body["input"][-1]))
    assert len(said) == 1
