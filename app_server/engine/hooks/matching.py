"""Matchers of hooks: a small part of regular expressions, which is matched without backtracking. Pure.

A matcher has characters, `.`, `|`, groups, classes such as `[a-z]`, `*`, `+`, `?`, and the anchors `^` and `$`. A
matcher of words and `|` alone stands for whole names; every other one is searched for in the name, as codex and Claude
Code do. Matching takes steps proportional to the lengths of name and matcher: all states are advanced at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

MOST_CHARACTERS = 1000
MOST_DEPTH = 20
"""Maximum depth of groups."""

_WORDS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_|")
_SPECIAL: Final = frozenset(r"\.^$|()[]{}*+?")
_CLASSES: Final[dict[str, Callable[[str], bool]]] = {
    "d": str.isdigit,
    "w": lambda character: character == "_" or character.isalnum(),
    "s": str.isspace,
}


class BadMatcher(ValueError):
    """The matcher is no expression of this kind. The text says what is wrong."""


class _Step(Struct):
    """A state: it takes one character that fits and goes on to `next`, or takes none and goes on to any of `also`."""

    fits: Callable[[str], bool] | None = None
    next: int = -1
    also: tuple[int, ...] = ()
    anchor: str = ""
    """`^` or `$` if the state is left only there."""


class NamePattern(Struct, frozen=True):
    """A matcher, ready for use."""

    text: str | None = None
    """The matcher as written; None if there is none."""
    exact: frozenset[str] | None = None
    """The whole names that match; None if the steps decide."""
    steps: tuple[_Step, ...] = ()
    start: int = 0
    end: int = 0

    def matches(self, name: str) -> bool:
        if self.exact is not None:
            return name in self.exact
        if not self.steps:
            return True
        states: set[int] = set()
        for position in range(len(name) + 1):
            # The match may begin anywhere in the name, and ends as soon as it can.
            anchors = ("^" if position == 0 else "") + ("$" if position == len(name) else "")
            states = self._reached(states | {self.start}, anchors)
            if self.end in states:
                return True
            following = name[position : position + 1]
            taken = (self.steps[state] for state in states)
            states = {step.next for step in taken if following and step.fits and step.fits(following)}
        return False

    def _reached(self, states: set[int], anchors: str) -> set[int]:
        """Return the states and those that they lead to without a character."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state not in found:
                found.add(state)
                step = self.steps[state]
                if step.anchor in anchors:
                    waiting.extend(step.also)
        return found


ALL_NAMES: Final = NamePattern()


def name_pattern(matcher: str | None) -> NamePattern:
    """Return the pattern of a matcher; None, an empty one and `*` are for all names. Raises BadMatcher."""
    if matcher is None or matcher in ("", "*"):
        return NamePattern(matcher)
    if len(matcher) > MOST_CHARACTERS:
        raise BadMatcher(f"it is longer than {MOST_CHARACTERS} characters")
    if _WORDS.issuperset(matcher):
        return NamePattern(matcher, frozenset(matcher.split("|")))
    return _Reader(matcher).pattern()


_Part = tuple[int, int]
"""The first and the last state of a part."""


class _Reader:
    """Reads one matcher from left to right and collects its states."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._steps: list[_Step] = []

    def pattern(self) -> NamePattern:
        start, end = self._choice()
        if self._at < len(self._text):
            raise self._mistake()
        return NamePattern(self._text, None, tuple(self._steps), start, end)

    def _choice(self) -> _Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        end = self._add()
        for part in parts:
            self._steps[part[1]].also += (end,)
        return self._add(*(part[0] for part in parts)), end

    def _sequence(self) -> _Part:
        start = end = self._add()
        while self._peek() not in ("", "|", ")"):
            first, last = self._repeated()
            self._steps[end].also += (first,)
            end = last
        return start, end

    def _repeated(self) -> _Part:
        first, last = self._atom()
        start, end = self._add(first), self._add()
        self._steps[last].also += (end,)
        match self._peek():
            case "*":
                self._steps[start].also += (end,)
                self._steps[last].also += (first,)
            case "+":
                self._steps[last].also += (first,)
            case "?":
                self._steps[start].also += (end,)
            case _:
                return start, end
        self._at += 1
        self._take("?")  # How much is taken makes no difference to whether a name matches.
        return start, end

    def _atom(self) -> _Part:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._character(self._class())
            case ".":
                return self._character(lambda each: each != "\n")
            case "\\":
                return self._character(self._escape())
            case "^" | "$":
                anchor = self._add()
                self._steps[anchor].anchor = character
                return anchor, anchor
            case _ if character in _SPECIAL:
                self._at -= 1
                raise self._mistake()
            case _:
                return self._character(character.__eq__)

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise BadMatcher(f"its groups are deeper than {MOST_DEPTH}")
        if self._take("?") and not self._take(":"):
            raise self._mistake()
        part = self._choice()
        if not self._take(")"):
            raise BadMatcher("a group is not closed")
        self._depth -= 1
        return part

    def _escape(self) -> Callable[[str], bool]:
        character = self._next("it ends with a backslash")
        named = _CLASSES.get(character.lower()) if character.isalpha() else None
        if named is not None:
            return named if character.islower() else lambda each: not named(each)
        if character.isalnum():
            raise BadMatcher(f"`\\{character}` has no meaning in a matcher")
        return character.__eq__

    def _class(self) -> Callable[[str], bool]:
        inverted = self._take("^")
        members = [self._member()]
        while not self._take("]"):
            members.append(self._member())
        return lambda each: any(fits(each) for fits in members) is not inverted

    def _member(self) -> Callable[[str], bool]:
        first = self._next("a class is not closed")
        if first == "\\":
            return self._escape()
        if first == "[":
            raise BadMatcher("a class inside a class has no meaning in a matcher")
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return first.__eq__
        self._at += 1
        last = self._next()
        if last in "\\[" or last < first:
            raise BadMatcher(f"`{first}-{last}` is no range")
        return lambda each: first <= each <= last

    def _character(self, fits: Callable[[str], bool]) -> _Part:
        end = self._add()
        self._steps.append(_Step(fits, end))
        return len(self._steps) - 1, end

    def _add(self, *also: int) -> int:
        self._steps.append(_Step(also=also))
        return len(self._steps) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self, at_end: str = "it ends too early") -> str:
        character = self._peek()
        if not character:
            raise BadMatcher(at_end)
        self._at += 1
        return character

    def _take(self, character: str) -> bool:
        taken = self._peek() == character
        self._at += taken
        return taken

    def _mistake(self) -> BadMatcher:
        return BadMatcher(f"`{self._peek()}` at character {self._at + 1} has no meaning in a matcher")
