"""Rules of consent for commands: each run that the policy asks about has an approval of its own, and nothing runs
without the sandbox that did not run in it before, unless the model asked for that. What hooks deny does not run.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld


def consent_rules(world: "SimWorld") -> Iterator[str]:
    """Yield commands that ran without the approval that the policy requires."""
    record, habits, commands = world.record, world.habits, world.commands
    for mark in {mark for ran in commands.ran for mark in ran.marks}:
        # Another call of the same may have had a hook that did not start, and the user's consent.
        is_judged = not commands.hooks_not_started or world.model.times[mark] <= commands.judged[mark]
        if is_judged and commands.judged[mark] and commands.judged[mark] == commands.denied[mark]:
            yield f"{mark} ran although its hooks denied it {commands.denied[mark]} times"
    runs: Counter[tuple[str, bool]] = Counter(
        (mark, ran.confined) for ran in world.commands.ran for mark in ran.marks
    )
    boxed = habits.sandbox_mode != "danger-full-access"
    for mark in dict.fromkeys(mark for mark, _ in runs):
        confined, free = runs[mark, True], runs[mark, False]
        kind, yes = world.model.called[mark].kind, record.yes[mark]
        if boxed and kind != "escalated" and free > confined:
            yield f"{mark} ran outside of the sandbox {free} times, and {confined} times in it before"
        if record.loosened or mark in record.session_yes:
            continue
        if habits.approval_policy == "untrusted":
            needed = confined + free if kind != "patch" else confined or free
        else:
            needed = free if boxed else 0
        if needed > yes:
            yield f"{mark} ran {confined} times in the sandbox and {free} times outside, with {yes} times yes"
