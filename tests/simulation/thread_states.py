"""The states of threads as their clients know them, over all APIs, and the events that meet them: deeds of clients, and
faults of a server.
"""

from collections.abc import Iterator

from app_server_protocol.encoding import Json
from tests.simulation.journal import Entry

FAULTS = (
    "an MCP server died",
    "a clock jumped",
    "the disk is full",
    "write failed",
    "short write",
    "fsync failed",
    "open failed",
    "pread failed",
    "rename failed",
    "stream cut",
    "stream idle",
    "status 401",
    "status 429",
    "status 500",
    "status 503",
    "killed",
    "power cut",
    "somebody left",
    "somebody came back",
)
"""Faults of a whole server, by their note in the journal. A fault meets every thread that is not idle."""

DEEDS = {
    "turn/start": "say",
    "sendUserMessage": "say",
    "sendUserTurn": "say",
    "session/prompt": "say",
    "turn/steer": "steer",
    "turn/interrupt": "interrupt",
    "interruptConversation": "interrupt",
    "session/cancel": "interrupt",
    "thread/resume": "resume",
    "resumeConversation": "resume",
    "session/load": "resume",
    "thread/read": "read",
    "thread/fork": "fork",
    "thread/archive": "archive",
    "archiveConversation": "archive",
    "thread/compact/start": "compact",
    "compact": "compact",
    "thread/shellCommand": "shell",
    "run_user_shell_command": "shell",
    "thread/settings/update": "settings",
    "override_turn_context": "settings",
    "thread/name/set": "name",
    "thread/goal/set": "goal",
    "thread/goal/clear": "no goal",
    "review/start": "review",
    "review": "review",
    "thread/revert": "revert",
    "undo": "undo",
    "answer": "answer",
}
"""Deeds, by method or by the type of a submitted operation."""

STATES = ("idle", "accepted", "asked", "speaking", "running", "between", "compacting")
SPEAKING = ("agentMessage", "reasoning", "AgentMessage", "Reasoning")
CHUNKS = {"agent_message_chunk": "agentMessage", "agent_thought_chunk": "reasoning"}
SPANS = ("exec_command", "patch_apply", "mcp_tool_call")
SAYS = ("turn/start", "sendUserMessage", "sendUserTurn", "session/prompt")
THREAD_NAMES = ("threadId", "conversationId", "sessionId")


class _Thread:
    """A client's knowledge of one thread."""

    def __init__(self) -> None:
        self.runs = self.accepted = False
        self.items: dict[Json, str] = {}
        self.questions: set[Json] = set()
        self.prompts: set[Json] = set()
        """Ids of prompts of the Agent Client Protocol, which are answered at the end of their turns."""

    @property
    def state(self) -> str:
        kinds = set(self.items.values())
        if self.questions:
            return "asked"
        if "contextCompaction" in kinds:
            return "compacting"
        if kinds.intersection(SPEAKING):
            return "speaking"
        if kinds:
            return "running"
        if self.runs:
            return "between"
        return "accepted" if self.accepted else "idle"

    def end(self) -> None:
        self.runs = self.accepted = False
        self.items, self.questions, self.prompts = {}, set(), set()

    def begin(self) -> None:
        self.runs, self.accepted = True, False

    def sent(self, method: str, id: Json) -> None:
        """Take a request of the client."""
        self.accepted |= method in SAYS and not self.runs
        if method == "session/prompt":
            self.prompts.add(id)

    def prompt_ends(self, id: Json) -> None:
        self.prompts.discard(id)
        if not self.prompts:
            self.end()

    def told(self, method: str, params: Json) -> None:
        """Take a notification of any API."""
        match method:
            case "turn/started":
                self.begin()
            case "turn/completed":
                self.end()
            case "item/started":
                self.items[params["item"]["id"]] = params["item"]["type"]
            case "item/completed":
                self.items.pop(params["item"]["id"], None)
            case "serverRequest/resolved":
                self.questions.discard(params.get("requestId"))
            case "session/update":
                self._updated(params["update"])
            case _ if method.startswith("codex/event/"):
                self._event(params["msg"])

    def _event(self, msg: Json) -> None:
        name, _, what = msg["type"].rpartition("_")
        match msg["type"]:
            case "task_started":
                self.begin()
            case "task_complete" | "turn_aborted":
                self.end()
            case "item_started":
                ((kind, item),) = msg["item"].items()
                self.items[item["id"]] = kind
            case "item_completed":
                ((_, item),) = msg["item"].items()
                self.items.pop(item["id"], None)
            case _ if name in SPANS and what == "begin":
                self.items[msg["call_id"]] = name
            case _ if name in SPANS and what == "end":
                self.items.pop(msg["call_id"], None)

    def _updated(self, update: Json) -> None:
        kind = update["sessionUpdate"]
        if self.prompts:
            self.begin()
        for chunk in CHUNKS:
            self.items.pop(chunk, None)
        if kind in CHUNKS:
            self.items[kind] = CHUNKS[kind]
        elif kind == "tool_call":
            self.items[update["toolCallId"]] = kind
        elif kind == "tool_call_update" and update.get("status") in ("completed", "failed"):
            self.items.pop(update["toolCallId"], None)


class Threads:
    """The clients' knowledge of all threads of a world."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Thread] = {}
        self._asked: dict[tuple[str, bool, Json], _Thread] = {}
        """Thread that a request is about, by client, sender and number."""

    def take(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """Take an entry of the journal; yield each event in it, with the state that it met."""
        if not entry.who:
            if entry.message in FAULTS:
                busy = {each.state for each in self._known.values()} - {"idle"}
                yield from ((entry.message, state) for state in sorted(busy) or ["idle"])
            return
        message, params = entry.message, entry.message.get("params") or {}
        method, id = message.get("method", ""), message.get("id")
        name = next((params[each] for each in THREAD_NAMES if isinstance(params.get(each), str)), None)
        if not method:
            yield from self._answered(entry, id)
        elif name is not None:
            thread = self._known.setdefault((entry.who, name), _Thread())
            if entry.sent:
                what = params["op"]["type"] if method == "submit" else method
                if what in DEEDS:
                    yield DEEDS[what], thread.state
                thread.sent(method, id)
            elif id is not None:
                thread.questions.add(id)
            else:
                thread.told(method, params)
            if id is not None:
                self._asked[entry.who, entry.sent, id] = thread

    def _answered(self, entry: Entry, id: Json) -> Iterator[tuple[str, str]]:
        thread = self._asked.get((entry.who, not entry.sent, id))
        if thread is None:
            return
        if entry.sent:
            yield "answer", thread.state
            thread.questions.discard(id)
        elif id in thread.prompts:
            thread.prompt_ends(id)
