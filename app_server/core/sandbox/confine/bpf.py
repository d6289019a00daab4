"""Builds classic BPF programs for seccomp: a list of rules to bytes. Pure.

A rule names a system call, what the kernel does with it, and optionally tests of its arguments; the first rule
that matches decides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

LOAD, AND, JUMP, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
NOTIFY = 0x7FC00000
"""The call waits until whoever listens to the filter has answered it."""

OFFSET_NUMBER, OFFSET_ARCH, OFFSET_ARGUMENTS = 0, 4, 16
X32_BIT = 0x40000000

LEAF = 3
"""So many numbers are compared one after the other."""


@dataclass(frozen=True, slots=True)
class Test:
    """Holds when the low half of the argument, masked, is one of `values` (or none of them, when
    `negate`).

    The kernel itself reads only 32 bits of the arguments that are tested this way; a pointer is tested
    with `wide`, which looks at the high half too.
    """

    __test__ = False
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    negate: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    number: int
    action: int
    """What the filter returns: ERRNO with a number, or NOTIFY."""
    when: tuple[Test, ...] = ()
    """All of them hold."""


def assemble(arch: int, rules: Iterable[Rule], *, x32: bool) -> bytes:
    """The program: foreign machines are killed, the rules decide, the rest is allowed.

    The rules are a tree over the numbers: when a filter is installed, the kernel runs it once for every system call
    that there is, and a list would make each command wait for that.
    """
    code = [_load(OFFSET_ARCH), _op(JUMP_EQUAL, arch, 1, 0), _op(RETURN, KILL_PROCESS), _load(OFFSET_NUMBER)]
    if x32:
        code += [_op(JUMP_AT_LEAST, X32_BIT, 0, 1), _op(RETURN, KILL_PROCESS)]
    by_number: dict[int, list[Rule]] = {}
    for rule in rules:
        by_number.setdefault(rule.number, []).append(rule)
    return b"".join([*code, *_tree([by_number[number] for number in sorted(by_number)])])


def _tree(groups: list[list[Rule]]) -> list[bytes]:
    """Decides among the rules of these numbers, which are in order; every way through it returns."""
    if len(groups) <= LEAF:
        code: list[bytes] = []
        for rule in (rule for group in groups for rule in group):
            body = _body(rule)
            code += [_op(JUMP_EQUAL, rule.number, 0, len(body)), *body]
        return [*code, _op(RETURN, ALLOW)]
    middle = len(groups) // 2
    below = _tree(groups[:middle])
    # A conditional jump reaches 255 steps, the other kind reaches everything.
    choice = [_op(JUMP_AT_LEAST, groups[middle][0].number, 0, 1), _op(JUMP, len(below))]
    return [*choice, *below, *_tree(groups[middle:])]


def _body(rule: Rule) -> list[bytes]:
    """What follows where the number matches; the accumulator holds the number again where a test fails."""
    code = [_op(RETURN, rule.action)]
    for test in reversed(rule.when):
        code = [*_check(test, past=len(code)), *code]
    return [*code, _load(OFFSET_NUMBER)] if rule.when else code


def _check(test: Test, past: int) -> list[bytes]:
    """Goes on where the test holds, and otherwise over the `past` steps that follow."""
    low = OFFSET_ARGUMENTS + 8 * test.argument
    if test.wide:
        # A pointer that is not null: either half is not zero.
        return [_load(low), _op(JUMP_EQUAL, 0, 0, 2), _load(low + 4), _op(JUMP_EQUAL, 0, past, 0)]
    code = [_load(low), _op(AND, test.mask)]
    for left, value in zip(reversed(range(len(test.values))), test.values, strict=True):
        # A hit goes over the other values, and past what follows when negated; the last miss goes the other way.
        hit = left + past if test.negate else left
        miss = past if left == 0 and not test.negate else 0
        code.append(_op(JUMP_EQUAL, value, hit, miss))
    return code


def _load(offset: int) -> bytes:
    return _op(LOAD, offset)


def _op(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, jump_true, jump_false, value)
