"""What goes into a turn and comes out of it beside text: images, and structured output."""

import os
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from app_server.client import InvalidArgument, OutputInvalid, TurnFailed, image
from app_server.client.output_schema import strict
from protocol.v2.item_parts import ImageUserInput, LocalImageUserInput
from tests.support.library import MakeLibraryWorld
from tests.support.pictures import PNG
from tests.support.scripted_model import failure, reply, says


class Part(BaseModel):
    name: str
    weight: float | None = None


class Machine(BaseModel):
    kind: Literal["pump", "fan"]
    parts: list[Part] = []


async def test_a_model_goes_in_and_an_instance_comes_out(library: MakeLibraryWorld) -> None:
    answer = '{"kind": "fan", "parts": [{"name": "blade", "weight": 1.5}]}'
    async with library(reply(says(answer)), reply(says("Of course."))) as w:
        thread = await w.server.start_thread()
        result = await thread.run("What is it?", output=Machine)
        assert result.output == Machine(kind="fan", parts=[Part(name="blade", weight=1.5)])
        sent = w.model.requests[0].body["text"]["format"]
        assert (sent["type"], sent["strict"]) == ("json_schema", True)
        assert sent["schema"]["required"] == ["kind", "parts"]
        assert sent["schema"]["$defs"]["Part"]["additionalProperties"] is False
        await thread.run("And without?")
        assert "format" not in w.model.requests[1].body.get("text", {})


async def test_without_an_answer_that_fits_there_is_no_output(library: MakeLibraryWorld) -> None:
    wrong = ["It is a fan.", '{"kind": "boat", "parts": []}', ""]
    replies = [*(reply(says(text)) for text in wrong), failure(400, {"error": {"message": "no such thing"}})]
    async with library(*replies) as w:
        thread = await w.server.start_thread()
        for _ in wrong:
            result = await thread.run("What is it?", output=Machine)
            assert result.completed
            with pytest.raises(OutputInvalid):
                _ = result.output
        failed = await thread.run("What is it?", output=Machine)
        with pytest.raises(TurnFailed, match="no such thing"):
            _ = failed.output


async def test_a_json_schema_gives_plain_json(library: MakeLibraryWorld) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    async with library(*(reply(says(text)) for text in ('{"n": null}', "null", "none", "text"))) as w:
        thread = await w.server.start_thread()
        assert (await thread.run("n?", output=schema)).output == {"n": None}
        assert w.model.requests[0].body["text"]["format"]["schema"] == schema
        assert (await thread.run("n?", output=schema)).output is None
        for result in (await thread.run("n?", output=schema), await thread.run("n?")):
            with pytest.raises(OutputInvalid):
                _ = result.output


def test_a_strict_schema_requires_everything_and_allows_nothing_else() -> None:
    made = strict(Machine.model_json_schema())
    assert made["properties"]["parts"] == {
        "items": {"$ref": "#/$defs/Part"},
        "title": "Parts",
        "type": "array",
    }
    assert made["$defs"]["Part"]["required"] == ["name", "weight"]
    named_default = {"type": "object", "properties": {"default": {"type": "string", "default": "x"}}}
    assert strict(named_default)["properties"] == {"default": {"type": "string"}}
    assert strict({"enum": [{"default": 1}]}) == {"enum": [{"default": 1}]}


async def test_images_reach_the_model_as_bytes_and_from_a_path(library: MakeLibraryWorld) -> None:
    async with library(reply(says("Two pictures."))) as w:
        (w.workspace / "shot.png").write_bytes(PNG)
        thread = await w.server.start_thread()
        await thread.run(["What is this?", image(PNG), image(w.workspace / "shot.png")])
        sent = str(w.model.requests[0].input)
        assert sent.count("data:image/png;base64,iVBORw0KGgo") == 2


@pytest.mark.parametrize(
    ("data", "mime"),
    [(PNG, "png"), (b"\xff\xd8\xff\xe0", "jpeg"), (b"GIF89a", "gif"), (b"RIFF0000WEBP", "webp")],
)
def test_the_kind_of_an_image_is_read_from_its_bytes(data: bytes, mime: str) -> None:
    made = image(data)
    assert isinstance(made, ImageUserInput)
    assert made.url.startswith(f"data:image/{mime};base64,")


def test_bytes_that_are_no_image_are_refused() -> None:
    for data in (b"", b"%PDF", b"RIFF0000WAVE"):
        with pytest.raises(ValueError, match="expected the bytes of"):
            image(data)


def test_a_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shot.png").write_bytes(PNG)
    assert image("shot.png") == LocalImageUserInput(path=str(tmp_path / "shot.png"))


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "No such file"), (b"text", "is not a PNG"), (b"", "is not a PNG")]
)
def test_a_path_without_a_picture_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "shot.png").write_bytes(content)
    with pytest.raises(InvalidArgument, match=problem):
        image(tmp_path / "shot.png")


def test_a_pipe_in_the_place_of_a_picture_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shot.png")
    with pytest.raises(InvalidArgument, match="is not a PNG"):
        image(tmp_path / "shot.png")
