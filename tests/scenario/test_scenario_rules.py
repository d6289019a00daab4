"""What saves a question: rules for commands, kept in a file, and patches that are allowed for a whole session."""

from app_server.client import ApprovalReply, ApprovalRequest, CommandApprovalRequest, PatchApprovalRequest
from protocol.v2.items import CommandExecutionThreadItem, ThreadItem
from tests.support.library import MakeLibraryWorld
from tests.support.scripted_model import patches, reply, says, script
from tests.support.thread_client import notified

UNTRUSTED = {"approval_policy": "untrusted"}
DEFAULT = "../home/rules/default.rules"


def statuses(items: tuple[ThreadItem, ...]) -> list[str]:
    return [str(item.status) for item in items if isinstance(item, CommandExecutionThreadItem)]


class Person:
    """Answers questions about commands with that method of theirs."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.asked: list[CommandApprovalRequest] = []

    def __call__(self, request: ApprovalRequest) -> ApprovalReply:
        assert isinstance(request, CommandApprovalRequest)
        self.asked.append(request)
        reply: ApprovalReply = getattr(request, self._answer)()
        return reply


async def test_an_accepted_rule_saves_the_next_question_in_this_thread_and_in_later_ones(
    library: MakeLibraryWorld,
) -> None:
    commands = ("touch a", "touch a b"), ("touch a c",)
    replies = [
        each
        for turn in commands
        for each in (*(reply(script(command)) for command in turn), reply(says("ok")))
    ]
    person = Person("accept_with_rule")
    async with library(*replies, config=UNTRUSTED, on_approval=person) as w:
        for _ in commands:
            await (await w.server.start_thread()).run("go")
        [question] = person.asked
        assert question.proposed_rule == ("touch", "a")
        assert question.accept_with_rule().result.to_value()["decision"] in (
            each if isinstance(each, str) else each.to_value()
            for each in question.params.available_decisions or ()
        )
        assert {each.name for each in w.workspace.iterdir()} == {"a", "b", "c"}
        assert (w.workspace / DEFAULT).read_text() == (
            'prefix_rule(pattern=["touch", "a"], decision="allow")\n'
        )


async def test_rules_of_the_file_ask_and_forbid(library: MakeLibraryWorld) -> None:
    replies = [reply(script(each, f"c{n}")) for n, each in enumerate(["mkdir d", "ls; cp a b", "touch a"])]
    rules = (
        'prefix_rule(pattern=["mkdir"], decision="prompt", justification="it is full")\n'
        'prefix_rule(pattern=["cp"], decision="forbidden", justification="no copies")\n'
    )
    person = Person("decline")
    async with library(*replies, reply(says("ok")), files={"a": "", DEFAULT: rules}, on_approval=person) as w:
        result = await (await w.server.start_thread(approval_policy="on-request")).run("go")
        assert [question.reason for question in person.asked] == ["a rule requires approval: it is full"]
        assert statuses(result.items) == ["declined", "completed"]
        assert {each.name for each in w.workspace.iterdir()} == {"a"}
        assert "no copies" in str(w.model.requests[2])


async def test_under_never_what_a_rule_asks_about_is_rejected(library: MakeLibraryWorld) -> None:
    rules = 'prefix_rule(pattern=["mkdir"], decision="prompt")'
    person = Person("accept")
    async with library(
        reply(script("mkdir d")), reply(says("ok")), files={DEFAULT: rules}, on_approval=person
    ) as w:
        await (await w.server.start_thread(approval_policy="never")).run("go")
        assert not person.asked
        assert not (w.workspace / "d").exists()


async def test_a_damaged_file_is_told_of_and_allows_nothing(library: MakeLibraryWorld) -> None:
    rules = 'prefix_rule(pattern=["touch"], decision="allow")\nxx('
    person = Person("accept_with_rule")
    async with library(
        *(reply(script("touch a")), reply(says("ok"))),
        config=UNTRUSTED,
        files={DEFAULT: rules},
        on_approval=person,
    ) as w:
        await (await w.server.start_thread()).run("go")
        warnings = [each["message"] for each in notified(w, "warning")]
        assert len(person.asked) == 1
        assert (w.workspace / "a").exists()
        assert "default.rules is damaged" in warnings[0]
        assert "for this thread only" in warnings[-1]


async def test_a_patch_for_the_session_allows_later_changes_of_its_files(library: MakeLibraryWorld) -> None:
    changes = (
        "*** Add File: a.txt\n+one",
        "*** Update File: a.txt\n@@\n-one\n+two",
        "*** Delete File: a.txt\n*** Add File: b.txt\n+three",
    )
    texts = (f"*** Begin Patch\n{change}\n*** End Patch\n" for change in changes)
    replies = (reply(patches(text, f"c{n}")) for n, text in enumerate(texts))
    asked: list[PatchApprovalRequest] = []

    def decide(request: ApprovalRequest) -> ApprovalReply:
        assert isinstance(request, PatchApprovalRequest)
        asked.append(request)
        return request.accept_for_thread() if len(asked) == 1 else request.decline()

    async with library(*replies, reply(says("ok")), config=UNTRUSTED, on_approval=decide) as w:
        await (await w.server.start_thread()).run("go")
        assert [question.params.item_id for question in asked] == ["c0", "c2"], (
            "another file, another question"
        )
        assert (w.workspace / "a.txt").read_text() == "two\n"
        assert [each.name for each in w.workspace.iterdir()] == ["a.txt"]
