"""Any bytes on a line are parsed as a message or as a `ParseError`."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app_server_protocol.encoding import Json
from app_server_protocol.json_limits import MAX_DEPTH, MOST_TOKENS, MessageOutline, read_outline
from app_server_protocol.jsonrpc import (
    ECHO_LIMIT,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorAnswer,
    Message,
    Notification,
    ParseError,
    Request,
    Response,
    dump_error,
    dump_notification,
    dump_request,
    dump_response,
    parse_message,
    shortened,
)

any_text = st.text(st.characters(exclude_categories=()), max_size=30)
ids = any_text | st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id":1,"method":"m"}', Request(1, "m")),
        (b'{"id":0,"method":"m","params":null}', Request(0, "m")),
        (b'{"id":-7,"method":"m","params":{}}', Request(-7, "m", {})),
        (b'{"id":"","method":"m","params":[1]}', Request("", "m", [1])),
        (b'{"id":9223372036854775807,"method":"m"}', Request(2**63 - 1, "m")),
        (b'{"jsonrpc":"1.0","id":"a\\nb","method":"m","zzz":1}', Request("a\nb", "m")),
        (b'\xef\xbb\xbf{"id":1,"method":"m"}\r', Request(1, "m")),
        (b'  {"method":"m","params":{"a":1.5}}', Notification("m", {"a": 1.5})),
        (b'{"id":1,"method":"m","result":1}', Request(1, "m")),
        (b'{"id":1,"result":null}', Response(1, None)),
        (b'{"id":1,"result":{},"error":null}', Response(1, {})),
        (b'{"id":1,"error":{"code":-1,"message":"no","data":[1]}}', ErrorAnswer(1, -1, "no", [1])),
    ],
)
def test_messages_are_understood(line: bytes, message: Message) -> None:
    assert parse_message(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"result":{"decision":"approved"},"error":{"code":1,"message":"x"}}',
        b'{"id":1,"result":{"decision":"denied","decision":"approved"}}',
        b'{"id":1,"result":{"decision":"denied"},"result":{"decision":"approved"}}',
        b'{"id":1,"error":true,"result":{"decision":"approved"}}',
        b'{"id":1,"error":{}}',
    ],
)
def test_a_contradictory_answer_counts_as_a_refusal(line: bytes) -> None:
    message = parse_message(line)
    assert isinstance(message, ErrorAnswer)
    assert message.id == 1


def test_how_deep_a_message_may_be_does_not_depend_on_the_version_of_python() -> None:
    """A bracket in a text adds no level."""

    def nested(levels: int) -> bytes:
        return (
            b'{"id":1,"method":"m","params":{"text":"%s","x":' % (b"[" * 300)
            + b"[" * levels
            + b"]" * levels
            + b"}}"
        )

    assert isinstance(parse_message(nested(MAX_DEPTH - 2)), Request)
    with pytest.raises(ParseError, match="nested too deeply") as raised:
        parse_message(nested(MAX_DEPTH - 1))
    assert (raised.value.code, raised.value.id) == (PARSE_ERROR, 1)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json at all", PARSE_ERROR),
        (b"", PARSE_ERROR),
        (b"\0" * 4096, PARSE_ERROR),
        (b'{"id":1,"method":"\xff\xfe"}', PARSE_ERROR),
        (b'{"id":1,"method":"\xc0\xaf"}', PARSE_ERROR),
        (b'{"id":1,"method":"\xed\xa0\x80"}', PARSE_ERROR),
        (b'\xff\xfe{\0"\0', PARSE_ERROR),
        (b'{"id":1,"method":"m"}{"id":2,"method":"m"}', PARSE_ERROR),
        (b'{"id":1,"method":"m', PARSE_ERROR),
        (b'{"id":NaN,"method":"m"}', PARSE_ERROR),
        (b'{"id":070,"method":"m"}', PARSE_ERROR),
        (b'{"id":' + b"9" * 5000 + b',"method":"m"}', PARSE_ERROR),
        (b'{"id":1,"id":2,"method":"m","params":' + b"[" * 10_000, PARSE_ERROR),
        (b'{"id":1.5,"method":"m","params":' + b"[" * 10_000, PARSE_ERROR),
        (b'{"id":9223372036854775808,"method":"m","params":' + b"[" * 10_000, PARSE_ERROR),
        (b'{"method":"m","params":{"id":1,"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}}", PARSE_ERROR),
        (b'{"method":"m","params":{"x":1e400}}', PARSE_ERROR),
        (b"[" * 1_000_000, PARSE_ERROR),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b'[{"id":1,"method":"m"}]', INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b"1", INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
        (b'"x"', INVALID_REQUEST),
        (b"true", INVALID_REQUEST),
        (b'{"params":{}}', INVALID_REQUEST),
        (b'{"result":{}}', INVALID_REQUEST),
        (b'{"method":5}', INVALID_REQUEST),
        (b'{"id":null,"method":"m"}', INVALID_REQUEST),
        (b'{"id":1.5,"method":"m"}', INVALID_REQUEST),
        (b'{"id":7.0,"result":{}}', INVALID_REQUEST),
        (b'{"id":true,"method":"m"}', INVALID_REQUEST),
        (b'{"id":{},"method":"m"}', INVALID_REQUEST),
        (b'{"id":[1],"method":"m"}', INVALID_REQUEST),
        (b'{"id":9223372036854775808,"method":"m"}', INVALID_REQUEST),
        (b'{"id":66,"id":67,"method":"m"}', INVALID_REQUEST),
        (b'{"id":66,"id":66,"result":{}}', INVALID_REQUEST),
        (b'[{"a":1,"a":2}]', INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_refused_without_an_id(line: bytes, code: int) -> None:
    with pytest.raises(ParseError) as refused:
        parse_message(line)
    assert (refused.value.code, refused.value.id) == (code, None)


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":66}',
        b'{"id":66,"params":{}}',
        b'{"id":66,"method":null}',
        b'{"id":66,"method":["m"]}',
        b'{"id":66,"error":null}',
        b'{"id":66,"method":"m","method":"n"}',
        b'{"id":66,"method":"m","params":{"a":1,"a":2}}',
    ],
)
def test_a_request_that_is_refused_is_answered_under_its_id(line: bytes) -> None:
    with pytest.raises(ParseError) as refused:
        parse_message(line)
    assert (refused.value.code, refused.value.id) == (INVALID_REQUEST, 66)


DEEP = b'{"a":[' * 50_000 + b"1" + b"]}" * 50_000


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":66,"method":"m","params":%s}' % DEEP,
        b'{"method":"m","params":%s,"id":66}' % DEEP,
        b'{"method":"m","id" : 66 ,"params":%s}' % (b"[" * 100_000),
        b'{"params":{"id":1,"method":"n","x":"\\"]}","y":%s},"method":"m","id":66}' % DEEP,
        b'{"id":66,"method":"m","params":{"x":1,"x":%s}}' % DEEP,
        b'{"id":66,"method":"m","params":{"x":-Infinity}}',
        b'{"id":66,"method":"m","params":{"x":1e400}}',
        b'{"params":{"x":%s},"method":"m","id":66}' % (b"9" * 5000),
    ],
    ids=["first", "last", "cut", "inner", "duplicate", "infinite", "large", "digits"],
)
def test_a_request_that_cannot_be_decoded_is_answered_under_its_id(line: bytes) -> None:
    with pytest.raises(ParseError) as refused:
        parse_message(line)
    assert (refused.value.code, refused.value.id) == (PARSE_ERROR, 66)


def test_an_answer_that_cannot_be_decoded_counts_as_a_refusal() -> None:
    for line in (b'{"id":"q","result":%s}' % DEEP, b'{"result":{"x":NaN},"id":"q"}'):
        message = parse_message(line)
        assert isinstance(message, ErrorAnswer)
        assert message.id == "q"


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error", "code"]), inner)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(any_text | st.sampled_from(["id", "method"]), json_like, max_size=5).filter(
        lambda value: not {"id", "method"} <= value.keys() or list(value)[-1] in ("id", "method")
    )
)
@example({"x": '"]}', "id": 1, "y": {"method": "m", "id": 2}})
@example({"\\": "\\", "method": 1, "id": '"'})
def test_an_outline_is_what_a_decoder_reads(value: dict[str, Json]) -> None:
    outline = read_outline(json.dumps(value))
    id_ = value.get("id")
    readable = isinstance(id_, str) or (type(id_) is int and len(str(abs(id_))) <= 20)
    assert outline.id == (id_ if readable else None)
    assert outline.has_method == ("method" in value)


@given(st.text(alphabet='{}[]",:\\ idmeth1', max_size=60))
@example("[" * 2_000_000)
@example('{"' + '\\"' * 500_000)
@example('{"id":1,' + '"a":[],' * (MOST_TOKENS // 2))
def test_any_text_has_an_outline(text: str) -> None:
    assert isinstance(read_outline(text), MessageOutline)


def parsed(line: bytes) -> Message | ParseError:
    try:
        return parse_message(line)
    except ParseError as error:
        return error


@given(ids, any_text)
def test_a_dumped_request_is_parsed_back(id_: str | int, method: str) -> None:
    assert parse_message(dump_request(id_, method, b'{"a":1}')) == Request(id_, method, {"a": 1})
    assert parse_message(dump_request(id_, method)) == Request(id_, method)
    assert parse_message(dump_notification(method, b"[]")) == Notification(method, [])


@given(ids, any_text, json_like)
def test_a_dumped_answer_is_parsed_back(id_: str | int, text: str, data: Json) -> None:
    assert parse_message(dump_response(id_, b'{"a":1}')) == Response(id_, {"a": 1})
    answer = dump_error(id_, -32600, text)
    assert parse_message(answer) == ErrorAnswer(id_, -32600, text)
    assert b"\n" not in answer
    assert json.loads(dump_error(None, -32600, text, {"kind": "x"}))["error"]["data"] == {"kind": "x"}


def test_messages_begin_with_what_tells_them_apart() -> None:
    assert dump_notification("m", b"{}") == b'{"method":"m","params":{}}'
    assert dump_response(1, b"{}") == b'{"id":1,"result":{}}'
    assert dump_request("a", "m", b"{}") == b'{"id":"a","method":"m","params":{}}'
    assert dump_error(None, -1, "x") == b'{"id":null,"error":{"code":-1,"message":"x"}}'


@given(st.text(st.characters(exclude_categories=()), max_size=400))
def test_an_echo_is_bounded(text: str) -> None:
    cut = shortened(text)
    assert len(cut.encode("utf-8", "surrogatepass")) <= ECHO_LIMIT
    if len(text) <= ECHO_LIMIT // 4:
        assert cut == text


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":7,"error":{"a":1,"a":2}',
        b'{"a":1,"a":2}}',
        b'{"a":{"b":1,"b":2},"c":' + b"[" * 100_000,
        b'{"a":1,"a":NaN}',
    ],
    ids=["cut", "more", "deep", "NaN"],
)
def test_a_duplicate_key_in_what_is_no_json_is_a_parse_error(line: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        parse_message(line)
    assert caught.value.code == PARSE_ERROR
