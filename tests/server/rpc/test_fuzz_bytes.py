"""Arbitrary input from outside: bytes, damaged files, and text that a model writes."""

import json
import shlex
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app_server.engine.approvals.shell.dangerous_commands import is_dangerous
from app_server.engine.approvals.shell.safe_commands import is_known_safe as judge_safe
from app_server.engine.approvals.shell.shell_script import split_script
from app_server.engine.approvals.shell.summaries import parse_command
from app_server.engine.config.config_values import SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.http.sse import EventTooLong, SseDecoder, SseFrame
from app_server.engine.model.prompt import Completed, ModelEvent
from app_server.engine.model.responses_reader import ResponsesDecoder
from app_server.engine.storage.rollout_reader import read_rollout
from app_server.engine.support.engine_errors import ConfigError, ConversationError, ModelError
from app_server.engine.workspace.patch.changes import shown_changes
from app_server.engine.workspace.patch.parse import PatchError, parse_patch
from app_server.engine.workspace.patch.planner import NoSnapshot, Snapshot, plan_patch
from app_server.engine.workspace.patch.shell_forms import find_patch
from app_server_protocol.encoding import Json
from app_server_protocol.framing import LineDecoder, Oversized
from app_server_protocol.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ParseError,
    Request,
    dump_error,
    parse_message,
)
from tests.support.fuzz_mutation import chunks, mutated, thorough

pytestmark = pytest.mark.fuzz

REQUESTS = tuple(
    json.dumps(message).encode()
    for message in (
        {"id": 1, "method": "newConversation", "params": {"cwd": "/", "config": {"a.b": [1, 2.5, None]}}},
        {
            "jsonrpc": "2.0",
            "id": "x",
            "method": "interruptConversation",
            "params": {"conversationId": "grün 🙂"},
        },
        {"id": 7, "result": {"decision": "approved"}},
        {"id": 7, "error": {"code": -1, "message": "no", "data": {}}},
        {"method": "initialized"},
    )
)
COMPLETED = {"id": "r", "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hé"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}
EVENTS: tuple[Json, ...] = (
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_item.added", "item": MESSAGE},
    {"type": "response.output_text.delta", "delta": "h"},
    {"type": "response.output_item.done", "item": MESSAGE},
    {"type": "response.output_item.done", "item": CALL},
    {
        "type": "response.failed",
        "response": {"error": {"code": "rate_limit_exceeded", "message": "try again in 1s"}},
    },
    {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
    {"type": "response.completed", "response": COMPLETED},
)


def lines_of(event: Json) -> tuple[str, ...]:
    return f"event: {event['type']}", f"data: {json.dumps(event)}", ""


STREAMS = tuple(
    "".join(line + end for event in events for line in lines_of(event)).encode()
    for end in ("\n", "\r\n", "\r")
    for events in (EVENTS, EVENTS[2:5], EVENTS[5:])
)


@thorough
@given(st.data(), st.lists(mutated(REQUESTS), max_size=6), st.integers(1, 300))
def test_lines_are_the_same_in_any_pieces(data: st.DataObject, lines: list[bytes], limit: int) -> None:
    whole = b"\n".join(lines)
    pieces = data.draw(chunks(whole))
    decoder = LineDecoder(limit)
    got = [line for piece in pieces for line in decoder.feed(piece)]
    *ended, rest = whole.split(b"\n")
    assert got == [line if len(line) <= limit else Oversized(len(line)) for line in ended]
    assert decoder.close() == (rest if len(rest) <= limit else b"")


def test_a_line_in_single_bytes_takes_no_more_memory_than_its_bytes() -> None:
    decoder = LineDecoder(1 << 20)
    tracemalloc.start()
    for _ in range(100_000):
        assert decoder.feed(b"x") == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000
    assert decoder.feed(b"\n") == [b"x" * 100_000]


@thorough
@given(mutated(REQUESTS) | st.binary(max_size=100))
@example(b'{"id":1,"method":"a","id":2}')
@example(b'{"id":1e400,"method":"a"}')
@example(b'{"id":"\\ud800","method":"a"}')
@example(b"[" * 100_000)
def test_a_line_is_a_message_or_refused(line: bytes) -> None:
    refused: ParseError | None = None
    try:
        message = parse_message(line)
    except ParseError as error:
        refused = error
    if refused is None:
        assert not isinstance(message, Request) or type(message.id) in (int, str)
        return
    assert refused.code in (PARSE_ERROR, INVALID_REQUEST)
    answer = dump_error(refused.id, refused.code, refused.message)
    assert len(answer) < 1000 + len(line) // 2
    assert b"\n" not in answer
    json.loads(answer)


LINE_ENDS = b"\n\r:d \xef\xbb\xbf"


def frames(pieces: list[bytes]) -> list[SseFrame] | None:
    decoder = SseDecoder()
    try:
        return [frame for piece in pieces for frame in decoder.feed(piece)] + decoder.close()
    except EventTooLong:
        return None


@thorough
@given(st.data(), mutated(STREAMS) | st.binary(max_size=60).map(lambda raw: raw.translate(LINE_ENDS * 32)))
def test_frames_are_the_same_in_any_pieces(data: st.DataObject, stream: bytes) -> None:
    assert frames(data.draw(chunks(stream))) == frames([stream])


@thorough
@given(mutated(STREAMS))
def test_a_stream_is_events_or_an_error_of_the_models(stream: bytes) -> None:
    decoder = ResponsesDecoder()
    events: list[ModelEvent] = []
    failed: ModelError | None = None
    try:
        for frame in frames([stream]) or ():
            decoder.decode(frame, events)
        decoder.end(events)
    except ModelError as error:
        failed = error
    assert failed is None or str(failed)
    assert decoder.completed == any(isinstance(event, Completed) for event in events)


ROLLOUT = (Path(__file__).parents[2] / "data" / "codex-0.58-rollout.jsonl").read_bytes()
LINES = ROLLOUT.splitlines(keepends=True)
ROLLOUTS = (ROLLOUT, b"".join(LINES[:1]), b"".join(LINES[:5]), b"".join([*LINES[:2], *LINES[-3:]]))
CONFIGS = (
    b'model = "m"\nmodel_provider = "p"\n[model_providers.p]\nname = "P"\nbase_url = "http://x/v1"\n'
    b'[mcp_servers.a]\ncommand = "x"\nargs = ["a"]\nenv = { A = "1" }\nstartup_timeout_sec = 1.5\n',
    b'approval_policy = "never"\nsandbox_mode = "workspace-write"\n[sandbox_workspace_write]\n'
    b'writable_roots = ["~/x"]\nnetwork_access = true\n[profiles.q]\nmodel = "n"\n',
    b'notify = ["a"]\n[otel]\nexporter = { otlp-http = { endpoint = "http://x", protocol = "json" } }\n'
    b'[features]\nghost_commit = false\n[projects."/x"]\ntrust_level = "trusted"\n',
    b'[shell_environment_policy]\ninherit = "core"\nset = { A = "b" }\n[tools]\nweb_search = true\n'
    b"[history]\nmax_bytes = 5\n",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@thorough
@given(data=mutated(ROLLOUTS))
def test_a_spoiled_rollout_is_read_as_far_as_it_goes(folder: Path, data: bytes) -> None:
    path = folder / "rollout-2025-01-01T00-00-00-0199a213-81c0-7800-8aa1-bbab2a035a53.jsonl"
    path.write_bytes(data)
    refused: ConversationError | None = None
    try:
        stored = read_rollout(path)
    except ConversationError as error:
        refused = error
    assert str(refused) if refused is not None else stored.meta.id


@thorough
@given(data=mutated(CONFIGS) | st.binary(max_size=200))
def test_a_spoiled_configuration_is_used_or_refused_by_name(folder: Path, data: bytes) -> None:
    (folder / "config.toml").write_bytes(data)
    problem: str | None = None
    try:
        config = load_config(SettingsSource(home=folder, cwd=folder, environment={"HOME": "/h"}))
    except ConfigError as error:
        problem = str(error)
    if problem is None:
        assert config.model
    else:
        assert problem.startswith(("failed to load configuration: ", "error deriving config: "))
        assert "\n" not in problem
        assert len(problem) < 3000


is_known_safe = partial(judge_safe, trusts=lambda program: True)

PATCHES = (
    b"*** Begin Patch\n*** Add File: new.txt\n+hello\n+w\xc3\xb6rld\n*** End Patch\n",
    b"*** Begin Patch\n*** Update File: old.txt\n@@ def f():\n one\n-two\n+zwei\n three\n*** End Patch",
    b"*** Begin Patch\n*** Update File: old.txt\n*** Move to: moved.txt\n@@\n-one\n+eins\n"
    b"*** End of File\n*** End Patch",
    b"*** Begin Patch\n*** Delete File: old.txt\n*** Add File: sub/b\n+\n*** End Patch",
)
SCRIPTS = (
    b"ls -la && cat README.md | head -n 3",
    b"git status; git log --oneline -5 > out.txt",
    b"rg --files 'a b' \"$HOME\" || find . -name '*.py' -exec rm {} +",
    b"cd sub && sed -n '1,20p' file # comment",
    b"apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF",
    b"for f in *; do echo $f; done & (cd /; pwd) 2>&1",
    b"sudo rm -rf / --no-preserve-root; bash -c 'echo `whoami`'",
)


class Files:
    """Disk with one file."""

    def resolve_path(self, path: str) -> str:
        if "\0" in path:
            raise PatchError("a path holds a NUL")
        return path

    def read_file(self, real: str) -> Snapshot | NoSnapshot:
        return (
            Snapshot(b"one\ntwo\nthree\n", 0o644)
            if real == "/ws/old.txt"
            else NoSnapshot("absent", absent=True)
        )


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@thorough
@given(mutated(PATCHES))
def test_a_patch_is_a_plan_or_an_error_for_the_model(data: bytes) -> None:
    refused: PatchError | None = None
    try:
        plan = plan_patch(parse_patch(text(data)), "/ws", Files())
    except PatchError as error:
        refused = error
    if refused is not None:
        assert refused.for_model()
    else:
        assert plan.document("call", recover=False)
        # A patch without edits is refused later, because it is empty.
        assert bool(shown_changes(plan)) == bool(plan.edits)


@thorough
@given(mutated(SCRIPTS))
@example(b"$(" * 2000)
@example(b"((" * 2000)
def test_a_command_line_is_judged_whatever_it_is(data: bytes) -> None:
    script = text(data)
    for argv in (["sh", "-c", script], ["bash", "-lc", script], script.split(), [script]):
        assert isinstance(is_known_safe(argv), bool)
        assert isinstance(is_dangerous(argv), bool)
        assert len(parse_command(argv)) < 10_000
        find_patch(argv)


DANGEROUS = (
    "rm -rf x",
    "git push",
    "curl http://x",
    "tee f",
    "python3 -c 1",
    "dd of=/dev/sda",
    "chmod 777 x",
)


@thorough
@given(
    st.sampled_from(DANGEROUS),
    mutated(SCRIPTS[:2]),
    st.sampled_from(["; ", " && ", " | ", "\n", " || ", " & "]),
)
def test_nothing_that_holds_an_unsafe_command_is_safe(unsafe: str, data: bytes, between: str) -> None:
    """It stays unsafe with any text before it, as long as the whole is still parsed as containing the command."""
    script = text(data) + between + unsafe
    commands = split_script(script)
    if commands is not None and any(shlex.split(unsafe) == list(command) for command in commands):
        assert not is_known_safe(["bash", "-lc", script])
