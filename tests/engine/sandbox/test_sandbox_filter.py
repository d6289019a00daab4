"""The system call filter, run by an interpreter of its byte code."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.sandbox.launcher import seccomp

X86, ARM = seccomp.ARCHITECTURES["x86_64"], seccomp.ARCHITECTURES["aarch64"]
EPERM, ENOSYS = seccomp.ERRNO | 1, seccomp.ERRNO | 38


def play(program: bytes, number: int, *arguments: int, arch: int = X86) -> int:
    """Return what the kernel would return for this call."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<iIQ6Q", number, arch, 0, *(value & (1 << 64) - 1 for value in padded))
    code = list(struct.iter_unpack("<HBBI", program))
    position = accumulator = 0
    while True:
        operation, jump_true, jump_false, value = code[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                position += jump_true if accumulator == value else jump_false
            case 0x35:
                position += jump_true if accumulator >= value else jump_false
            case 0x05:
                position += value
            case 0x06:
                return int(value)
            case other:
                raise AssertionError(f"operation {other:#x}")


def program(
    machine: str = "x86_64",
    *,
    network: bool = False,
    namespaces: bool = True,
    read_only: bool = False,
    broker: bool = False,
    part: str = seccomp.WHOLE,
) -> bytes:
    return seccomp.filter_bytes(machine, seccomp.Filter(network, namespaces, read_only, broker, part))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("network", [True, False])
def test_every_refused_call_is_refused_and_others_pass(machine: str, network: bool) -> None:
    column = 0 if machine == "x86_64" else 1
    code = program(machine, network=network)
    arch = seccomp.ARCHITECTURES[machine]
    refused = {numbers[column] for numbers in seccomp.REFUSED.values()} - {seccomp.ABSENT}
    online = {numbers[column] for numbers in seccomp.REFUSED_WITHOUT_BROKER.values()}
    for number in refused:
        assert play(code, number, arch=arch) == EPERM
    for number in {*online, seccomp.CONNECT[column]}:
        assert play(code, number, arch=arch) == (seccomp.ALLOW if network else EPERM)
    assert play(code, seccomp.CLONE3[column], arch=arch) == ENOSYS
    assert play(code, seccomp.OPENAT2[column], arch=arch) == ENOSYS
    for request, answer in ((1024, EPERM), (1026, EPERM), (1025, seccomp.ALLOW), (2, seccomp.ALLOW)):
        assert play(code, seccomp.FCNTL[column], 3, request, arch=arch) == answer
    assert play(code, 63, arch=arch) == seccomp.ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("broker", [True, False])
def test_both_parts_together_answer_what_the_whole_does(machine: str, network: bool, broker: bool) -> None:
    """If there are several filters, the kernel takes the answer that comes first in this order."""
    strictness = {seccomp.KILL_PROCESS: 0, ENOSYS: 1, EPERM: 1, seccomp.NOTIFY: 2, seccomp.ALLOW: 3}
    whole = program(machine, network=network, broker=broker)
    ahead = program(machine, network=network, part=seccomp.AHEAD)
    rest = program(machine, network=network, broker=broker, part=seccomp.REST)
    arch = seccomp.ARCHITECTURES[machine]
    for number in range(500):
        for argument in (0, 1, 2, 5, 0x11, 0o4755, seccomp.NEW_NAMESPACES, 0x5412):
            arguments = [argument] * 5
            answers = [play(code, number, *arguments, arch=arch) for code in (ahead, rest)]
            assert min(answers, key=strictness.__getitem__) == play(whole, number, *arguments, arch=arch)
    column = 0 if machine == "x86_64" else 1
    for name in seccomp.LATE:
        assert play(ahead, seccomp.REFUSED[name][column], arch=arch) == seccomp.ALLOW
    for numbers in (seccomp.CONNECT, seccomp.OPENAT2):  # calls that the broker needs
        assert play(ahead, numbers[column], arch=arch) == seccomp.ALLOW
    assert play(ahead, seccomp.CLONE[column], seccomp.NEW_NAMESPACES, arch=arch) == seccomp.ALLOW
    assert play(ahead, seccomp.REFUSED["ptrace"][column], arch=arch) == EPERM


TESTS = st.builds(
    seccomp.Test, st.integers(0, 1), st.sampled_from(((1, 2), (0,), (3,))), negate=st.booleans()
) | st.builds(seccomp.Test, st.just(1), st.just(()), wide=st.just(True))
RULES = st.lists(
    st.builds(
        seccomp.FilterRule,
        st.integers(0, 400),
        st.sampled_from((EPERM, ENOSYS, seccomp.NOTIFY)),
        st.lists(TESTS, max_size=3).map(tuple),
    ),
    max_size=300,
)


def holds(test: seccomp.Test, arguments: tuple[int, int]) -> bool:
    value = arguments[test.argument]
    return value != 0 if test.wide else (value in test.values) != test.negate


@given(RULES, st.lists(st.tuples(*[st.integers(0, 400), *[st.integers(0, 3)] * 2]), min_size=1, max_size=50))
def test_the_first_rule_whose_tests_hold_decides(
    rules: list[seccomp.FilterRule], calls: list[tuple[int, int, int]]
) -> None:
    code = seccomp.assemble(X86, rules, x32=True)
    for number, *arguments in [*calls, *((rule.number, 1, 2) for rule in rules[:20])]:
        expected = seccomp.ALLOW
        for rule in rules:
            if rule.number == number and all(holds(test, (arguments[0], arguments[1])) for test in rule.when):
                expected = rule.action
                break
        assert play(code, number, *arguments) == expected


def test_foreign_machines_are_killed() -> None:
    assert play(program(), 41, arch=0x40000003) == seccomp.KILL_PROCESS
    assert play(program(), 0x40000000 | 41, 1, 1) == seccomp.KILL_PROCESS
    assert play(program("aarch64"), 1, arch=X86) == seccomp.KILL_PROCESS


@pytest.mark.parametrize(
    ("family", "kind", "offline", "online"),
    [
        (1, 1, seccomp.ALLOW, seccomp.NOTIFY),
        (1, 1 | 0x80800, seccomp.ALLOW, seccomp.NOTIFY),
        (1, 5, seccomp.ALLOW, seccomp.NOTIFY),
        (1, 2, EPERM, EPERM),
        (1, 3, EPERM, EPERM),
        (1, 2 | 0x80000, EPERM, EPERM),
        (2, 1, EPERM, seccomp.ALLOW),
        (10, 2, EPERM, seccomp.ALLOW),
        (16, 3, EPERM, seccomp.ALLOW),
        (40, 1, EPERM, EPERM),
        (17, 3, EPERM, EPERM),
        (1 << 32 | 2, 1, EPERM, seccomp.ALLOW),
    ],
)
def test_sockets_by_family_and_kind(family: int, kind: int, offline: int, online: int) -> None:
    assert play(program(broker=True), 41, family, kind) == offline
    assert play(program(network=True, broker=True), 41, family, kind) == online
    # Without a broker, unix sockets with the network on could reach any process.
    assert play(program(network=True), 41, family, kind) == (EPERM if online == seccomp.NOTIFY else online)


@pytest.mark.parametrize("network", [True, False])
def test_socketpair_is_allowed_for_stream_sockets_only(network: bool) -> None:
    code = program(network=network)
    assert play(code, 53, 1, 2) == EPERM
    assert play(code, 53, 1, 1 | 0x80000) == seccomp.ALLOW
    assert play(code, 53, 30, 1) == EPERM


@pytest.mark.parametrize("network", [True, False])
def test_with_a_broker_it_is_asked_where_a_connection_leads(network: bool) -> None:
    code = program(network=network, broker=True)
    assert play(code, 42, 3, 0x7000, 110) == seccomp.NOTIFY
    for numbers in seccomp.REFUSED_WITHOUT_BROKER.values():
        assert play(code, numbers[0]) == seccomp.ALLOW


def test_sendto_passes_only_without_an_address() -> None:
    assert play(program(), 44, 3, 0x7000, 1, 0, 0) == seccomp.ALLOW
    assert play(program(), 44, 3, 0x7000, 1, 0, 0x7FFF00000000) == EPERM
    assert play(program(), 44, 3, 0x7000, 1, 0, 0x1000) == EPERM
    assert play(program(network=True), 44, 3, 0x7000, 1, 0, 0x1000) == seccomp.ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("namespaces", [True, False])
def test_no_call_makes_a_setuid_file(machine: str, namespaces: bool) -> None:
    column, arch = (0, X86) if machine == "x86_64" else (1, ARM)
    code = program(machine, namespaces=namespaces)
    for row in seccomp.MODES.values():
        for mode, answer in ((0o4755, EPERM), (0o2755, EPERM), (0o107755, EPERM), (0o1777, seccomp.ALLOW)):
            arguments = [0] * 5
            arguments[row[2]] = mode
            if row[column] != seccomp.ABSENT:
                assert play(code, row[column], *arguments, arch=arch) == answer
    for row in seccomp.OPENING.values():
        for flags, mode, answer in (
            (os.O_CREAT, 0o4755, EPERM),
            (os.O_TMPFILE, 0o4755, EPERM),
            (os.O_CREAT, 0o755, seccomp.ALLOW),
            (0, 0o4755, seccomp.ALLOW),
        ):
            arguments = [0] * 5
            arguments[row[2] : row[2] + 2] = flags, mode
            if row[column] != seccomp.ABSENT:
                assert play(code, row[column], *arguments, arch=arch) == answer


def test_namespaces_and_terminals() -> None:
    for flag in (0x10000000, 0x20000000, 0x00020000, 0x40000000, 0x80, 0x10000000 | 17):
        assert play(program(), 56, flag) == EPERM
        assert play(program(), 272, flag) == EPERM
    assert play(program(), 56, 0x003D0F00) == seccomp.ALLOW
    for request in (0x5412, 0x541C, 0x5423, 0xFFFFFFFF00005412):
        assert play(program(), 16, 0, request) == EPERM
    assert play(program(), 16, 0, 0x5401) == seccomp.ALLOW


def test_more_is_refused_without_namespaces() -> None:
    code = program(namespaces=False)
    assert play(code, 302, 0) == seccomp.ALLOW
    assert play(code, 302, 1234) == EPERM
    assert play(code, 240) == EPERM
    assert play(code, 90) == seccomp.ALLOW
    assert play(program(namespaces=False, read_only=True), 90) == EPERM
