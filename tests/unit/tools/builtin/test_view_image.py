"""`view_image`: reads with the rights of a command, in bounded time and memory."""

import base64
import os
import sys
from pathlib import Path

import anyio
import pytest

from app_server.core.context.images import MAX_IMAGE_BYTES
from app_server.core.pictures import BROKEN
from app_server.core.tools.builtin.reading import ViewImageTool
from app_server.core.tools.contract import ToolCall, ToolFailure
from protocol.policy import ReadOnly
from protocol.responses import InputImage, MessageItem
from tests.support.pictures import png
from tests.unit.tools.builtin.conftest import MakeLive, run

PNG = png() + bytes(range(256)) * 8192
"""Larger than what is kept of a command's output."""


async def test_an_image_is_attached_whole(live: MakeLive) -> None:
    scene = live()
    (scene.ws / "a.png").write_bytes(PNG)
    call = ToolCall("c1", "view_image", '{"path": "a.png", "detail": "high"}')
    output = await ViewImageTool().invoke(call, scene.turn)
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
        await run(ViewImageTool(), scene, path=str(secret))
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
        await run(ViewImageTool(), scene, path=name)
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
