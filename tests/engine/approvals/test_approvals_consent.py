"""Judgements of commands and programs; the scope of an approval, and the question that an answer belongs to."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.approvals.broker import ApprovalAnswer, ApprovalBroker
from app_server.engine.approvals.consent import (
    EVERYTHING,
    ApprovalMemory,
    CommandSubject,
    Consent,
    InputSubject,
    PatchSubject,
    Rights,
    Subject,
    rights_of,
)
from app_server.engine.approvals.decide import (
    CommandRequest,
    InputVerdict,
    decide_input,
    must_ask,
    policy_rejection,
)
from app_server.engine.approvals.prefix_rules import PrefixRules
from app_server.engine.approvals.rules_text import PrefixRule, RuleDecision, rule_for
from app_server.engine.sandbox.plan import SandboxPlan
from app_server_protocol.engine.questions import FileGrant, RuleAmendment
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    QuestionKinds,
    ReadOnly,
    ReviewDecision,
    SandboxPolicy,
    WorkspaceWrite,
)
from app_server_protocol.values import replace

ROOTS = ("/a", "/a/b", "/a/bc", "/d", "/d/e/f", "/tmp")
PLACES = ("/a", "/a/b", "/a/b/x", "/a/bc/x", "/ab", "/d/e", "/d/e/f/g", "/tmp/x", "/etc")

rights = st.one_of(
    st.just(EVERYTHING),
    st.builds(
        Rights,
        roots=st.frozensets(st.sampled_from(ROOTS)),
        network=st.booleans(),
        foreign_files=st.booleans(),
    ),
)
subjects: st.SearchStrategy[Subject] = st.one_of(
    st.builds(
        CommandSubject,
        argv=st.sampled_from([("make",), ("make", "all"), ("make all",)]),
        folder=st.sampled_from(["/a", "/a/b"]),
        escalated=st.booleans(),
    ),
    st.builds(
        PatchSubject,
        text=st.sampled_from(["x", "y", None]),
        places=st.sampled_from([("/a/f",), ("/d/f",), ("/d/f", "/a/f")]),
    ),
    st.builds(
        InputSubject,
        text=st.sampled_from(["y\n", "n\n"]),
        terminal=st.integers(0, 1),
        call_id=st.sampled_from(["c1", "c2"]),
    ),
)
consents = st.builds(Consent, subject=subjects, run=rights, policy=rights)


def includes(approved: Subject, asked: Subject) -> bool:
    if not isinstance(approved, PatchSubject) or approved.text is not None:
        return approved == asked
    return isinstance(asked, PatchSubject) and all(place in approved.places for place in asked.places)


def may_write(held: Rights, place: str) -> bool:
    return not held.confined or any(place == root or place.startswith(root + "/") for root in held.roots)


@given(rights, rights)
def test_rights_within_others_allow_nothing_more(inner: Rights, outer: Rights) -> None:
    if inner.within(outer):
        assert all(may_write(outer, place) for place in PLACES if may_write(inner, place))
        assert inner.confined or not outer.confined
        assert not outer.confined or inner.network <= outer.network


@given(rights, rights, rights)
def test_rights_are_ordered(a: Rights, b: Rights, c: Rights) -> None:
    assert a.within(a)
    assert a.within(EVERYTHING)
    if a.within(b) and b.within(c):
        assert a.within(c)


@given(consents, consents)
def test_a_yes_covers_the_same_thing_with_no_more_rights_under_no_stricter_policy(
    yes: Consent, question: Consent
) -> None:
    assert yes.covers(yes)
    if yes.covers(question):
        assert includes(yes.subject, question.subject)
        assert all(may_write(yes.run, place) for place in PLACES if may_write(question.run, place))
        assert question.run.confined or not yes.run.confined
        assert all(may_write(question.policy, place) for place in PLACES if may_write(yes.policy, place))
        assert question.policy.confined <= yes.policy.confined


@given(st.lists(consents, max_size=6), consents)
def test_the_memory_covers_what_one_of_its_yeses_covers(given_: list[Consent], question: Consent) -> None:
    memory = ApprovalMemory()
    assert not memory.covers(question)
    for yes in given_:
        memory.remember(yes)
    assert memory.covers(question) == any(yes.covers(question) for yes in given_)


COMMAND = Consent(CommandSubject(("make",), "/a"), run=Rights(roots=frozenset({"/a"})), policy=EVERYTHING)


@pytest.mark.parametrize(
    "other",
    [
        replace(COMMAND, subject=CommandSubject(("make", "x"), "/a")),
        replace(COMMAND, subject=CommandSubject(("make",), "/a/b")),
        replace(COMMAND, subject=CommandSubject(("make",), "/a", escalated=True)),
        replace(COMMAND, run=EVERYTHING),
        replace(COMMAND, run=Rights(roots=frozenset({"/a"}), network=True)),
        replace(COMMAND, run=Rights(roots=frozenset({"/a", "/d"}))),
        replace(COMMAND, run=Rights(roots=frozenset({"/a"}), foreign_files=True)),
        replace(COMMAND, policy=Rights(roots=frozenset({"/a"}))),
    ],
)
def test_another_word_place_right_or_a_stricter_policy_is_another_question(other: Consent) -> None:
    memory = ApprovalMemory()
    memory.remember(COMMAND)
    assert memory.covers(COMMAND)
    assert not memory.covers(other)


def test_the_rights_of_a_plan_are_those_that_it_grants() -> None:
    plan = SandboxPlan(writable_roots=("/a", "/tmp"), network=True, foreign_files=True)
    assert rights_of(plan) == Rights(roots=frozenset({"/a", "/tmp"}), network=True, foreign_files=True)
    assert rights_of(SandboxPlan()) == Rights()
    assert rights_of(None) == EVERYTHING


def test_a_yes_for_files_covers_every_patch_to_them_and_no_other() -> None:
    memory = ApprovalMemory()
    inside = Rights(roots=frozenset({"/a"}))
    yes = Consent(PatchSubject("x", ("/a/f", "/a/g")), run=EVERYTHING, policy=inside)
    memory.remember(yes.for_its_files())
    assert memory.covers(replace(yes, subject=PatchSubject("y", ("/a/g",))))
    assert memory.covers(replace(yes, subject=PatchSubject("y", ("/a/g", "/a/f"))))
    assert not memory.covers(replace(yes, subject=PatchSubject("x", ("/a/f", "/a/h"))))
    stricter = replace(yes, subject=PatchSubject("y", ("/a/g",)), policy=Rights())
    assert not memory.covers(stricter)
    assert not memory.covers(replace(COMMAND, policy=inside))


YES, SESSION, NO = ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED


def silent() -> None:
    pass


@pytest.mark.parametrize(("first", "second"), [(NO, YES), (NO, SESSION), (YES, NO)])
async def test_the_first_answer_counts_also_where_the_second_comes_before_it_is_taken(
    first: ReviewDecision, second: ReviewDecision
) -> None:
    broker = ApprovalBroker()

    def announce() -> None:
        assert broker.resolve("c1", first)
        assert not broker.resolve("c1", second)

    assert (await broker.request_decision("c1", "t1", announce)).decision is first


async def test_an_answer_finds_only_the_question_with_its_id() -> None:
    broker = ApprovalBroker()
    decisions: dict[str, ReviewDecision] = {}

    async def ask(call_id: str) -> None:
        decisions[call_id] = (await broker.request_decision(call_id, "t1", silent)).decision

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "c1")
        group.start_soon(ask, "c2")
        await anyio.wait_all_tasks_blocked()
        assert not broker.resolve("c3", YES)
        assert not broker.resolve("t1", YES), "two questions of the turn: which one is meant?"
        assert broker.resolve("c2", NO)
        assert broker.resolve("c1", YES)
    assert decisions == {"c1": YES, "c2": NO}
    assert len(broker) == 0


async def test_the_id_of_a_turn_answers_its_only_question() -> None:
    broker = ApprovalBroker()
    answer = await broker.request_decision("c1", "t1", lambda: _answered(broker, "t1"))
    assert answer == ApprovalAnswer(YES)


def _answered(broker: ApprovalBroker, id: str) -> None:
    assert broker.is_open(id)
    assert broker.resolve(id, YES)


async def test_a_second_question_under_the_same_id_is_denied_and_the_first_goes_on() -> None:
    broker = ApprovalBroker()
    decisions: list[ReviewDecision] = []

    async def ask() -> None:
        decisions.append((await broker.request_decision("c1", "t1", silent)).decision)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert (await broker.request_decision("c1", "t1", silent)).decision is NO
        assert broker.resolve("c1", YES)
    assert decisions == [YES]


async def test_a_withdrawn_question_leaves_nothing_to_answer() -> None:
    broker = ApprovalBroker()
    with anyio.move_on_after(0):
        await broker.request_decision("c1", "t1", silent)
    assert not broker.is_open("c1")
    assert not broker.resolve("c1", YES)
    assert (await broker.request_decision("c1", "t2", lambda: _answered(broker, "c1"))).decision is YES


@pytest.mark.parametrize("also", [None, RuleAmendment(("touch",)), FileGrant()])
async def test_an_answer_says_what_is_allowed_beside_the_request(
    also: RuleAmendment | FileGrant | None,
) -> None:
    broker = ApprovalBroker()

    def announce() -> None:
        assert broker.resolve("c1", YES, also=also)

    assert await broker.request_decision("c1", "t1", announce) == ApprovalAnswer(YES, also)


UNTRUSTED, ON_FAILURE = AskForApproval.UNTRUSTED, AskForApproval.ON_FAILURE
ON_REQUEST, NEVER = AskForApproval.ON_REQUEST, AskForApproval.NEVER
TYPE, ASK, REFUSE = InputVerdict.TYPE, InputVerdict.ASK, InputVerdict.REFUSE
ROOT = Rights(roots=frozenset({"/ws"}))


@pytest.mark.parametrize(
    ("argv", "looked_up"),
    [
        (("ls", "-l"), {"ls"}),
        (("/usr/bin/ls",), {"/usr/bin/ls"}),
        (("bash", "-lc", "cd src && ls | wc -l; /bin/cat f"), {"bash", "ls", "wc", "/bin/cat"}),
        (("/bin/sh", "-c", "pwd"), {"/bin/sh", "pwd"}),
        (("cd", "src"), {"cd"}),
    ],
)
def test_every_program_of_a_reading_command_must_be_what_its_name_says(
    argv: tuple[str, ...], looked_up: set[str]
) -> None:
    seen: set[str] = set()
    request = CommandRequest(argv)

    def asks(sandbox: SandboxPolicy, suspect: str | None) -> bool:
        def trusts(program: str) -> bool:
            seen.add(program)
            return program != suspect

        return must_ask(request, UNTRUSTED, sandbox, trusts=trusts)

    for sandbox in (ReadOnly(), DangerFullAccess()):
        assert not asks(sandbox, None)
        assert all(asks(sandbox, suspect) for suspect in looked_up)
    assert seen == looked_up


@pytest.mark.parametrize(
    ("approval", "terminal", "policy", "verdict"),
    [
        (NEVER, ROOT, ROOT, TYPE),
        (NEVER, EVERYTHING, EVERYTHING, TYPE),
        (NEVER, EVERYTHING, ROOT, REFUSE),
        (NEVER, ROOT, Rights(), REFUSE),
        (ON_FAILURE, ROOT, ROOT, TYPE),
        (ON_FAILURE, EVERYTHING, ROOT, ASK),
        (ON_REQUEST, ROOT, ROOT, TYPE),
        (ON_REQUEST, ROOT, EVERYTHING, TYPE),
        (ON_REQUEST, EVERYTHING, ROOT, ASK),
        (ON_REQUEST, EVERYTHING, EVERYTHING, TYPE),
        (UNTRUSTED, Rights(), EVERYTHING, ASK),
        (UNTRUSTED, EVERYTHING, EVERYTHING, ASK),
    ],
)
def test_typing_is_judged_by_the_policy_of_the_turn(
    approval: AskForApproval, terminal: Rights, policy: Rights, verdict: InputVerdict
) -> None:
    assert decide_input("ls\n", approval, terminal, policy) is verdict


def test_a_policy_without_questions_about_the_sandbox_refuses_them() -> None:
    silent, asking = QuestionKinds(sandbox_approval=False), QuestionKinds()
    assert decide_input("ls\n", ON_REQUEST, EVERYTHING, ROOT, silent) is REFUSE
    assert decide_input("ls\n", ON_REQUEST, EVERYTHING, ROOT, asking) is ASK
    assert decide_input("ls\n", ON_REQUEST, ROOT, ROOT, silent) is TYPE


@pytest.mark.parametrize("terminal", [ROOT, EVERYTHING])
def test_typing_what_destroys_is_asked_about_in_every_sandbox(terminal: Rights) -> None:
    silent = QuestionKinds(sandbox_approval=False)
    assert decide_input("rm -rf build\n", ON_REQUEST, terminal, EVERYTHING) is ASK
    assert decide_input("rm -rf build\n", ON_REQUEST, terminal, EVERYTHING, silent) is REFUSE
    assert decide_input("rm -rf build\n", NEVER, terminal, EVERYTHING) is TYPE


@pytest.mark.parametrize("sandbox", [ReadOnly(), WorkspaceWrite(), DangerFullAccess()])
def test_what_destroys_is_asked_about_in_every_sandbox(sandbox: SandboxPolicy) -> None:
    for line in ("rm -rf sub", "ls && rm -fr sub g", "find . -delete", "git clean -fdx", "truncate -s 0 f"):
        request = CommandRequest(("bash", "-lc", line))
        asking = {each for each in AskForApproval if must_ask(request, each, sandbox, trusts=lambda _: True)}
        assert asking == {UNTRUSTED, ON_REQUEST}


def test_nobody_is_asked_to_leave_a_sandbox_that_is_none() -> None:
    more = CommandRequest(("make",), escalated=True)
    assert not must_ask(more, ON_REQUEST, DangerFullAccess(), trusts=lambda _: True)
    assert must_ask(more, ON_REQUEST, WorkspaceWrite(), trusts=lambda _: True)
    silent = QuestionKinds(sandbox_approval=False)
    assert policy_rejection(more, ON_REQUEST, DangerFullAccess(), silent) is None
    assert policy_rejection(more, NEVER, DangerFullAccess()) is not None


@pytest.mark.parametrize(
    "text",
    [
        "true\rrm -rf d\r",
        "rx\x7fm -rf d\n",
        "rx\bm -rf d\n",
        "ls\x15rm -rf d\n",
        "rm ls\x17-rf d\r",
        "r\x00m -rf d\n",
    ],
)
def test_typed_text_is_judged_as_the_line_that_a_terminal_makes_of_it(text: str) -> None:
    assert decide_input(text, ON_REQUEST, EVERYTHING, EVERYTHING) is ASK


@pytest.mark.parametrize(
    "text", ["ls\r", "\x03", "\x1b[A\r", "rm -rf d\x15ls\n", "rm x\x17\x17ls\n", ":wq\r", ""]
)
def test_other_typed_text_is_not_asked_about(text: str) -> None:
    assert decide_input(text, ON_REQUEST, EVERYTHING, EVERYTHING) is TYPE


def ls(restriction: PrefixRule | None = None, *, escalated: bool = False) -> CommandRequest:
    return CommandRequest(("ls", "a b"), escalated=escalated, restriction=restriction)


def test_a_rule_may_reject_a_command_by_itself_or_with_the_policy() -> None:
    forbidden = PrefixRule((("ls",),), RuleDecision.FORBIDDEN)
    because = PrefixRule((("ls",),), RuleDecision.FORBIDDEN, "use find")
    prompt = PrefixRule((("ls",),), RuleDecision.PROMPT)
    for approval in AskForApproval:
        assert policy_rejection(ls(forbidden), approval, ReadOnly()) == (
            "`ls 'a b'` rejected: a rule of the user forbids it"
        )
        assert policy_rejection(ls(because), approval, ReadOnly()) == "`ls 'a b'` rejected: use find"
        assert policy_rejection(ls(), approval, ReadOnly()) is None
    assert policy_rejection(ls(prompt), ON_REQUEST, ReadOnly()) is None
    assert policy_rejection(ls(prompt), NEVER, ReadOnly()) == (
        "`ls 'a b'` rejected: a rule requires approval, but the approval policy is Never"
    )
    kinds = QuestionKinds(rules=False)
    assert policy_rejection(ls(prompt), ON_REQUEST, ReadOnly(), QuestionKinds()) is None
    assert policy_rejection(ls(prompt), ON_REQUEST, ReadOnly(), kinds) == (
        "`ls 'a b'` rejected: a rule requires approval, and the user is not asked about rules"
    )


def test_questions_that_are_switched_off_are_rejected() -> None:
    off, on = QuestionKinds(sandbox_approval=False), QuestionKinds()
    rm = CommandRequest(("rm", "-rf", "a"), escalated=False)
    assert policy_rejection(ls(escalated=True), ON_REQUEST, ReadOnly(), off) == (
        "the user is not asked about the sandbox; reject command — do not ask for escalated permissions"
    )
    assert policy_rejection(ls(escalated=True), ON_REQUEST, ReadOnly(), on) is None
    assert policy_rejection(rm, ON_REQUEST, DangerFullAccess(), off) == (
        "the command destroys, and the user is not asked about that; reject command"
    )
    assert policy_rejection(rm, ON_REQUEST, DangerFullAccess(), on) is None
    assert policy_rejection(rm, ON_REQUEST, ReadOnly(), off) is not None
    assert policy_rejection(ls(), ON_REQUEST, DangerFullAccess(), off) is None
    for approval in (NEVER, ON_FAILURE, UNTRUSTED):
        rejected = policy_rejection(ls(escalated=True), approval, ReadOnly())
        assert rejected is not None
        assert "should not ask for escalated permissions" in rejected


def test_an_allowed_command_that_destroys_runs_without_a_sandbox() -> None:
    rm = CommandRequest(("bash", "-lc", "rm -rf build"), escalated=False)
    trusts: list[str] = []

    def trust(program: str) -> bool:
        trusts.append(program)
        return True

    allowed = PrefixRules([rule_for(("rm", "-rf", "build"))]).allows
    assert not must_ask(rm, ON_REQUEST, DangerFullAccess(), trusts=trust, allowed=allowed)
    assert trusts
    assert not must_ask(rm, UNTRUSTED, DangerFullAccess(), trusts=trust, allowed=allowed)
    assert must_ask(rm, ON_REQUEST, DangerFullAccess(), trusts=trust)
    assert must_ask(rm, ON_REQUEST, DangerFullAccess(), trusts=lambda _: False, allowed=allowed)
