"""Which system calls a confined command is refused, and how the filter is installed. Linux.

What reaches around the other layers is refused on every policy: tracing, rings that act without system
calls, mounts, namespaces, kernel interfaces, typing into terminals. Without the network only stream
sockets of the unix family exist, and only as pairs: a datagram socket could send anywhere, since sendmsg
carries an address that no filter sees.
"""

from __future__ import annotations

import ctypes
import functools
from enum import Enum

from app_server.core.sandbox.confine.bpf import Rule, Test, assemble
from app_server.core.sandbox.confine.syscalls import MACHINE, PR_SET_SECCOMP, X86_64, call

ARCHITECTURES = {X86_64: 0xC000003E, "aarch64": 0xC00000B7}
EPERM, ENOSYS = 1, 38
SECCOMP_MODE_FILTER = 2
NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW* of clone(2) and unshare(2)."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE_MASK = 1, 5, 0xF
TERMINAL_REQUESTS = (0x5412, 0x541C, 0x5423, 0x541D)
"""TIOCSTI and TIOCLINUX type into a terminal, TIOCSETD changes its line discipline, TIOCCONS takes the
console.
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

REFUSED_WITHOUT_NETWORK = {
    "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242), "bind": (49, 200),
    "listen": (50, 201), "sendmmsg": (307, 269),
}  # fmt: skip

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
"""Where nothing may be written and no mounts protect it, the one thing that Landlock has no right for."""

CLONE, CLONE3, UNSHARE, IOCTL = (56, 220), (435, 435), (272, 97), (16, 29)
SOCKET, SOCKETPAIR, SENDTO, PRLIMIT64, SETPRIORITY = (41, 198), (53, 199), (44, 206), (302, 261), (141, 140)


SETTING_UP = ("mount", "umount2", "open_tree", "move_mount", "mount_setattr")
"""Calls, besides clone(2) with new namespaces, that a world for a command is made with. The rest is refused to whoever
makes it as well, so that the kernel need not digest all of the filter while a command waits.
"""


class Part(Enum):
    """How much of the filter is installed at once."""

    WHOLE = "whole"
    AHEAD = "ahead"
    """All but what `SETTING_UP` needs."""
    REST = "rest"
    """What `AHEAD` left out; both together refuse what the whole does."""


class Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@functools.cache
def filter_bytes(
    machine: str, *, network: bool, namespaces: bool, read_only: bool, part: Part = Part.WHOLE
) -> bytes:
    """The program for one machine and policy."""
    column = 0 if machine == X86_64 else 1

    def refuse(table: dict[str, tuple[int, int]]) -> list[Rule]:
        return [Rule(numbers[column], EPERM) for numbers in table.values() if numbers[column] != ABSENT]

    rules = [
        Rule(CLONE3[column], ENOSYS),  # its flags are behind a pointer; the C library falls back to clone
        Rule(CLONE[column], EPERM, _any_of(0, NEW_NAMESPACES)),
        Rule(UNSHARE[column], EPERM, _any_of(0, NEW_NAMESPACES)),
        Rule(IOCTL[column], EPERM, Test(1, TERMINAL_REQUESTS)),
        *refuse(REFUSED),
    ]
    if network:
        families = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
        rules.append(Rule(SOCKET[column], EPERM, Test(0, families, negate=True)))
    else:
        kinds = Test(1, (SOCK_STREAM, SOCK_SEQPACKET), mask=SOCK_TYPE_MASK, negate=True)
        for number in (SOCKET[column], SOCKETPAIR[column]):
            rules += [Rule(number, EPERM, Test(0, (AF_UNIX,), negate=True)), Rule(number, EPERM, kinds)]
        rules += [Rule(SENDTO[column], EPERM, Test(4, (), wide=True)), *refuse(REFUSED_WITHOUT_NETWORK)]
    if not namespaces:
        # Other processes are in reach here: their limits and priorities are not to be changed.
        rules += [
            Rule(PRLIMIT64[column], EPERM, Test(0, (0,), negate=True)),
            *refuse(REFUSED_WITHOUT_NAMESPACES),
        ]
        rules.append(Rule(SETPRIORITY[column], EPERM, Test(1, (0,), negate=True)))
        rules += refuse(METADATA) if read_only else []
    if part is not Part.WHOLE:
        late = {CLONE[column], *(REFUSED[name][column] for name in SETTING_UP)}
        rules = [rule for rule in rules if (rule.number in late) is (part is Part.REST)]
    return assemble(ARCHITECTURES[machine], rules, x32=machine == X86_64)


def _any_of(argument: int, bits: int) -> Test:
    """At least one of these bits is set."""
    return Test(argument, (0,), mask=bits, negate=True)


def prepare(*, network: bool, namespaces: bool, read_only: bool, part: Part = Part.WHOLE) -> bytes:
    """The program for this machine; built once, so that what is forked from here need not. OSError where it is
    unknown."""
    if MACHINE not in ARCHITECTURES:
        raise OSError(ENOSYS, f"no filter for {MACHINE}")
    return filter_bytes(MACHINE, network=network, namespaces=namespaces, read_only=read_only, part=part)


def install(*, network: bool, namespaces: bool, read_only: bool, part: Part = Part.WHOLE) -> None:
    """Filters this thread and all that it starts; no_new_privs must be set. OSError on an unknown machine."""
    code = prepare(network=network, namespaces=namespaces, read_only=read_only, part=part)
    program = Program(len(code) // 8, code)
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0)
