"""The parts of a stream that are shown and saved: whole lines, without secrets; and the tap, which never waits for the
observer.
"""

import json
import os
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.cli.inspect.line_store import StreamReader
from app_server.cli.inspect.passthrough import Backlog, BoundedBacklog, FileBacklog, Tap
from app_server.cli.inspect.scenario import as_test
from app_server.cli.inspect.session_records import (
    Frame,
    FrameDecoder,
    NotASession,
    Record,
    SessionHead,
    Source,
    encode_frame,
    from_line,
    read_session,
    record_of,
    session_lines,
    to_line,
)
from app_server.engine.support.redaction import MASK, masked, masked_text
from app_server_protocol.encoding import Json

KEY = "sk-proj-0123456789abcdefghij"
sources = st.sampled_from([Source.CLIENT, Source.SERVER, Source.STDERR])
frames = st.lists(st.builds(Frame, sources, st.integers(0, 1 << 40), st.binary(max_size=40)), max_size=12)
json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(frames, st.integers(1, 30))
def test_frames_come_out_as_they_went_in(given_frames: list[Frame], size: int) -> None:
    data = b"".join(encode_frame(each.source, each.at, each.data) for each in given_frames)
    decoder = FrameDecoder()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [frame for piece in pieces for frame in decoder.feed(piece)] == given_frames


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 9))
def test_no_byte_is_missing_however_a_stream_is_cut(lines: list[bytes], size: int) -> None:
    data = b"\n".join(lines)
    reader = StreamReader()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    found = [
        record
        for piece in (*pieces, b"")
        for record, _ in reader.feed(Frame(Source.SERVER, 0, piece))
        if record.form != "event"
    ]
    whole = data.split(b"\n")
    assert [record.size for record in found] == [len(line) for line in (whole if whole[-1] else whole[:-1])]
    assert [record.unfinished for record in found][-1:] in ([], [bool(whole[-1])])


@settings(max_examples=50)
@given(sources, st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_a_record_is_the_same_when_it_is_read_again(source: Source, line: bytes) -> None:
    line = line.replace(b"\n", b" ")
    record, _ = record_of(source, 1.5, line)
    again = from_line(2, to_line(record))
    assert (again.source, again.at, again.size, again.form) == (source, 1.5, len(line), record.form)
    assert again.value() == record.value()
    if record.form != "message":
        assert again.text == record.text


@pytest.mark.parametrize(
    "message",
    [
        {"method": "loginApiKey", "params": {"apiKey": "anything"}},
        {"params": {"access_token": "anything", "idToken": "anything"}},
        {"params": {"http_headers": {"Authorization": "anything"}}},
        {"params": {"env": {"MY_API_KEY": "anything", "DB_PASSWORD": "anything"}}},
        {"params": {"delta": f"the key is {KEY}."}},
        {"params": {"command": "curl -H 'Authorization: Bearer abcdefghijkl'"}},
        {"params": {"command": "export OPENAI_API_KEY=anything-secret"}},
        {"params": {"text": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdef"}},
        {"params": {"secrets": ["anything", {"x": KEY}]}},
        {"mcpServers": [{"env": [{"name": "GITHUB_TOKEN", "value": "anything"}]}]},
        {"headers": [{"name": "X-Auth", "value": "anything"}, ["Cookie", "anything"]]},
        {"keyPath": "model_providers.mock.experimental_bearer_token", "value": "anything"},
        {"edits": [{"keyPath": 'mcp_servers."a.b".env.DB_PASS', "value": ["anything"]}]},
        {"token": {"value": "anything"}},
        {"command": ["curl", "--password", "anything"]},
        {"command": ["x", "--password=any thing anything"]},
        {"text": "AWS_SECRET_ACCESS_KEY=anything fine\nDB_PASS=anything\nexport PRIVATE_KEY='anything'"},
        {"text": 'MYSQL_PWD="an\\"anything" x'},
        {"text": "X-Auth: anything\nSet-Cookie: a=b; c=anything"},
        {"text": "curl --api-key anything -H 'Authorization: Token anything'"},
        {"arguments": '{"api_key": "anything"}'},
        {"arguments": json.dumps({"cmd": json.dumps({"api_key": "anything", "n": 1})})},
        {"text": '{"api_key": "anything'},
        {"text": "psql postgres://me:anything@db.example/x"},
        {"text": "git clone https://anything@git.example/x; redis://:any@anything@h/0"},
        {"url": "https://h.example/x?X-Amz-Signature=anything&y=1"},
        {"\\u0061piKey": "anything"},
    ],
)
def test_secrets_are_masked(message: Json) -> None:
    line = json.dumps(message).replace("\\\\u0061", "\\u0061")
    record, _ = record_of(Source.CLIENT, 0, line.encode())
    assert MASK in record.text
    for secret in ("anything", KEY, "abcdefghijkl", "eyJzdWIi"):
        assert secret not in record.text.replace("anything-secret", "")


@pytest.mark.parametrize(
    "message",
    [
        {"params": {"tokenUsage": {"totalTokens": 15}, "progressToken": "p1", "modelContextWindow": 3}},
        {"params": {"envKey": "OPENAI_API_KEY", "keyword": "x", "monkey": "y"}},
        {"result": {"text": "a token of thanks, and a secret garden"}},
        {"keyPath": "model", "value": "gpt"},
        {"tokens": {"input": 5}, "promptCacheKey": "x", "bearerTokenEnvVar": "VARIABLE"},
        {"env": [{"name": "PATH", "value": "/bin"}], "command": ["token", "list", "all"]},
        {"text": "https://host:8080/v1/a@b?x=y, git@github.com:x/y, sorted(a, key=lambda b: b)"},
    ],
)
def test_what_is_no_secret_stays(message: Json) -> None:
    assert masked(message) is message


def test_secrets_in_lines_that_are_no_json_are_masked() -> None:
    for line in (f"error: {KEY}", f"\udcff {KEY}"):
        data = line.encode("utf-8", "surrogateescape")
        assert KEY not in record_of(Source.SERVER, 0, data)[0].text
        assert MASK in record_of(Source.STDERR, 0, data)[0].text
    assert masked_text("nothing here") == "nothing here"


def test_a_session_is_the_same_when_it_is_opened_again() -> None:
    head = SessionHead(("server", KEY), "now")
    records = [
        record_of(Source.CLIENT, 0.25, b'{"id":1}')[0],
        record_of(Source.SERVER, 1, b"\xff", unfinished=True)[0],
    ]
    read, again = read_session("".join(session_lines(head, records)))
    assert read == SessionHead(["server", MASK], "now")
    assert again == records


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the first line"),
        ("[]\n", "the first line"),
        ('{"format":"app-server-session","version":2}\n', "version 2"),
        ('{"format":"app-server-session","version":1}\n{}\n', "line 2"),
        ('{"format":"app-server-session","version":1}\n{"at":1,"from":"x","text":"y"}\n', "line 2"),
        ('{"format":"app-server-session","version":1}\n{"at":1,"from":"client","text":5}\n', "line 2"),
    ],
)
def test_a_file_that_is_no_session_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(NotASession, match=complaint):
        read_session(text)


ODD = st.text("ab:/?=&@*-key \"'\\\n", max_size=30) | st.sampled_from(
    ["?key", "key:", "--key ", 'key="', "\\"]
)


@given(ODD)
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = masked_text(text * 3)
    assert masked_text(once) == once


def test_the_command_of_a_session_is_masked_wherever_it_is_shown() -> None:
    head = SessionHead(("server", "--token", "anything", "--key=any thing anything"), "now")
    shown = head.to_line() + as_test(head, []) + repr(head.shown_server())
    assert "anything" not in shown


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"at":1,"from":"client","message":' + "[" * 300 + "]" * 300 + "}",
        '{"at":1,"from":"client","message":{"id":' + "9" * 5000 + "}}",
        '{"at":' + "9" * 400 + ',"from":"client","message":1}',
        '{"at":"nan","from":"client","message":1}',
    ],
)
def test_a_line_that_nobody_can_show_is_refused(line: str) -> None:
    with pytest.raises(NotASession, match="line 2"):
        from_line(2, line)
    if "at" not in line:
        with pytest.raises(NotASession, match="first line"):
            read_session(line)


def test_a_message_that_is_nested_too_deeply_is_kept_as_text() -> None:
    text = '{"x":' + "[" * 300 + "]" * 300 + "}"
    record, message = record_of(Source.CLIENT, 0, text.encode())
    assert (record.form, record.text, message) == ("text", text, None)


@given(st.text(max_size=80))
def test_no_line_is_too_much(line: str) -> None:
    try:
        assert isinstance(from_line(2, line), Record)
    except NotASession:
        pass


def test_a_last_line_that_was_cut_off_does_not_count() -> None:
    head = '{"format":"app-server-session","version":1,"server":[],"began":""}\n'
    assert read_session(head + '{"at":1,"from":"cli')[1] == []


PIECE = b"x" * 10_000
PUT = 100
"""Number of frames: more than a pipe holds."""


def frames_after(backlog: Backlog, put: Callable[[Tap], None]) -> list[Frame]:
    """Return the frames from the pipe if it is read only after all were put in."""
    reading, writing = os.pipe()
    tap = Tap(writing, backlog, lambda: 7)
    put(tap)
    decoder, found = FrameDecoder(), list[Frame]()
    os.set_blocking(reading, True)
    closing = False
    while data := os.read(reading, 1 << 16):
        found += decoder.feed(data)
        if not closing and found and found[-1].data == b"last":
            tap.close(None)
            closing = True
    os.close(reading)
    return found


def put_much(tap: Tap) -> None:
    for _ in range(PUT):
        tap.put(Source.SERVER, PIECE)


def test_a_recording_keeps_all_in_order() -> None:
    def put(tap: Tap) -> None:
        put_much(tap)
        tap.put(Source.CLIENT, b"last")

    found = frames_after(FileBacklog(), put)
    assert [frame.data for frame in found] == [*[PIECE] * PUT, b"last"]


def test_a_page_gets_a_counted_gap() -> None:
    reading, writing = os.pipe()
    tap = Tap(writing, BoundedBacklog(5 * len(PIECE)), lambda: 7)
    put_much(tap)
    closing = threading.Thread(target=tap.close, args=(None,))
    closing.start()  # it waits until the kept frames are read
    decoder, found = FrameDecoder(), list[Frame]()
    while data := os.read(reading, 1 << 16):
        found += decoder.feed(data)
    closing.join()
    os.close(reading)
    kept = [frame for frame in found if frame.data == PIECE]
    gaps = [json.loads(frame.data) for frame in found if frame.source is Source.INSPECTOR]
    assert 5 <= len(kept) < PUT
    assert gaps == [{"event": "gap", "frames": PUT - len(kept), "bytes": (PUT - len(kept)) * len(PIECE)}]


def test_an_observer_that_left_is_no_obstacle() -> None:
    reading, writing = os.pipe()
    tap = Tap(writing, BoundedBacklog(1 << 20), lambda: 7)
    os.close(reading)
    put_much(tap)
    assert tap.gone
    tap.close(None)


@pytest.mark.parametrize("make", [FileBacklog, lambda: BoundedBacklog(1 << 20)])
def test_a_backlog_gives_its_bytes_in_order(make: Callable[[], Backlog]) -> None:
    backlog = make()
    taken = b""
    for number in range(20):
        assert backlog.add(b"%03d," % number, begun=False)
        if number % 3 == 0:
            taken += backlog.first()[:2]
            backlog.taken(2)
    while backlog:
        first = backlog.first()
        taken += first
        backlog.taken(len(first))
    assert taken == b"".join(b"%03d," % number for number in range(20))
