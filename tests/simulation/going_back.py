"""A person of the thread API goes back: lists checkpoints, previews, restores, and undoes the restore."""

from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server_protocol.encoding import Json
from tests.simulation.users_files import contents_of, users_lines

if TYPE_CHECKING:
    from tests.simulation.thread_person import ThreadPerson

WRITES = ("restore", "delete", "recreate")


class GoingBack:
    """One way back of a person in a thread, with what the oracle knows about it."""

    def __init__(self, person: "ThreadPerson", thread: str) -> None:
        self._person, self._thread = person, thread
        self._world, self._draws = person.world, person.draws
        self._folder = Path(person.world.workspace)

    async def go(self) -> None:
        """Go back to a message, usually when no turn runs, and perhaps forward again."""
        draws, person, thread = self._draws, self._person, self._thread
        if draws.chance("waits before going back", 0.8):
            with anyio.move_on_after(60):
                await person.until(lambda: person.running_in(thread) is None)
        listed = await self._person.ask("thread/checkpoint/list", {"threadId": self._thread})
        if "result" not in listed:
            return
        changed = [each["turnId"] for each in listed["result"]["data"] if each["filesChanged"]]
        turns = changed or [each["turnId"] for each in listed["result"]["data"]]
        if not turns:
            return
        turn = draws.pick("message to go back to", turns)
        what = draws.pick("what goes back", ("files", "files", "both"))
        if what == "both":
            self._person.record.reverted.add(self._thread)
        before = self._state()
        done = await self._restore(turn, what, uncertain=draws.chance("uncertain changes", 0.4))
        if done is None or done["undoTurnId"] is None or not draws.chance("undoes the restore", 0.6):
            return
        if draws.chance("writes before the undo", 0.3):
            self._person.write_file()
        undone = await self._restore(done["undoTurnId"], "files", uncertain=draws.chance("uncertain", 0.4))
        if undone is not None and undone["undoTurnId"] is not None:
            self._world.model.note("a restore was undone")
            if self._state()[0] == before[0]:
                self._compare(before[1], done, undone)

    async def finish(self) -> None:
        """Go on after a kill: take back the restores that a killed server has not completed."""
        listed = await self._person.ask("thread/checkpoint/list", {"threadId": self._thread})
        for restore in listed["result"]["restores"] if "result" in listed else ():
            if not restore["complete"]:
                self._world.model.note("a restore that was cut off was undone")
                await self._restore(restore["undoTurnId"], "files", uncertain=True)
                now, files = contents_of(self._folder), self._person.record.files
                others = [path for path in files.before_kill if now.get(path) != files.before_kill[path]]
                if others:
                    names = ", ".join(Path(path).name for path in others)
                    self._person.wrong.append(f"an undo after a kill does not bring back {names}")

    async def _restore(self, before: str, what: str, *, uncertain: bool) -> Json | None:
        """Preview and restore. Return the result; None if it was refused."""
        person, files, draws = self._person, self._person.record.files, self._draws
        params = {"threadId": self._thread, "beforeTurnId": before, "restore": what, "uncertain": uncertain}
        previewed = await person.ask("thread/checkpoint/preview", params)
        if "result" not in previewed:
            return None
        if not self._world.restarted and draws.chance("writes behind the preview", 0.15):
            person.write_file()
        files.uncertain_restores += uncertain
        merges = {"conflicts": "merge"} if draws.chance("merges", 0.3) else {}
        written, others = users_lines(self._folder), files.uncertain_restores
        answer = await person.ask(
            "thread/checkpoint/restore", {**params, **merges, "token": previewed["result"]["token"]}
        )
        files.uncertain_restores += uncertain
        lost = written - users_lines(self._folder)
        # Another person's restore may have run meanwhile. That of the conversation API ends unseen.
        alone = files.uncertain_restores == others and not (others and self._world.habits.company)
        if lost and not uncertain and alone:
            person.wrong.append(f"a restore lost {sorted(lost)}, which only the user wrote")
        if "result" not in answer:
            return None
        done: Json = answer["result"]
        changed = [each for each in done["files"] if each["action"] in WRITES and each["reason"] is None]
        if changed:
            self._world.model.note("a restore changed files")
            if self._world.habits.repository:
                self._world.model.note("a restore in a repository")
        if any(each["action"] not in WRITES for each in done["files"]):
            self._world.model.note("a restore kept files")
        return done

    def _state(self) -> tuple[object, dict[str, bytes]]:
        """Return what tells whether others have changed files, and the files."""
        world = self._world
        others = len(world.commands.ran), world.commands.running, len(world.record.files.lines)
        busy = any(person.busy() for person in world.people)
        return (object() if busy else others), dict(contents_of(self._folder))

    def _compare(self, before: dict[str, bytes], done: Json, undone: Json) -> None:
        """Check that an undo has brought back what the restore took, where it says so."""
        now = contents_of(self._folder)
        restored, back = (
            {each["path"] for each in result["files"] if each["action"] in WRITES and each["reason"] is None}
            for result in (done, undone)
        )
        for path in sorted(restored & back):
            if now.get(path) != before.get(path):
                self._person.wrong.append(f"{Path(path).name} is another after the undo of a restore")
