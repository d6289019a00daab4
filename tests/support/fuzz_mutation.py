"""Nearly valid bytes: a valid input that is cut, doubled, swapped and mixed with bytes that break parsers."""

import os
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = 20_000 if os.environ.get("FAULTS") == "long" else 60

thorough = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

NASTY = (
    *(
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n",
        b"\r\n\r\n",
        b"\xe2\x80\xa8",
        b"\x1b[2J",
    ),
    *(b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b"$(", b"`", b";", b"&&", b"|", b">", b"<<E\n", b"#", b"="),
    *(
        b"NaN",
        b"1e999",
        b"-0",
        b"9" * 400,
        b"null",
        b"true",
        b"\\ud800",
        b"[" * 3000,
        b'{"a":' * 500,
        b" " * 5000,
    ),
    *(b"*** ", b"@@", b"+++", b"data:", b"event:", b":", b"[[", b"inf", b"../", b"/dev/zero", b"~"),
)


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """Draw one of the samples after a few mutations."""
    data = draw(st.sampled_from(list(samples)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.integers(at, min(len(data), at + 40)))
        match draw(st.sampled_from(("cut", "double", "insert", "replace", "splice", "end"))):
            case "cut":
                data = data[:at] + data[to:]
            case "double":
                data = data[:to] + data[at:]
            case "insert":
                data = data[:at] + draw(st.sampled_from(NASTY)) + data[at:]
            case "replace":
                data = data[:at] + draw(st.binary(max_size=8)) + data[to:]
            case "splice":
                other = draw(st.sampled_from(list(samples)))
                data = data[:at] + other[draw(st.integers(0, len(other))) :]
            case "end":
                data = data[:at]
    return data


@st.composite
def chunks(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Draw the same bytes in pieces, as a pipe might deliver them."""
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
