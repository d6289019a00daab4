"""Notes of reference pages about fields beside their types."""

from collections.abc import Mapping
from functools import cache

import pytest

from app_server_protocol.export import guide, schemas
from app_server_protocol.export.field_notes import alternatives, is_experimental, meaning
from app_server_protocol.v2.thread_open import ThreadStartParams
from app_server_protocol.v2.turn import TurnDiffUpdatedNotification


@cache
def types(*, experimental: bool) -> Mapping[str, schemas.Schema]:
    return schemas.thread_definitions(experimental=experimental)


def test_fields_for_those_who_opted_in_are_marked() -> None:
    whole, stable = types(experimental=True), types(experimental=False)
    marked = [
        field
        for field in whole["ThreadStartParams"]["properties"]
        if is_experimental(stable, "ThreadStartParams", field)
    ]
    assert "dynamicTools" in marked
    assert not {"model", "cwd", "sandbox"} & set(marked)
    page = guide.thread_page(whole, stable)
    for field in marked:
        lines = [each for each in _part(page, "thread/start") if each.startswith(f"- `{field}`")]
        assert lines
        assert all(each.endswith("*Experimental.*") for each in lines)


@pytest.mark.parametrize("method", ["account/login/start", "mcpServer/elicitation/request"])
def test_unions_are_shown_with_their_fields(method: str) -> None:
    page = guide.thread_page(types(experimental=True), types(experimental=False))
    members = [line for line in _part(page, method) if line.startswith("- `{")]
    assert len(members) >= 2


def test_what_is_no_union_of_objects_has_no_members() -> None:
    whole = types(experimental=True)
    assert alternatives(whole, whole["ThreadStartParams"]) == []
    assert alternatives(whole, {"anyOf": [{"type": "string"}, {"type": "null"}]}) == []


def test_a_meaning_is_that_of_the_declaration_or_of_the_name() -> None:
    assert meaning(ThreadStartParams, "modelProvider") == "its name in `model_providers`, or a built-in one"
    assert meaning(TurnDiffUpdatedNotification, "threadId") == "the thread's id"
    assert meaning(TurnDiffUpdatedNotification, "diff") == ""


def _part(page: str, method: str) -> list[str]:
    """Return the lines about one method."""
    _, _, behind = page.partition(f"#### `{method}`\n")
    return behind.partition("\n####")[0].splitlines()
