"""Tools of clients: which are accepted, and what of their answers reaches the model."""

import pytest

from app_server.core.errors import ConversationError
from app_server.core.model.families import find_family
from app_server.core.pictures import BROKEN
from app_server.core.tools.client_tool import MAX_TEXT, MOST_PARTS, MOST_TOOLS, bounded, checked_tools
from app_server.core.tools.registry import RESERVED_NAMES, build_tools
from protocol.base import Json
from protocol.engine.questions import ClientTool
from protocol.policy import TurnMode
from protocol.responses import InputImage, InputText
from tests.support.pictures import PNG, picture_url
from tests.unit.tools.conftest import MakeScene

SCHEMA: Json = {"type": "object", "properties": {"id": {"type": "string"}}}
PICTURE = picture_url(PNG)


def tool(name: str = "lookup", namespace: str | None = None, schema: Json = SCHEMA) -> ClientTool:
    return ClientTool(name=name, namespace=namespace, description="d", input_schema=schema)


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([tool("")], "must not be empty"),
        ([tool("a b")], "must match"),
        ([tool("é")], "must match"),
        ([tool("a\n")], "must match"),
        ([tool("a", "b c")], "namespace must match"),
        ([tool("a" * 129)], "at most 128"),
        ([tool("shell")], "reserved"),
        ([tool("apply_patch")], "reserved"),
        ([tool("mcp__x__y")], "reserved"),
        ([tool("y", "mcp__x")], "reserved"),
        ([tool(), tool()], "duplicate"),
        ([tool("b", "a"), tool("a__b")], "duplicate"),
        ([tool(schema=5)], "schema"),
        ([tool(schema={"type": "array"})], "schema"),
        ([tool(schema={"$ref": "#/nowhere"})], "schema"),
        ([tool(f"t{n}") for n in range(MOST_TOOLS + 1)], "more than"),
        ([ClientTool(name="a", description="x" * 200_000, input_schema=SCHEMA)], "descriptions"),
    ],
)
def test_what_no_model_could_be_offered_is_refused(tools: list[ClientTool], why: str) -> None:
    with pytest.raises(ConversationError, match=why):
        checked_tools(tools, RESERVED_NAMES)


async def test_a_tool_of_a_client_may_take_the_place_of_one_that_only_reads(scene: MakeScene) -> None:
    config, family = scene().turn.config, find_family("some-model")
    brought = checked_tools([tool("read_file"), tool("find", "kit"), tool()], RESERVED_NAMES)
    names = [each.name for each in build_tools(config, family, None, client_tools=brought).offered]
    assert names[-3:] == ["read_file", "kit__find", "lookup"]
    assert len(names) == len(set(names))


async def test_the_user_is_asked_in_plan_mode_only(scene: MakeScene) -> None:
    config, family = scene().turn.config, find_family("some-model")
    offered = {
        mode: {each.name for each in build_tools(config, family, None, mode=mode).offered}
        for mode in TurnMode
    }
    assert offered[TurnMode.PLAN] - offered[TurnMode.DEFAULT] == {"request_user_input"}


def test_what_is_too_long_is_cut_with_a_note() -> None:
    first, second = bounded((InputText(text="a" * (MAX_TEXT + 1)), InputText(text="b")))
    assert isinstance(first, InputText)
    assert first.text.endswith(f"[cut here: the text had {MAX_TEXT + 1} characters]")
    assert isinstance(second, InputText)
    assert second.text.startswith("\n[cut here")
    assert len(bounded((InputText(text=""),) * (MOST_PARTS + 9))) == MOST_PARTS + 1


@pytest.mark.parametrize("address", ["file:///etc/passwd", "/etc/passwd", "data:text/plain;base64,aaaa", ""])
def test_an_address_that_is_no_picture_is_left_out(address: str) -> None:
    [note] = bounded((InputImage(image_url=address),))
    assert isinstance(note, InputText)
    assert "left out" in note.text
    broken = InputImage(image_url=PICTURE[:-8])
    note = InputText(text=f"[an image was left out: {BROKEN}]")
    assert bounded((InputImage(image_url=PICTURE), broken)) == (InputImage(image_url=PICTURE), note)
