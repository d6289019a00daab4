"""Assembles seccomp filters: a list of rules becomes a classic BPF program. Pure.

A rule has the number of a system call, an action, and optionally tests of the arguments; the first rule that matches
decides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from app_server.core.sandbox.confine.light_dataclasses import dataclass

LOAD, AND, JUMP, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
NOTIFY = 0x7FC00000
"""The call waits for the response of the process that has the filter's listener."""

OFFSET_NUMBER, OFFSET_ARCH, OFFSET_ARGUMENTS = 0, 4, 16
X32_BIT = 0x40000000

LEAF = 3
"""Numbers that a leaf of the tree compares one after another."""


@dataclass(frozen=True, slots=True)
class Test:
    """Passes if the low half of the argument, masked, is one of `values`, or with `negate`, none of them.

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
    """The filter's return value: ERRNO with an error number, or NOTIFY."""
    when: tuple[Test, ...] = ()
    """All of them must pass."""


def assemble(arch: int, rules: Iterable[FilterRule], *, x32: bool) -> bytes:
    """Make the program: it kills calls of foreign architectures, applies the rules, and allows the rest.

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

    It is assembled backwards, because each test jumps over everything behind it when it fails, and the length of that
    must be known. A test overwrites the accumulator, so the system call's number is loaded again at the end: that is
    where a failed test lands, and the next rule compares the number.
    """
    code = [_op(RETURN, rule.action)]
    for test in reversed(rule.when):
        code = [*_check(test, past=len(code)), *code]
    return [*code, _load(OFFSET_NUMBER)] if rule.when else code


def _check(test: Test, past: int) -> list[bytes]:
    """Fall through if the test passes; otherwise jump over the next `past` instructions."""
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
