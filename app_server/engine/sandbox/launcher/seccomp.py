"""The system calls that a confined command is refused, and the installation of the filter. Linux.

Every policy refuses calls that bypass the other layers: tracing, rings that act without system calls, mounts,
namespaces, kernel interfaces, typing into terminals, making setuid files. Of the unix family only stream and seqpacket
sockets exist: a datagram socket could send anywhere, since sendmsg carries an address that no filter sees. The address
of a stream socket is behind a pointer, too. So the socket broker (see `sockets`) answers `connect` if there is a
broker; without a broker only socket pairs exist.
"""

from __future__ import annotations

import ctypes
import struct

from app_server.engine.sandbox.launcher.stdlib_min import Iterable
from app_server.engine.sandbox.launcher.syscalls import MACHINE, X86_64, call
from app_server.engine.support.light_dataclasses import dataclass

LOAD, AND, JUMP, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
NOTIFY = 0x7FC00000
"""Action after which the call waits for the response of the process that has the filter's listener."""

OFFSET_NUMBER, OFFSET_ARCH, OFFSET_ARGUMENTS = 0, 4, 16
X32_BIT = 0x40000000

LEAF = 3
"""Number of system calls that a leaf of the tree compares one after another."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test of an argument. It passes if the low half of the argument, masked, is one of `values`, or with `negate`,
    none of them.

    The kernel itself reads only 32 bits of the arguments that are tested in this way. `wide` tests a pointer for not
    being null and includes the high half.
    """

    __test__ = False
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    negate: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True)
class FilterRule:
    number: int
    action: int
    """Return value of the filter: ERRNO with an error number, or NOTIFY."""
    when: tuple[Test, ...] = ()
    """Tests that must all pass."""


def assemble(arch: int, rules: Iterable[FilterRule], *, x32: bool) -> bytes:
    """Return the program. It kills calls of foreign architectures, applies the rules, and allows the rest.

    The rules become a binary tree over the numbers. When a filter is installed, the kernel runs it once for every
    possible system call, so the time of a linear list would be added to the start of each command.
    """
    code = [_load(OFFSET_ARCH), _op(JUMP_EQUAL, arch, 1, 0), _op(RETURN, KILL_PROCESS), _load(OFFSET_NUMBER)]
    if x32:
        code += [_op(JUMP_AT_LEAST, X32_BIT, 0, 1), _op(RETURN, KILL_PROCESS)]
    by_number: dict[int, list[FilterRule]] = {}
    for rule in rules:
        by_number.setdefault(rule.number, []).append(rule)
    return b"".join([*code, *_tree([by_number[number] for number in sorted(by_number)])])


def _tree(groups: list[list[FilterRule]]) -> list[bytes]:
    """Return the code for these numbers, which are sorted. Every path through it ends in a RETURN."""
    if len(groups) <= LEAF:
        code: list[bytes] = []
        for rule in (rule for group in groups for rule in group):
            body = _body(rule)
            code += [_op(JUMP_EQUAL, rule.number, 0, len(body)), *body]
        return [*code, _op(RETURN, ALLOW)]
    middle = len(groups) // 2
    below = _tree(groups[:middle])
    # A conditional jump reaches at most 255 instructions, so an unconditional one skips the lower half.
    choice = [_op(JUMP_AT_LEAST, groups[middle][0].number, 0, 1), _op(JUMP, len(below))]
    return [*choice, *below, *_tree(groups[middle:])]


def _body(rule: FilterRule) -> list[bytes]:
    """Return the code of a rule after its number has matched.

    It is assembled backwards, because a failed test jumps over all code behind it, and the length of that code must be
    known. A test overwrites the accumulator, so the system call's number is loaded again at the end. A failed test
    jumps there, and the next rule compares the number.
    """
    code = [_op(RETURN, rule.action)]
    for test in reversed(rule.when):
        code = [*_check(test, past=len(code)), *code]
    return [*code, _load(OFFSET_NUMBER)] if rule.when else code


def _check(test: Test, past: int) -> list[bytes]:
    """Return code that falls through if the test passes, and otherwise jumps over the next `past` instructions."""
    low = OFFSET_ARGUMENTS + 8 * test.argument
    if test.wide:
        # A pointer is not null if either half is not zero. A low half other than zero skips the check of the high half.
        return [_load(low), _op(JUMP_EQUAL, 0, 0, 2), _load(low + 4), _op(JUMP_EQUAL, 0, past, 0)]
    code = [_load(low), _op(AND, test.mask)]
    for left, value in zip(reversed(range(len(test.values))), test.values, strict=True):
        # A match jumps over the remaining values, and with `negate` also over the `past` instructions. The last value
        # without a match does the opposite.
        hit = left + past if test.negate else left
        miss = past if left == 0 and not test.negate else 0
        code.append(_op(JUMP_EQUAL, value, hit, miss))
    return code


def _load(offset: int) -> bytes:
    return _op(LOAD, offset)


def _op(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, jump_true, jump_false, value)


ARCHITECTURES = {X86_64: 0xC000003E, "aarch64": 0xC00000B7}
EPERM, ENOSYS = 1, 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_SET_MODE_FILTER = 1
NEW_LISTENER = 1 << 3
"""Flag of a filter with a listener. A signal interrupts a call that waits for the listener, such as a connect that
takes long, so that programs can limit its time.
"""
NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW* of clone(2) and unshare(2)."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SET_ID_BITS = 0o6000
"""S_ISUID and S_ISGID."""
MAKING = 0o100 | 0o20000000
"""O_CREAT and the bit of O_TMPFILE: without them open(2) takes no mode."""
SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE_MASK = 1, 5, 0xF
TERMINAL_REQUESTS = (0x5412, 0x541C, 0x5423, 0x541D)
"""TIOCSTI and TIOCLINUX type into a terminal, TIOCSETD changes its line discipline, TIOCCONS takes the
console.
"""
WATCHING_OTHERS = (1024, 1026)
"""F_SETLEASE and F_NOTIFY of fcntl(2). A lease on a file that a command may only read makes each writer of it wait for
up to 45 seconds, including the server; a notification reveals the work of other processes.
"""

ABSENT = -1

# name: (x86_64, aarch64)
REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "open_by_handle_at": (304, 265), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, ABSENT), "ioperm": (173, ABSENT),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18), "vhangup": (153, 58), "fanotify_init": (300, 262),
    "uselib": (134, ABSENT), "ustat": (136, ABSENT),
}  # fmt: skip

REFUSED_WITHOUT_BROKER = {
    "accept": (43, 202), "accept4": (288, 242), "bind": (49, 200), "listen": (50, 201),
}  # fmt: skip
"""Calls that are refused if the network is off and there is no broker; with a broker they concern only connections
between commands.
"""

MODES = {
    "chmod": (90, ABSENT, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2), "fchmodat2": (452, 452, 2),
    "creat": (85, ABSENT, 1), "mknod": (133, ABSENT, 1), "mknodat": (259, 33, 2),
}  # fmt: skip
"""Numbers of calls that set a mode, and the index of the mode argument. mkdir(2) ignores the relevant bits."""

OPENING = {"open": (2, ABSENT, 1), "openat": (257, 56, 2)}
"""Numbers of calls that open files, and the index of the flags argument; the mode follows it."""

REFUSED_WITHOUT_NAMESPACES = {
    "mq_open": (240, 180), "mq_unlink": (241, 181), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186),
}  # fmt: skip

METADATA = {
    "chmod": (90, ABSENT), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, ABSENT), "fchown": (93, 55), "lchown": (94, ABSENT), "fchownat": (260, 54),
    "utime": (132, ABSENT), "utimes": (235, ABSENT), "futimesat": (261, ABSENT), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
"""Calls that change metadata. They are refused if nothing may be written and no mounts protect metadata, because
Landlock has no right for it.
"""

CLONE, CLONE3, UNSHARE, IOCTL, FCNTL = (56, 220), (435, 435), (272, 97), (16, 29), (72, 25)
CONNECT, SENDMMSG, OPENAT2 = (42, 203), (307, 269), (437, 437)
SOCKET, SOCKETPAIR, SENDTO, PRLIMIT64, SETPRIORITY = (41, 198), (53, 199), (44, 206), (302, 261), (141, 140)


LATE = ("mount", "umount2", "open_tree", "move_mount", "mount_setattr", "pivot_root", "pidfd_getfd")
"""Calls with which the namespaces of a command are set up, and calls that the socket broker needs, besides those in
`filter_bytes`. The other calls are refused to the process that sets up namespaces as well, so that the kernel need not
process the whole filter while a command waits.
"""


WHOLE = "whole"
AHEAD = "ahead"
"""Part of the filter without the late calls."""
REST = "rest"
"""Part of the filter that `AHEAD` left out; both together refuse the same as the whole."""


class Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@dataclass(frozen=True, slots=True)
class Filter:
    """The variant of the filter."""

    network: bool
    namespaces: bool
    read_only: bool = False
    broker: bool = False
    """Whether there is a listener that answers `connect`."""
    part: str = WHOLE
    """Part of the filter that is installed at once."""


def filter_bytes(machine: str, kind: Filter) -> bytes:
    """Return the program for one machine and policy."""
    column = 0 if machine == X86_64 else 1
    rules = [
        FilterRule(
            CLONE3[column], ERRNO | ENOSYS
        ),  # flags behind a pointer; the C library falls back to clone
        FilterRule(
            OPENAT2[column], ERRNO | ENOSYS
        ),  # a mode behind a pointer; programs that call it fall back to openat
        FilterRule(CLONE[column], ERRNO | EPERM, (_any_of(0, NEW_NAMESPACES),)),
        FilterRule(UNSHARE[column], ERRNO | EPERM, (_any_of(0, NEW_NAMESPACES),)),
        FilterRule(IOCTL[column], ERRNO | EPERM, (Test(1, TERMINAL_REQUESTS),)),
        FilterRule(FCNTL[column], ERRNO | EPERM, (Test(1, WATCHING_OTHERS),)),
        *_refuse(REFUSED, column),
        *_set_id_rules(column),
        *_socket_rules(kind, column),
    ]
    if not kind.namespaces:
        # Without namespaces other processes are reachable: their limits and priorities must not be changed.
        rules += [
            FilterRule(PRLIMIT64[column], ERRNO | EPERM, (Test(0, (0,), negate=True),)),
            FilterRule(SETPRIORITY[column], ERRNO | EPERM, (Test(1, (0,), negate=True),)),
            *_refuse(REFUSED_WITHOUT_NAMESPACES, column),
            *(_refuse(METADATA, column) if kind.read_only else ()),
        ]
    if kind.part != WHOLE:
        late = {CLONE[column], UNSHARE[column], OPENAT2[column], CONNECT[column]}
        late |= {REFUSED[name][column] for name in LATE}
        late |= {numbers[column] for numbers in REFUSED_WITHOUT_BROKER.values()}
        if kind.network:
            late.add(SOCKET[column])  # the broker creates those of the unix family
        rules = [rule for rule in rules if (rule.number in late) is (kind.part == REST)]
    rules = [rule for rule in rules if rule.number != ABSENT]
    return assemble(ARCHITECTURES[machine], rules, x32=machine == X86_64)


def _refuse(table: dict[str, tuple[int, int]], column: int) -> list[FilterRule]:
    return [FilterRule(numbers[column], ERRNO | EPERM) for numbers in table.values()]


def _set_id_rules(column: int) -> list[FilterRule]:
    """Refuse to make setuid files: such a file would give the user's or root's rights to anyone who can reach it."""
    rules = [
        FilterRule(row[column], ERRNO | EPERM, (_any_of(row[2], SET_ID_BITS),)) for row in MODES.values()
    ]
    rules += [
        FilterRule(row[column], ERRNO | EPERM, (_any_of(row[2], MAKING), _any_of(row[2] + 1, SET_ID_BITS)))
        for row in OPENING.values()
    ]
    return rules


def _socket_rules(kind: Filter, column: int) -> list[FilterRule]:
    socket, pair, refuse = SOCKET[column], SOCKETPAIR[column], ERRNO | EPERM
    unix = Test(0, (AF_UNIX,))
    other_family = Test(0, (AF_UNIX,), negate=True)
    other_kind = Test(1, (SOCK_STREAM, SOCK_SEQPACKET), mask=SOCK_TYPE_MASK, negate=True)
    rules = [FilterRule(pair, refuse, (other_family,)), FilterRule(pair, refuse, (other_kind,))]
    if kind.network:
        families = Test(0, (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK), negate=True)
        rules += [FilterRule(socket, refuse, (families,)), FilterRule(socket, refuse, (unix, other_kind))]
        # The broker creates sockets of the unix family, in a network namespace of its own, apart from those outside.
        rules.append(FilterRule(socket, NOTIFY if kind.broker else refuse, (unix,)))
        return [*rules, FilterRule(CONNECT[column], NOTIFY)] if kind.broker else rules
    rules += [FilterRule(socket, refuse, (other_family,)), FilterRule(socket, refuse, (other_kind,))]
    rules.append(FilterRule(SENDTO[column], refuse, (Test(4, (), wide=True),)))
    rules.append(FilterRule(SENDMMSG[column], refuse))
    rules.append(FilterRule(CONNECT[column], NOTIFY if kind.broker else refuse))
    return rules if kind.broker else [*rules, *_refuse(REFUSED_WITHOUT_BROKER, column)]


def _any_of(argument: int, bits: int) -> Test:
    """Test that at least one of these bits is set."""
    return Test(argument, (0,), mask=bits, negate=True)


def program(kind: Filter) -> Program:
    """Return the program for this machine. Raises OSError on an unknown machine."""
    if MACHINE not in ARCHITECTURES:
        raise OSError(ENOSYS, f"no filter for {MACHINE}")
    code = filter_bytes(MACHINE, kind)
    return Program(len(code) // 8, code)


def install(kind: Filter) -> None:
    """Filter this thread and all processes that it starts; no_new_privs must be set. Raises OSError on an unknown
    machine.
    """
    install_program(program(kind))


def install_program(filtering: Program) -> None:
    """Filter this thread with an existing program."""
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filtering), 0, 0)


def install_listening(filtering: Program) -> int:
    """Filter this thread; return the descriptor on which calls with the action `NOTIFY` arrive. Raises OSError if this
    kernel cannot do that (before 5.0), or if a filter around the server has a listener already.
    """
    return call("seccomp", SECCOMP_SET_MODE_FILTER, NEW_LISTENER, ctypes.addressof(filtering))
