"""Whole conversations in random order: approval answers, policies, escalations, settings that change while the user is
asked, interrupts. Nothing runs with more rights than the policy of its turn, or an approval of that very call or
command, gave.

The rights of a run are seen by its effect: each command writes a line in the workspace and one outside.
"""

import os
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal, assert_never, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app_server.engine.tools.orchestrator import RETRY_REASON
from app_server_protocol.encoding import Json
from tests.support.fuzz_mutation import EXAMPLES, thorough
from tests.support.scripted_model import patches, reply, says, script
from tests.support.world import World, worlds_in

pytestmark = [pytest.mark.fuzz, pytest.mark.skipif(sys.platform != "linux", reason="the Linux sandbox")]

Approval = Literal["untrusted", "on-failure", "on-request", "never"]
Answer = Literal["approved", "approved_for_session", "denied", "abort", "nonsense", "error", "interrupt"]
Kind = Literal["plain", "escalated", "fails", "patch"]
YES = ("approved", "approved_for_session")

NO_TEMP = {"exclude_slash_tmp": True, "exclude_tmpdir_env_var": True}
POLICIES: list[Json] = [
    {"mode": "read-only"},
    {"mode": "workspace-write", **NO_TEMP},
    {"mode": "workspace-write", "network_access": True, **NO_TEMP},
    {"mode": "danger-full-access"},
]
"""Sandbox policies. Each allows more than the one before."""
WORKSPACE, FULL = 1, len(POLICIES) - 1

few = settings(thorough, max_examples=max(EXAMPLES // 30, 6))
number = count()


@dataclass(frozen=True)
class Settings:
    approval: Approval
    policy: int


@dataclass(frozen=True)
class Reaction:
    """Reaction of the client to a question: an optional change of the settings, then the answer."""

    answer: Answer
    before: Settings | None = None


@dataclass(frozen=True)
class Turn:
    who: int
    calls: tuple[tuple[Kind, int], ...]
    """Kind and number of each command. No command occurs twice."""
    given: Settings | None
    """Settings of the turn. None if the conversation's present settings hold."""
    reactions: tuple[Reaction, ...]


policies = st.integers(0, FULL)
all_settings = st.builds(Settings, st.sampled_from(get_args(Approval)), policies)
reactions = st.builds(
    Reaction,
    st.sampled_from([*get_args(Answer), *YES, *YES]),
    st.one_of(st.none(), st.none(), all_settings),
)
turns = st.builds(
    Turn,
    who=st.sampled_from([0, 0, 1]),
    calls=st.lists(
        st.tuples(st.sampled_from(get_args(Kind)), st.integers(0, 1)), min_size=1, max_size=3, unique=True
    ).map(tuple),
    given=st.one_of(all_settings, all_settings, st.none()),
    reactions=st.lists(reactions, max_size=4).map(tuple),
)


@dataclass
class Remembered:
    """Approval that holds for the session."""

    words: tuple[Kind, int]
    unconfined: bool
    policy: int


@dataclass
class Side:
    """One conversation, as the user knows it."""

    id: str
    settings: Settings
    session: list[Remembered] = field(default_factory=list)

    def remembers(self, words: tuple[Kind, int], policy: int, *, unconfined: bool) -> bool:
        return any(
            each.words == words
            and each.unconfined == unconfined
            and each.policy <= policy
            and (unconfined or each.policy == policy)
            for each in self.session
        )


@dataclass
class Asked:
    """Question of the turn that was answered with a yes."""

    unconfined: bool
    for_session: bool


def call(kind: Kind, n: int, call_id: str) -> Json:
    mark = f"{kind}{n}"
    if kind == "patch":
        return patches(f"*** Begin Patch\n*** Add File: ../outside/{mark}\n+x\n*** End Patch", call_id)
    end = "exit 1" if kind == "fails" else "exit 0"
    text = f"echo x >> {mark}; echo x >> ../outside/{mark}; echo ran; {end}"
    if kind == "escalated":
        return script(text, call_id, with_escalated_permissions=True, justification="it has to be")
    return script(text, call_id)


def lines(path: Path) -> int:
    """Return the number of lines, and remove the file."""
    try:
        found = path.read_text().count("x")
        path.unlink()
    except FileNotFoundError:
        return 0
    return found


@dataclass
class Play:
    world: World
    sides: list[Side]

    async def turn(self, turn: Turn) -> None:
        side, w = self.sides[turn.who], self.world
        if turn.given is not None:
            side.settings = turn.given
        under = side.settings
        named = {f"t{next(number)}": words for words in turn.calls}
        made = [call(kind, n, call_id) for call_id, (kind, n) in named.items()]
        w.model.replies = [reply(*made), reply(says("ok"))]
        if turn.given is None:
            await w.client.say(side.id)
        else:
            policy = POLICIES[under.policy]
            params = w.user_turn(side.id, approvalPolicy=under.approval, sandboxPolicy=policy)
            await w.client.call("sendUserTurn", params)
        answered = await self._answered(side, turn, named, under)
        ends = [m["params"]["msg"] for m in w.client.received() if m.get("method") == END]
        ran = {e["call_id"]: "ran" in e["aggregated_output"] for e in ends if e["call_id"] in named}
        for call_id, words in named.items():
            self._check(words, under, side, answered.get(call_id, []), ran=ran.get(call_id, False))
        for call_id, yeses in answered.items():
            side.session += [
                Remembered(named[call_id], asked.unconfined, under.policy)
                for asked in yeses
                if asked.for_session
            ]

    async def _answered(
        self, side: Side, turn: Turn, named: dict[str, tuple[Kind, int]], under: Settings
    ) -> dict[str, list[Asked]]:
        """Play the turn to its end; return the approvals by call."""
        waiting, late, given = list(turn.reactions), list[Json](), dict[str, list[Asked]]()

        def of_interest(message: Json) -> bool:
            params = message.get("params") or {}
            return params.get("conversationId") == side.id and message.get("method") in WAITED_FOR

        while (message := await self.world.client.expect(of_interest))["method"] in QUESTIONS:
            call_id = message["params"]["callId"]
            reaction = waiting.pop(0) if waiting else Reaction("denied")
            if reaction.before is not None:
                await self._override(side, reaction.before)
            if reaction.answer == "interrupt":
                late.append(message)
            if await self._react(side, message, reaction.answer):
                unconfined = (
                    message["method"] == "applyPatchApproval"
                    or message["params"].get("reason") in (RETRY_REASON, "it has to be")
                    or under.policy == FULL
                )
                for_session = reaction.answer == "approved_for_session"
                given.setdefault(call_id, []).append(Asked(unconfined, for_session))
        for question in late:  # the question is already over
            await self.world.client.answer(question, {"decision": "approved_for_session"})
        return given

    async def _override(self, side: Side, new: Settings) -> None:
        side.settings = new
        op = {"type": "override_turn_context", "approval_policy": new.approval}
        await self.world.client.submit(side.id, {**op, "sandbox_policy": POLICIES[new.policy]})

    async def _react(self, side: Side, question: Json, answer: Answer) -> bool:
        """Answer a question; return whether the answer was a yes."""
        client = self.world.client
        match answer:
            case "approved" | "approved_for_session" | "denied" | "abort":
                await client.answer(question, {"decision": answer})
            case "nonsense":
                await client.answer(question, {"decision": "Approved"})
            case "error":
                await client.write({"id": question["id"], "error": {"code": -1, "message": "no"}})
            case "interrupt":
                await client.interrupt(side.id)
            case _:
                assert_never(answer)
        return answer in YES

    def _check(
        self, words: tuple[Kind, int], under: Settings, side: Side, given: list[Asked], *, ran: bool
    ) -> None:
        kind, n = words
        within = lines(self.world.workspace / f"{kind}{n}")
        outside = lines(self.world.root / "outside" / f"{kind}{n}")
        told = f"{words} under {under}, {given}, inside {within}, outside {outside}"
        assert outside <= 1, told
        yes_without = any(asked.unconfined for asked in given) or (
            under.approval != "never" and side.remembers(words, under.policy, unconfined=True)
        )
        yes = bool(given) or yes_without or side.remembers(words, under.policy, unconfined=False)
        if outside:
            assert under.policy == FULL or yes_without, told
        if within:
            assert under.policy >= WORKSPACE or yes_without, told
        if ran or within or outside:
            assert under.approval != "untrusted" or yes, told
            assert kind != "escalated" or under.approval == "on-request", told
        if under.approval == "never":
            assert not given, told


END = "codex/event/exec_command_end"
QUESTIONS = ("execCommandApproval", "applyPatchApproval")
WAITED_FOR = (*QUESTIONS, "codex/event/task_complete", "codex/event/turn_aborted")


def under(approval: Approval, policy: int) -> Settings:
    return Settings(approval, policy)


@few
@given(st.lists(turns, min_size=1, max_size=6))
@example(
    [
        Turn(0, (("plain", 0),), under("untrusted", FULL), (Reaction("approved_for_session"),)),
        Turn(0, (("plain", 0),), under("untrusted", WORKSPACE), ()),
        Turn(1, (("plain", 0),), under("untrusted", FULL), ()),
        Turn(0, (("plain", 0), ("escalated", 0)), under("never", 0), ()),
    ]
)
@example(
    [
        Turn(0, (("fails", 0),), under("untrusted", 0), (Reaction("approved"), Reaction("approved"))),
        Turn(0, (("fails", 0),), under("on-failure", 0), (Reaction("interrupt", under("never", FULL)),)),
        Turn(0, (("plain", 1), ("patch", 0)), None, ()),
    ]
)
async def test_nothing_runs_with_more_rights_than_the_last_yes_or_the_policy_gave(
    tmp_path: Path, taken: list[Turn]
) -> None:
    root = tmp_path / str(next(number))
    os.makedirs(root / "outside")
    async with worlds_in(root)(config={"approval_policy": "untrusted", "sandbox_mode": "read-only"}) as w:
        first = Settings("untrusted", 0)
        play = Play(w, [Side(await w.open(), first) for _ in range(2)])
        for turn in taken:
            await play.turn(turn)


async def test_what_should_run_is_seen_to_run(tmp_path: Path) -> None:
    """Otherwise the invariant would hold because nothing runs."""
    os.makedirs(tmp_path / "outside")
    async with worlds_in(tmp_path)(config={"approval_policy": "untrusted", "sandbox_mode": "read-only"}) as w:
        conversation = await w.open()
        w.client.decide("execCommandApproval", "approved")
        w.client.decide("applyPatchApproval", "approved")
        w.model.replies = [
            reply(*(call(kind, 0, f"c{n}") for n, kind in enumerate(get_args(Kind)))),
            reply(says("ok")),
        ]
        await w.client.call("sendUserTurn", w.user_turn(conversation, approvalPolicy="untrusted"))
        await w.client.rest_of_turn(conversation)
        assert {kind for kind in get_args(Kind) if lines(tmp_path / "outside" / f"{kind}0")} == {
            "plain", "fails", "patch",
        }  # fmt: skip
