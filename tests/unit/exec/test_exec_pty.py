"""Commands on a terminal of their own."""

import anyio
import pytest

from app_server.core.exec.process import TerminalSize
from app_server.core.exec.terminal import PtySession
from protocol.policy import ReadOnly, SandboxPolicy
from tests.unit.exec.conftest import Bench


async def until(session: PtySession, words: bytes) -> bytes:
    seen = b""
    with anyio.fail_after(10):
        while words not in seen:
            seen += await session.read(0.05)
    return seen


@pytest.mark.parametrize("policy", [None, ReadOnly()])
async def test_a_session_is_written_to_and_answers(bench: Bench, policy: SandboxPolicy | None) -> None:
    spec = bench.spec("sh", "-c", "test -t 0 && echo terminal; read a; echo got:$a; exit 7", policy=policy)
    session = await bench.runner.open_session(spec, TerminalSize(30, 100))
    await until(session, b"terminal")
    await session.write(b"hello\n")
    await until(session, b"got:hello")
    await session.wait_ended()
    assert session.exit_code == 7
    await session.close()


async def test_output_is_taken_in_unread_and_kept_to_a_cap(bench: Bench) -> None:
    session = await bench.runner.open_session(bench.spec("sh", "-c", "seq 100000; echo end"))
    with anyio.fail_after(10):
        await session.wait_ended()
    output = await session.read(0)
    assert output.startswith(b"1\r\n")
    assert output.endswith(b"end\r\n")
    assert len(output) < 200_000
    await session.close()


async def test_closing_ends_the_command(bench: Bench) -> None:
    session = await bench.runner.open_session(bench.spec("sh", "-c", "trap '' HUP TERM; echo up; sleep 100"))
    await until(session, b"up")
    await session.close()
    assert session.exit_code == 137


async def test_a_program_that_is_missing(bench: Bench) -> None:
    session = await bench.runner.open_session(bench.spec("no-such-program"))
    await session.wait_ended()
    assert session.failure is not None
    assert "NotFound" in session.failure
    await session.close()
