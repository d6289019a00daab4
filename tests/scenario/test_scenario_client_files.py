"""`fs/*`: files for the client, outside of any thread."""

import base64
import os
from pathlib import Path

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.world import MakeWorld, World

OFF = "[app_server]\nclient_rights = false\n"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def refusal(w: World, method: str, params: Json) -> tuple[int, str, str]:
    with pytest.raises(Refused) as refused:
        await w.client.call(method, params)
    return refused.value.code, refused.value.data["kind"], refused.value.message


async def test_files_are_written_read_listed_copied_and_removed(world: MakeWorld) -> None:
    async with world(config={"sandbox_mode": "read-only"}) as w:
        call, path = w.client.call, str(w.workspace / "d" / "f")
        assert await call("fs/createDirectory", {"path": str(w.workspace / "d")}) == {}
        assert await call("fs/writeFile", {"path": path, "dataBase64": b64("hello")}) == {}
        assert await call("fs/readFile", {"path": path}) == {"dataBase64": b64("hello")}
        listed = await call("fs/readDirectory", {"path": str(w.workspace / "d")})
        assert listed == {"entries": [{"fileName": "f", "isDirectory": False, "isFile": True}]}
        found = await call("fs/getMetadata", {"path": path})
        assert (found["isFile"], found["createdAtMs"] >= 0, found["modifiedAtMs"] > 0) == (True, True, True)
        copy = {"sourcePath": str(w.workspace / "d"), "destinationPath": str(w.workspace / "e")}
        assert await call("fs/copy", {**copy, "recursive": True}) == {}
        assert await call("fs/remove", {"path": str(w.workspace / "d")}) == {}
        assert [child.name for child in w.workspace.iterdir()] == ["e"]


async def test_requests_about_one_path_keep_their_order(world: MakeWorld) -> None:
    async with world() as w:
        path = str(w.workspace / "f")
        writes = [
            await w.client.send("fs/writeFile", {"path": path, "dataBase64": b64("x" * n)}) for n in range(40)
        ]
        read = await w.client.ask("fs/readFile", {"path": path})
        assert read["result"]["dataBase64"] == b64("x" * 39)
        assert [(await w.client.answer_to(id))["result"] for id in writes] == [{}] * 40


async def test_errors_say_what_is_wrong(world: MakeWorld) -> None:
    async with world(files={"f": "old"}) as w:
        f, absent = str(w.workspace / "f"), str(w.workspace / "absent")
        for method in ("fs/readFile", "fs/getMetadata", "fs/readDirectory"):
            told = await refusal(w, method, {"path": absent})
            assert told == (-32603, "io", "No such file or directory (os error 2)")
        bad = await refusal(w, "fs/writeFile", {"path": f, "dataBase64": "no base64!"})
        assert bad[:2] == (-32600, "invalid_params")
        assert bad[2].startswith("fs/writeFile requires valid base64 dataBase64: ")
        assert Path(f).read_text() == "old"
        relative = await refusal(w, "fs/readFile", {"path": "f"})
        assert "AbsolutePathBuf deserialized without a base path" in relative[2]
        os.mkfifo(w.workspace / "fifo")
        told = await refusal(w, "fs/readFile", {"path": str(w.workspace / "fifo")})
        assert told == (-32600, "not_a_file", f"path `{w.workspace}/fifo` is not a file")


async def test_the_users_configuration_switches_it_off(world: MakeWorld) -> None:
    async with world(tables=OFF, files={"f": "old"}) as w:
        f = str(w.workspace / "f")
        for method, params in (
            ("fs/readFile", {"path": f}),
            ("fs/writeFile", {"path": f, "dataBase64": b64("new")}),
            ("fs/createDirectory", {"path": f"{f}d"}),
            ("fs/getMetadata", {"path": f}),
            ("fs/readDirectory", {"path": str(w.workspace)}),
            ("fs/remove", {"path": f}),
            ("fs/copy", {"sourcePath": f, "destinationPath": f"{f}2"}),
            ("fs/watch", {"path": f, "watchId": "w"}),
        ):
            code, kind, text = await refusal(w, method, params)
            assert (code, kind) == (-32600, "client_rights")
            assert text.startswith(f"{method} is switched off")
        assert [child.name for child in w.workspace.iterdir()] == ["f"]
        assert Path(f).read_text() == "old"


async def test_changes_are_told_until_they_are_not_wanted(world: MakeWorld) -> None:
    async with world() as w:
        path = str(w.workspace)
        assert await w.client.call("fs/watch", {"path": f"{path}/.", "watchId": "w"}) == {"path": path}
        told = await refusal(w, "fs/watch", {"path": path, "watchId": "w"})
        assert told == (-32600, "watch_exists", "watchId already exists: w")
        (w.workspace / "f").write_text("x")
        changed = await w.client.expect("fs/changed")
        assert changed["params"] == {"watchId": "w", "changedPaths": [f"{path}/f"]}
        for _ in range(2):
            assert await w.client.call("fs/unwatch", {"watchId": "w"}) == {}
        seen = len(w.client.received())
        (w.workspace / "g").write_text("x")
        await w.client.call("fs/watch", {"path": f"{path}/h", "watchId": "x"})
        (w.workspace / "h").write_text("x")
        await w.client.expect("fs/changed")
        ids = [m["params"]["watchId"] for m in w.client.received()[seen:] if m.get("method") == "fs/changed"]
        assert set(ids) == {"x"}
