"""One stored line, and calls of the model as other programs store them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.approvals.shell.summaries import parse_command
from app_server.engine.storage.call_items import ended_item, item_of_call
from app_server.engine.storage.record import StoredRecord, parse_journal_line, parse_object, read_record
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items
from app_server_protocol.engine.item_values import DeleteFileChange
from app_server_protocol.mcp import ErrResult, OkResult
from app_server_protocol.values import replace
from tests.engine.storage.stored import assistant, meta
from tests.engine.workspace.patch.worlds import wrap

STAMP = "2026-01-02T03:04:05.678Z"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def line(kind: str, payload: Json) -> bytes:
    record = {"timestamp": STAMP, "type": kind, "payload": payload}
    return json.dumps(record, separators=(",", ":")).encode()


@given(
    st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
    st.none() | st.from_regex(r"[a-z_]{1,40}", fullmatch=True),
    st.dictionaries(st.text(max_size=4).filter(lambda key: key != "type"), values, max_size=3),
)
def test_a_line_in_the_usual_form_is_cut_into_its_parts(
    kind: str, name: str | None, fields: dict[str, Json]
) -> None:
    payload = fields if name is None else {"type": name, **fields}
    found = read_record(line(kind, payload))
    assert found is not None
    assert (found.kind, found.name) == (kind, name)
    assert found.value() == payload
    assert json.loads(found.payload) == payload


def test_records_are_parsed_in_any_form() -> None:
    payload = assistant("x").to_value()
    usual = line("response_item", payload)
    spaced = json.dumps(json.loads(usual)).encode()
    for form in (usual, spaced, b"\xef\xbb\xbf" + usual + b"\r", b"\0\0" + usual + b"\0 ", b'{"torn' + usual):
        found = read_record(form)
        assert found is not None
        assert (found.kind, found.name, found.value()) == ("response_item", "message", payload)
        assert json.loads(found.payload) == payload


def test_a_record_behind_a_torn_one_counts_unless_it_is_a_part_of_it() -> None:
    whole, inner = line("compacted", {"message": "m"}), line("event_msg", {"type": "x"})
    glued = read_record(line("event_msg", {"type": "user_message", "message": "x"})[:-4] + whole)
    assert glued is not None
    assert (glued.kind, glued.value()) == ("compacted", {"message": "m"})
    around = read_record(line("event_msg", {"type": "x", "record": json.loads(inner)}))
    assert around is not None
    assert (around.kind, around.value()) == ("event_msg", {"type": "x", "record": json.loads(inner)})


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"5",
        b"[]",
        b"{}",
        b"{" * 100_000,
        line("event_msg", []),
        line("event_msg", {})[:-1],
        b'{"timestamp":' + b'{"a":' * 50_000,
    ],
)
def test_what_is_no_record_is_none(other: bytes) -> None:
    assert read_record(other) is None


def test_a_payload_that_is_damaged_has_no_value() -> None:
    for payload in (b"{x}", b'{"type":"x"},{}', b'{"a":' * 50_000):
        found = read_record(
            b'{"timestamp":"t","type":"event_msg","payload":{"type":"x","a":' + payload + b"}}"
        )
        assert found is None or found.value() is None


def test_a_payload_that_was_parsed_is_json_whatever_it_holds() -> None:
    for text in ("\ud800", "ß"):
        found = StoredRecord.of("event_msg", {"type": text, "n": float("inf")})
        assert json.loads(found.payload) == {"type": text, "n": None}


def test_objects() -> None:
    assert parse_object(b'{"a":1}') == {"a": 1}
    assert parse_object(b'{"a":"\\ud800"}') == {"a": "\ud800"}
    assert parse_object(b'{"a":1e400}') == {"a": float("inf")}
    for other in (b"", b"[1]", b' {"a":1}', b"{", b'{"a":1}x', b"{" * 100_000, b"{\xff}"):
        assert parse_object(other) is None


def journaled(payload: Json, after: object = 12) -> bytes:
    body = json.dumps(payload, separators=(",", ":"))
    return f'{{"timestamp":"{STAMP}","type":"response_item","after":{after},"payload":{body}}}'.encode()


def test_a_line_of_a_journal_has_the_item_and_where_the_rollout_ended() -> None:
    item = assistant("x")
    found = parse_journal_line(journaled(item.to_value()))
    assert found is not None
    assert (found.after, found.item) == (12, item)
    assert json.loads(found.payload) == item.to_value()
    assert parse_journal_line(line("session_meta", meta().to_value())) is None


@pytest.mark.parametrize(
    "other",
    [
        b"",
        journaled(assistant("x").to_value())[:-1],
        journaled({"type": "novel"}),
        journaled({"type": "message"}),
        journaled({}).replace(b"{}", b"{x}"),
        journaled(assistant("x").to_value(), '"12"'),
        journaled(assistant("x").to_value(), -1),
        line("response_item", assistant("x").to_value()),
    ],
)
def test_what_is_no_line_of_a_journal_is_none(other: bytes) -> None:
    assert parse_journal_line(other) is None


PATCH = wrap("*** Add File: new", "+x", "*** Update File: old", "*** Move to: sub/moved", "@@", "-a", "+b")


def function(name: str, arguments: Json, **more: Json) -> Json:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(arguments), **more}


@pytest.mark.parametrize(
    ("call", "command", "cwd", "source"),
    [
        (function("shell", {"command": ["ls", "a"]}), ("ls", "a"), "/ws", items.CommandSource.AGENT),
        (
            function("container.exec", {"command": ["ls", 5], "workdir": "sub/../x"}),
            ("ls",),
            "/ws/x",
            items.CommandSource.AGENT,
        ),
        (
            function("shell_command", {"command": "ls | wc", "workdir": "/tmp"}),
            ("sh", "-c", "ls | wc"),
            "/tmp",
            items.CommandSource.AGENT,
        ),
        (function("exec_command", {"cmd": "ls"}), ("sh", "-c", "ls"), "/ws", items.CommandSource.TERMINAL),
        (
            {
                "type": "local_shell_call",
                "call_id": "c",
                "action": {"command": ["ls"], "working_directory": "sub"},
            },
            ("ls",),
            "/ws/sub",
            items.CommandSource.PROVIDER,
        ),
    ],
)
def test_a_call_of_a_shell_is_a_command(
    call: Json, command: tuple[str, ...], cwd: str, source: items.CommandSource
) -> None:
    item = item_of_call(call, "/ws")
    assert isinstance(item, items.CommandExecution)
    assert (item.id, item.command, item.cwd, item.source) == ("c", command, cwd, source)


@pytest.mark.parametrize(
    "call",
    [
        function("apply_patch", {"input": PATCH}),
        function("shell", {"command": ["apply_patch", PATCH]}),
        function("shell", {"command": ["sh", "-c", f"cd . && apply_patch <<'EOF'\n{PATCH}\nEOF"]}),
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": PATCH},
    ],
)
def test_a_patch_is_a_change_of_files_however_it_was_called(call: Json) -> None:
    item = item_of_call(call, "/ws")
    assert isinstance(item, items.FileChange)
    assert {path: change.to_value() for path, change in item.changes.items()} == {
        "/ws/new": {"content": "x\n"},
        "/ws/old": {"unified_diff": "@@\n-a\n+b\n", "move_path": "/ws/sub/moved"},
    }


def test_other_calls() -> None:
    assert item_of_call(function("view_image", {"path": "a.png"}), "/ws") == items.ImageView("c", "/ws/a.png")
    called = item_of_call(function("mcp__time__now", {"zone": "UTC"}), "/ws")
    assert isinstance(called, items.McpToolCall)
    assert (called.invocation.server, called.invocation.tool) == ("time", "now")
    assert called.invocation.arguments == {"zone": "UTC"}
    search = {"type": "web_search_call", "action": {"type": "search", "query": "q"}}
    assert item_of_call(search, "/ws") == items.WebSearch("search q", "q")
    for nothing in (
        function("unknown", {}),
        function("apply_patch", {"input": "none"}),
        function("shell", {"command": "ls"}),
        {"type": "function_call", "name": "shell", "arguments": "{}"},
        {"type": "local_shell_call", "call_id": "c", "action": {"command": "ls"}},
        {"type": "message", "call_id": "c"},
    ):
        assert item_of_call(nothing, "/ws") is None


@pytest.mark.parametrize(
    ("output", "status", "code", "printed"),
    [
        (json.dumps({"output": "hi", "metadata": {"exit_code": 0}}), items.ItemStatus.COMPLETED, 0, "hi"),
        (json.dumps({"output": "no", "metadata": {"exit_code": 2}}), items.ItemStatus.FAILED, 2, "no"),
        ("Exit code: 3\nWall time: 1 seconds\nOutput:\nbad", items.ItemStatus.FAILED, 3, "bad"),
        ("{broken", items.ItemStatus.FAILED, None, "{broken"),
        (None, items.ItemStatus.FAILED, None, ""),
    ],
)
def test_the_output_says_how_a_command_ended(
    output: Json, status: items.ItemStatus, code: int | None, printed: str
) -> None:
    item = item_of_call(function("shell", {"command": ["ls"]}), "/ws")
    assert item is not None
    ended = ended_item(item, output)
    assert isinstance(ended, items.CommandExecution)
    assert (ended.status, ended.exit_code, ended.output) == (status, code, printed)


SUCCESS = "Success. Updated the following files:\nA new\n"


@pytest.mark.parametrize(
    ("output", "done", "printed"),
    [
        (json.dumps({"output": SUCCESS, "metadata": {"exit_code": 0}}), True, SUCCESS),
        (json.dumps({"output": "no", "metadata": {"exit_code": 1}}), False, "no"),
        (f"Exit code: 0\nWall time: 1 seconds\nOutput:\n{SUCCESS}", True, SUCCESS),
        (f"Exit code: 1\nWall time: 1 seconds\nOutput:\n{SUCCESS}", False, SUCCESS),
        (SUCCESS, True, SUCCESS),
        ("patch rejected by user", False, "patch rejected by user"),
        (None, False, ""),
    ],
)
def test_the_output_says_how_a_patch_ended(output: Json, done: bool, printed: str) -> None:
    item = item_of_call(function("apply_patch", {"input": PATCH}), "/ws")
    assert isinstance(item, items.FileChange)
    ended = ended_item(item, output)
    assert ended == replace(
        item,
        status=items.ItemStatus.COMPLETED if done else items.ItemStatus.FAILED,
        stdout=printed,
        stderr="" if done else printed,
    )


IMAGE = {"type": "image", "data": "x", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("plain", [{"type": "text", "text": "plain"}]),
        (json.dumps({"content": [IMAGE]}), [IMAGE]),
        (json.dumps([IMAGE]), [IMAGE]),
        (json.dumps({"content": 5}), [{"type": "text", "text": '{"content": 5}'}]),
        (json.dumps({"content": [5]}), [{"type": "text", "text": '{"content": [5]}'}]),
        ("[" * 100_000, [{"type": "text", "text": "[" * 100_000}]),
        ('"quoted"', [{"type": "text", "text": '"quoted"'}]),
    ],
)
def test_the_output_of_a_tool_of_an_mcp_server(output: Json, content: list[Json]) -> None:
    item = item_of_call(function("server__tool", {}), "/ws")
    assert isinstance(item, items.McpToolCall)
    ended = ended_item(item, output)
    assert isinstance(ended, items.McpToolCall)
    assert isinstance(ended.result, OkResult)
    assert ended.status is items.ItemStatus.COMPLETED
    found = ended.result.ok.to_value()["content"]
    assert [
        {key: part[key] for key in wanted} for part, wanted in zip(found, content, strict=True)
    ] == content


def test_a_tool_of_an_mcp_server_without_an_output_was_interrupted() -> None:
    item = item_of_call(function("mcp__server__tool__x", {"a": 1}), "/ws")
    assert isinstance(item, items.McpToolCall)
    assert (item.invocation.server, item.invocation.tool) == ("server", "tool__x")
    assert ended_item(item, None) == replace(
        item, status=items.ItemStatus.FAILED, result=ErrResult(err="interrupted")
    )


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ({"content": "text", "success": True}, "text"),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image"}, 5, {"text": 6}], "a\n6"),
        ({"content": 5}, ""),
        (5, ""),
        ("Process exited with code 7\nOutput:\nx", "x"),
        ("said: Exit code: 7", "said: Exit code: 7"),
        (json.dumps({"output": "x"}), json.dumps({"output": "x"})),
        ("{" * 100_000, "{" * 100_000),
    ],
)
def test_every_form_of_output_is_read(output: Json, printed: str) -> None:
    item = item_of_call(function("shell", {"command": ["ls"]}), "/ws")
    assert item is not None
    ended = ended_item(item, output)
    assert isinstance(ended, items.CommandExecution)
    assert ended.output == printed
    assert ended.exit_code == (7 if "exited" in str(output) else None)


def test_what_has_no_output_of_its_own_ends_as_it_began() -> None:
    image = items.ImageView("c", "/a.png")
    assert ended_item(image, "x") is image


def test_calls_with_fields_in_another_form() -> None:
    search = {"type": "web_search_call"}
    assert item_of_call(search, "/ws") == items.WebSearch("search ", "")
    assert item_of_call({**search, "action": {"query": 5}}, "/ws") == items.WebSearch("search ", "")
    assert item_of_call({"type": "local_shell_call", "call_id": "c", "action": 5}, "/ws") is None
    assert item_of_call({"type": "custom_tool_call", "call_id": "c", "name": "apply_patch"}, "/ws") is None
    assert (
        item_of_call({"type": "custom_tool_call", "call_id": "c", "name": "x", "input": PATCH}, "/ws") is None
    )
    assert item_of_call(function("shell", {"command": ["ls"]}) | {"arguments": "\ud800"}, "/ws") is None
    assert item_of_call(function("shell", {"command": ["ls"]}) | {"call_id": ""}, "/ws") is None
    assert item_of_call(function("__x", {}), "/ws") is None
    command = item_of_call(
        {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}, "/ws/x/.."
    )
    assert isinstance(command, items.CommandExecution)
    assert command.cwd == "/ws"
    assert command.parsed == tuple(parse_command(["ls"]))


def test_a_patch_is_relative_to_the_folder_of_its_call() -> None:
    call = function("shell", {"command": ["apply_patch", PATCH], "workdir": "sub"})
    item = item_of_call(call, "/ws")
    assert isinstance(item, items.FileChange)
    assert list(item.changes) == ["/ws/sub/new", "/ws/sub/old"]
    script = function("shell", {"command": ["sh", "-c", f"cd deep && apply_patch <<'EOF'\n{PATCH}\nEOF"]})
    item = item_of_call(script, "/ws")
    assert isinstance(item, items.FileChange)
    assert list(item.changes) == ["/ws/deep/new", "/ws/deep/old"]
    delete = item_of_call(function("apply_patch", {"input": wrap("*** Delete File: /x")}), "/ws")
    assert isinstance(delete, items.FileChange)
    assert delete.changes == {"/x": DeleteFileChange(content="")}
