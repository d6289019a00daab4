"""An editor that speaks the Agent Client Protocol, over the client of a scenario."""

from dataclasses import dataclass, field

from app_server_protocol.encoding import Json
from tests.support.world import World

EVERYTHING: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "session": {"notices": {}, "compaction": {}},
    "elicitation": {"form": {}},
}


@dataclass
class Editor:
    world: World
    capabilities: Json = field(default_factory=dict)

    async def start(self) -> Json:
        params = {"protocolVersion": 1, "clientCapabilities": self.capabilities}
        return await self.world.client.call(
            "initialize", {**params, "clientInfo": {"name": "tests", "version": "1.0"}}
        )

    async def session(self, **more: Json) -> str:
        made = await self.world.client.call("session/new", self.opening(**more))
        return str(made["sessionId"])

    def opening(self, **more: Json) -> Json:
        return {"cwd": str(self.world.workspace), "mcpServers": [], **more}

    async def prompt(self, session: str, *blocks: str | Json) -> int | str:
        """Send a prompt without waiting for its end; return the id of the request."""
        content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
        params = {"sessionId": session, "prompt": content or [{"type": "text", "text": "hi"}]}
        return await self.world.client.send("session/prompt", params)

    async def turn(self, session: str, *blocks: str | Json) -> Json:
        """Send a prompt and return its answer once the turn is over."""
        return await self.world.client.answer_to(await self.prompt(session, *blocks))

    async def ends(self, session: str, *blocks: str | Json) -> str:
        answer = await self.turn(session, *blocks)
        assert "result" in answer, answer
        return str(answer["result"]["stopReason"])

    def permit(self, *options: str) -> None:
        answers = [{"outcome": {"outcome": "selected", "optionId": option}} for option in options]
        self.world.client.decide("session/request_permission", *answers)

    async def asked(self) -> Json:
        return await self.world.client.expect("session/request_permission")

    async def cancel(self, session: str) -> None:
        await self.world.client.tell("session/cancel", {"sessionId": session})

    # --- what was received
    def updates(self, kind: str | None = None) -> list[Json]:
        found = [
            m["params"]["update"] for m in self.world.client.received() if m.get("method") == "session/update"
        ]
        return [each for each in found if kind is None or each["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(each["content"].get("text", "") for each in self.updates(kind))

    def calls(self) -> dict[str, Json]:
        """Return the tool calls in their state after all updates, with all their statuses in order as `seen`."""
        calls: dict[str, Json] = {}
        for update in self.updates():
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                call = calls.setdefault(update["toolCallId"], {"seen": []})
                call |= {key: value for key, value in update.items() if key != "sessionUpdate"}
                call["seen"] += [update["status"]] if "status" in update else []
        return calls

    async def update(self, kind: str) -> Json:
        """Wait for the next update of that kind."""
        found = await self.world.client.expect(
            lambda m: m.get("method") == "session/update" and m["params"]["update"]["sessionUpdate"] == kind
        )
        return found["params"]["update"]


def diffs(call: Json) -> dict[str, tuple[str | None, str]]:
    """Return old and new text by path."""
    return {
        each["path"]: (each["oldText"], each["newText"])
        for each in call.get("content") or []
        if each["type"] == "diff"
    }


async def opened(w: World, capabilities: Json = None, **more: Json) -> tuple[Editor, str]:
    """Return an editor with a new session, and the session's id."""
    editor = Editor(w, capabilities or {})
    await editor.start()
    return editor, await editor.session(**more)


async def loaded(w: World, session: str, capabilities: Json = None) -> tuple[Editor, Json]:
    """Return an editor that has loaded a stored session, and the answer."""
    editor = Editor(w, capabilities or {})
    await editor.start()
    return editor, await w.client.call("session/load", editor.opening(sessionId=session))
