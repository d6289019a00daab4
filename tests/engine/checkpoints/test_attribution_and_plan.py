"""Attribution and plan in a simulated world of files: what only the user wrote stays, and a restore can be undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app_server.engine.checkpoints.attribution import attributions
from app_server.engine.checkpoints.history import Actor, FileVersion, RecordedChanges, Span, State, Transition
from app_server.engine.checkpoints.kept_files import digest_of
from app_server.engine.checkpoints.merge import merge, without_agents_part
from app_server.engine.checkpoints.plan import Action, PlannedFile, RestorePlan, make_plan, merged_content

PATHS = ("a", "b", "d/c", "d/e")
PLAIN, EXECUTABLE = 0o100644, 0o100755

Step = tuple[str, str, str, int]
"""Who acts (`user`; `patch`, `command`: the agent; `during`: the user, while a command runs; `turn`: the next turn
begins), what is done, with which file, and a number."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "patch", "command", "during", "turn"]),
        st.sampled_from(["write", "append", "insert", "delete", "rename", "mode"]),
        st.sampled_from(PATHS),
        st.integers(0, 5),
    ),
    max_size=14,
)


@dataclass
class World:
    """Files whose lines name their authors, and what is recorded of their changes."""

    files: dict[str, tuple[bytes, int]] = field(
        default_factory=lambda: {
            path: (b"".join(b"old %d\n" % n for n in range(6)), PLAIN) for path in ("a", "d/c")
        }
    )
    contents: dict[str, bytes] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=lambda: [Span("turn-0", 0.0)])
    lines: Iterator[int] = field(default_factory=lambda: iter(range(1000)))
    uncertain: set[bytes] = field(default_factory=set)
    """Lines of the user that were written while a command ran, or that a command has moved to another file."""

    def state(self, path: str) -> State:
        if path not in self.files:
            return None
        content, mode = self.files[path]
        digest = digest_of(content)
        self.contents[digest] = content
        return FileVersion(digest, mode)

    def states(self) -> dict[str, State]:
        return {path: self.state(path) for path in PATHS}

    def play(self, steps: Sequence[Step]) -> None:
        for who, what, path, number in steps:
            if who == "turn":
                self.spans.append(Span(f"turn-{len(self.spans)}", 0.0))
                continue
            before = self.states()
            if who == "command" and what == "rename" and path in self.files:
                self.uncertain |= {line for line in self.files[path][0].splitlines() if line[:4] == b"user"}
            self._act("agent" if who in ("patch", "command") else "user", what, path, number)
            if who == "during":
                self.uncertain |= set(self.lines_of("user")) - {
                    line
                    for state in before.values()
                    if state
                    for line in self.contents[state.digest].splitlines()
                }
            if who != "user":
                actor = Actor.AGENT if who == "patch" else Actor.UNCERTAIN
                self._record(self.spans[-1], before, actor)

    def _record(self, span: Span, before: Mapping[str, State], actor: Actor) -> None:
        for path, after in self.states().items():
            if before[path] != after:
                span.changes = [*span.changes, Transition(path, actor, before[path], after)]

    def _act(self, author: str, what: str, path: str, number: int) -> None:
        content, mode = self.files.get(path, (b"", PLAIN))
        line = f"{author} {next(self.lines)}\n".encode()
        lines = content.splitlines(keepends=True)
        match what:
            case "write":
                self.files[path] = line, mode
            case "append":
                self.files[path] = content + line, mode
            case "insert":
                self.files[path] = b"".join([*lines[:number], line, *lines[number:]]), mode
            case "delete":
                self.files.pop(path, None)
            case "rename" if path in self.files:
                self.files[PATHS[number % len(PATHS)]] = self.files.pop(path)
            case "mode" if path in self.files:
                self.files[path] = content, PLAIN + EXECUTABLE - mode

    def lines_of(self, author: str) -> list[bytes]:
        head = author.encode()
        return [
            line
            for content, _ in self.files.values()
            for line in content.splitlines()
            if line.startswith(head)
        ]

    # --- restores
    def plan(self, before: str, *, uncertain: bool) -> RestorePlan:
        recorded = RecordedChanges(self.spans)
        since = recorded.index_of(before)
        assert since is not None
        return make_plan("thread", before, attributions(recorded, since, self.states()), uncertain=uncertain)

    def restore(self, before: str, *, uncertain: bool, merges: bool = False) -> str:
        """Carry out a plan and return the id of the restore."""
        states, span = self.states(), Span(f"restore-{len(self.spans)}", 0.0, target=before)
        for file in self.plan(before, uncertain=uncertain).files:
            target, content = file.target, None
            if file.action is Action.CONFLICT and merges and (merged := merged_content(file, self.contents)):
                self.files[file.path] = merged
            elif file.writes and target is None:
                del self.files[file.path]
            elif file.writes and target is not None:
                content = self.contents[target.digest]
                self.files[file.path] = content, target.mode
        self._record(span, states, Actor.AGENT)
        self.spans.append(span)
        return span.id


@settings(max_examples=400, deadline=None)
@given(STEPS, st.booleans(), st.booleans(), st.integers(0, 5))
@example(
    [
        ("patch", "insert", "a", 0),
        ("user", "append", "a", 0),
        ("turn", "", "", 0),
        ("patch", "insert", "a", 1),
    ],
    False,
    True,
    0,
)
def test_what_only_the_user_wrote_stays_and_restores_are_inverse(
    steps: list[Step], uncertain: bool, merges: bool, turn: int
) -> None:
    world = World()
    world.play(steps)
    before = f"turn-{turn % len(world.spans)}"
    files, users = dict(world.files), world.lines_of("user")

    first = world.restore(before, uncertain=uncertain, merges=merges)
    after = dict(world.files)
    lost = set(users) - set(world.lines_of("user"))
    assert not lost - (world.uncertain if uncertain else set())

    second = world.restore(first, uncertain=False)
    assert world.files == files
    third = world.restore(second, uncertain=False)
    assert world.files == after
    world.restore(third, uncertain=False)
    assert world.files == files
    world.restore(before, uncertain=uncertain, merges=merges)
    assert world.files == after


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 5))
def test_what_only_the_agent_changed_goes_back(steps: list[Step], turn: int) -> None:
    world = World()
    at = turn % (1 + sum(step[0] == "turn" for step in steps))
    begin = [index for index, step in enumerate(steps) if step[0] == "turn"]
    first = begin[at - 1] + 1 if at else 0
    mine = [step for step in steps[first:] if step[0] in ("patch", "command", "turn")]
    world.play(steps[:first])
    files = dict(world.files)
    world.play(mine)
    world.restore(f"turn-{at}", uncertain=True)
    assert world.files == files


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans())
def test_a_second_restore_to_the_same_message_has_nothing_to_do(steps: list[Step], uncertain: bool) -> None:
    world = World()
    world.play(steps)
    world.restore("turn-0", uncertain=uncertain)
    again = world.plan("turn-0", uncertain=uncertain)
    assert [each.path for each in again.files if each.writes] == []


def states(world: World, *steps: Step) -> Mapping[str, PlannedFile]:
    world.play(steps)
    return {each.path: each for each in world.plan("turn-0", uncertain=False).files}


@pytest.mark.parametrize(
    ("steps", "action", "by"),
    [
        ([("patch", "append", "a", 0)], "restore", "agent"),
        ([("patch", "write", "b", 0)], "delete", "agent"),
        ([("patch", "delete", "a", 0)], "recreate", "agent"),
        ([("command", "append", "a", 0)], "keep", "uncertain"),
        ([("during", "append", "a", 0)], "keep", "uncertain"),
        ([("patch", "insert", "a", 0), ("user", "append", "a", 0)], "conflict", "both"),
        ([("patch", "write", "b", 0), ("user", "append", "b", 0)], "keep", "both"),
        ([("patch", "delete", "a", 0), ("user", "write", "a", 0)], "keep", "both"),
        ([("user", "append", "a", 0), ("patch", "append", "a", 0)], "restore", "agent"),
        ([("patch", "append", "a", 0), ("user", "delete", "a", 0)], "keep", "both"),
    ],
)
def test_each_file_has_an_action_and_an_author(steps: list[Step], action: str, by: str) -> None:
    (file,) = states(World(), *steps).values()
    assert (file.action.value, file.by) == (action, by)


def test_the_users_line_between_two_edits_of_the_agent_stays() -> None:
    world = World()
    steps: list[Step] = [
        ("patch", "insert", "a", 0),
        ("user", "append", "a", 0),
        ("turn", "", "", 0),
        ("patch", "insert", "a", 1),
    ]
    world.play(steps)
    kept = dict(world.files)
    world.restore("turn-0", uncertain=False)
    assert world.files == kept
    world.restore("turn-0", uncertain=False, merges=True)
    assert world.files["a"][0] == b"old 0\nold 1\nold 2\nold 3\nold 4\nold 5\nuser 1\n"


def test_a_change_by_the_user_alone_is_not_listed() -> None:
    assert states(World(), ("user", "append", "a", 0), ("user", "write", "b", 0)) == {}


def test_files_of_git_are_kept() -> None:
    change = Transition("/w/.git/config", Actor.AGENT, None, FileVersion("1" * 40, PLAIN))
    recorded = RecordedChanges([Span("t", 0.0, changes=[change])])
    found = attributions(recorded, 0, {change.path: change.after})
    assert [each.action for each in make_plan("t", "t", found, uncertain=True).files] == [Action.KEEP]


def test_what_the_user_committed_is_kept() -> None:
    change = Transition("/w/a", Actor.AGENT, None, FileVersion("1" * 40, PLAIN))
    recorded = RecordedChanges([Span("t", 0.0, changes=[change])])
    found = attributions(recorded, 0, {"/w/a": change.after}, lambda path, at: True)
    (file,) = make_plan("t", "t", found, uncertain=True).files
    assert (file.action, file.by) == (Action.KEEP, "both")


def test_the_token_tells_states_apart_and_not_the_consent() -> None:
    world = World()
    world.play([("command", "append", "a", 0)])
    token = world.plan("turn-0", uncertain=False).token
    assert world.plan("turn-0", uncertain=True).token == token
    world.play([("user", "append", "a", 0)])
    assert world.plan("turn-0", uncertain=False).token != token


@pytest.mark.parametrize("made", [True, False])
def test_the_files_tell_what_a_restore_that_was_cut_off_has_done(made: bool) -> None:
    world = World()
    world.play([("patch", "append", "a", 0)])
    files = dict(world.files)
    restore = world.restore("turn-0", uncertain=False)
    world.spans[-1].finished = False
    if not made:
        world.files = files
    again = [each.action for each in world.plan("turn-0", uncertain=False).files]
    assert again == ([] if made else [Action.RESTORE])
    assert [each.action for each in world.plan(restore, uncertain=False).files] == (
        [Action.RESTORE] if made else []
    )


# --- merges
@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        (b"1\n2\n3\n", b"x\n1\n2\n3\n", b"1\n2\n3\ny\n", b"x\n1\n2\n3\ny\n"),
        (b"1\n2\n3\n", b"1\n2\nx\n", b"1\n2\n3\ny\n", None),
        (b"1\n2\n", b"1\n", b"1\n2\n", b"1\n"),
        (b"1\n2\n", b"1\n2\n", b"2\n", b"2\n"),
        (b"\0a\n1\n", b"\0b\n1\n", b"\0a\n1\n2\n", None),
        (b"\xe4\n1\n2\n", b"x\n\xe4\n1\n2\n", b"\xe4\n1\n2\n\xff", b"x\n\xe4\n1\n2\n\xff"),
    ],
)
def test_merges_are_clean_or_none(base: bytes, ours: bytes, theirs: bytes, merged: bytes | None) -> None:
    assert merge(base, ours, theirs) == merged


@given(st.lists(st.binary(max_size=3), max_size=6), st.lists(st.binary(max_size=3), max_size=6))
def test_without_a_change_of_the_agent_the_users_text_results(base: list[bytes], users: list[bytes]) -> None:
    before, after = b"\n".join(base), b"\n".join(users)
    assert without_agents_part(before, [(before, after)]) == after
