"""The invariants of every conversation, independent of the scenario. Each function returns its violations as texts.

They check two records: the messages that the client sent and received, in order, and the requests to the model.
"""

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from app_server.server.apis.v1.v1_adapter import TAKEN_BACK
from app_server_protocol.encoding import Json
from tests.support.client import ENDS, Client, Logged
from tests.support.published import departures
from tests.support.scripted_model import ModelRequest
from tests.support.thread_invariants import (
    stored_otherwise,
    violated_session_invariants,
    violated_thread_invariants,
)

OPENS_EARLY = ("raw_response_item", "entered_review_mode", "user_message")
"""Events that may come before the `task_started` of their turn, because the history needs them first."""

SPANS = ("exec_command", "patch_apply", "mcp_tool_call")
"""Prefixes of event pairs `…_begin` and `…_end` under one call id."""

QUESTIONS = {
    "execCommandApproval": "exec_approval_request",
    "applyPatchApproval": "apply_patch_approval_request",
    "elicitationRequest": "elicitation_request",
}
THREAD_STARTS_TURNS = ("turn/start", "review/start", "thread/compact/start", "thread/shellCommand")
STARTS_TURNS = ("sendUserMessage", "sendUserTurn", "submit")
GOES_ON = re.compile(r"^Process running with session ID (\d+)$", re.MULTILINE)
EXITED = re.compile(r"^Process exited with code -?\d+$", re.MULTILINE)
"""Text with which `exec_command` and `write_stdin` tell the model that a command on a terminal has exited. GOES_ON is
the text for a command that still runs.
"""
NONE: Mapping[str, bool] = MappingProxyType({})
STORED = ("user_message", "agent_message", "agent_reasoning", "turn_aborted")


def violated_invariants(
    client: Client, requests: Sequence[ModelRequest], rollouts: Sequence[Path]
) -> list[str]:
    """Return all violations of one client's scenario. A client that left early did not receive the last events."""
    log = client.log
    received = client.received()
    broken = _unpublished(client)
    broken += too_early(log)
    broken += unasked(received)
    broken += violated_thread_invariants(log, left_early=client.left_early)
    broken += stored_otherwise(received, rollouts)
    open_calls = terminals(requests)
    for conversation in conversations(received):
        events = list(events_of(received, conversation))
        to_the_end = not client.left_early
        broken += turns(events, to_the_end=to_the_end)
        broken += items([event for id, event in events if id])  # without the events of no operation
        broken += spans(events, to_the_end=to_the_end, terminals=open_calls)
    for n, request in enumerate(requests):
        broken += [f"model request {n}: {problem}" for problem in orphans(request.input)]
    stored = [rollout(path) for path in rollouts]
    broken += [problem for _, problems in stored for problem in problems]
    broken += unstored(received, dict(zip(map(str, rollouts), (lines for lines, _ in stored), strict=True)))
    return broken


def violated_by_client(client: Client, *, acp: bool = False) -> list[str]:
    """Return the violations of one of several clients: every message fits the schema, each request is answered once,
    and events come in a valid order.
    """
    if acp:  # its updates also show turns of other clients, outside of its own prompts
        broken = violated_session_invariants(client)
        return [each for each in broken if not each.startswith("session_06_updates_belong_to_a_prompt")]
    return _unpublished(client) + violated_thread_invariants(client.log, left_early=True)


def _unpublished(client: Client) -> list[str]:
    """Return messages that do not fit the schema, and requests that are not answered exactly once."""
    log = client.log
    broken = [f"a line is no message: {line[:100]!r}" for line in client.garbage]
    broken += [f"{problem}: {json.dumps(m.message)[:300]}" for m in log for problem in departures(m, log)]
    return broken + ([] if client.left_early else unanswered(log))


def conversations(received: Sequence[Json]) -> list[str]:
    found = (m["params"].get("conversationId") for m in received if is_event(m))
    return list(dict.fromkeys(each for each in found if each))


def is_event(message: Json) -> bool:
    return "id" not in message and str(message.get("method", "")).startswith("codex/event/")


def events_of(received: Sequence[Json], conversation: str) -> Iterator[tuple[str, Json]]:
    """Yield events with the ids of their operations, which count from zero again after each resume."""
    resumed = 0
    for message in received:
        resumed += resumes(message, conversation)
        if is_event(message) and message["params"].get("conversationId") == conversation:
            yield _operation(message["params"]["id"], resumed), message["params"]["msg"]


def resumes(message: Json, conversation: str) -> bool:
    """Return whether the operations of a conversation count from zero again: it was opened again or reverted."""
    params = message.get("params") or {}
    if is_event(message) and params["msg"].get("message") == TAKEN_BACK:
        return bool(params["conversationId"] == conversation)
    return bool(message.get("method") == "sessionConfigured" and params["sessionId"] == conversation)


def _operation(id: str, resumed: int) -> str:
    return f"{id} after resume {resumed}" if resumed and id else id


# --- requests and answers
def unanswered(log: Sequence[Logged]) -> list[str]:
    """Return requests that are not answered exactly once, and answers without a request."""
    asked = Counter(_id(e.message) for e in log if e.sent and "method" in e.message and "id" in e.message)
    answers = [e.message for e in log if not e.sent and "method" not in e.message]
    got = Counter(_id(m) for m in answers if m.get("id") is not None)
    return [
        f"request {id} was asked {asked[id]} times, answered {got[id]} times"
        for id in asked | got
        if asked[id] != got[id]
    ]


def _id(message: Json) -> str:
    return json.dumps(message["id"])


def too_early(log: Sequence[Logged]) -> list[str]:
    """Return events that come before the answer that announces them."""
    methods = {
        _id(e.message): e.message for e in log if e.sent and "method" in e.message and "id" in e.message
    }
    listened: set[str] = set()
    announced: Counter[str] = Counter()
    submitted: dict[tuple[str, str], int] = {}
    first_event: dict[tuple[str, str], int] = {}
    resumed: Counter[str] = Counter()
    broken = []
    for n, entry in enumerate(log):
        message = entry.message
        if entry.sent:
            continue
        params = message.get("params") or {}
        name = params.get("conversationId") or params.get("sessionId")
        if name is not None:
            resumed[name] += resumes(message, name)
        if is_event(message):
            conversation = message["params"]["conversationId"]
            id = _operation(message["params"]["id"], resumed[conversation])
            kind = message["params"]["msg"]["type"]
            first_event.setdefault((conversation, id), n)
            if conversation not in listened:
                broken.append(f"{kind} before the answer to addConversationListener")
            if kind == "task_started":
                announced[conversation] -= 1
                if announced[conversation] < 0:
                    broken.append(f"task_started {id} before the answer to the request that caused it")
        elif "method" not in message and "result" in message:
            request = methods.get(_id(message), {"method": None})
            conversation = str((request.get("params") or {}).get("conversationId"))
            if request["method"] == "addConversationListener":
                listened.add(conversation)
            elif request["method"] in THREAD_STARTS_TURNS:
                announced[str(request["params"]["threadId"])] += 1
            elif request["method"] in STARTS_TURNS:
                announced[conversation] += 1
            if request["method"] == "submit":
                id = _operation(message["result"]["submissionId"], resumed[conversation])
                submitted[conversation, id] = n
    broken += [
        f"an event of operation {key[1]} before the answer that says its id"
        for key, n in submitted.items()
        if first_event.get(key, n) < n
    ]
    return broken


def unasked(received: Sequence[Json]) -> list[str]:
    """Return questions to the client that do not come exactly once after the event of the same call."""
    told: Counter[tuple[str, str]] = Counter()
    broken = []
    for message in received:
        if is_event(message) and message["params"]["msg"]["type"] in QUESTIONS.values():
            told[message["params"]["msg"]["type"], _call(message["params"]["msg"])] += 1
        elif "id" in message and message.get("method") in QUESTIONS:
            key = QUESTIONS[message["method"]], _call(message["params"])
            told[key] -= 1
            if told[key] < 0:
                broken.append(f"{message['method']} for {key[1]} without its event")
    return broken


def _call(params: Json) -> str:
    for name in ("call_id", "callId", "requestId", "id"):
        if name in params:
            return str(params[name])
    raise AssertionError(f"no call: {params}")


# --- events
def turns(events: Sequence[tuple[str, Json]], *, to_the_end: bool = True) -> list[str]:
    """Return violations of the order of turns: `task_started` first, one end, nothing after it; one turn at a time. An
    operation without a message of the user has only an end.
    """
    started: set[str] = set()
    ended: set[str] = set()
    broken = []
    for id, event in events:
        kind = event["type"]
        if kind == "task_started":
            if to_the_end and started - ended:
                broken.append(f"turn {id} starts while {sorted(started - ended)} runs")
            if id in started:
                broken.append(f"turn {id} starts twice")
            started.add(id)
        elif kind in ENDS:
            if id in ended:
                broken.append(f"turn {id} ends twice")
            nothing_said = kind == "task_complete" and event.get("last_agent_message") is None
            if id not in started and kind != "turn_aborted" and not nothing_said:
                broken.append(f"turn {id} ends and never started")
            ended.add(id)
        elif id in ended and kind != "raw_response_item":
            broken.append(f"{kind} after the end of turn {id}")
    if to_the_end:
        broken += [f"turn {id} never ends" for id in sorted(started - ended)]
    for id in started:
        mine = [event["type"] for each, event in events if each == id]
        early = mine[: mine.index("task_started")]
        broken += [f"{kind} before task_started of turn {id}" for kind in early if kind not in OPENS_EARLY]
    return broken


def items(events: Sequence[Json]) -> list[str]:
    """Return violations of the order of items: `item_started`, deltas, `item_completed`. The ids are the provider's,
    which may use an id again.
    """
    open_items: dict[str, str] = {}
    broken = []
    for event in events:
        match event["type"]:
            case "item_started":
                id = _item_id(event)
                if id in open_items:
                    broken.append(f"item {id} starts twice")
                open_items[id] = event["turn_id"]
            case "item_completed":
                id = _item_id(event)
                # An item without an id from the provider and without deltas completes under another id, as in codex
                # 0.58.
                renamed = next((each for each in open_items if _other_id(each) == id), id)
                if open_items.pop(renamed, None) is None:
                    broken.append(f"item {id} completes and never started")
            case "turn_aborted" | "error" | "stream_error":
                open_items.clear()  # an interrupted message is sent anew or never
            case "agent_message_content_delta" | "reasoning_content_delta" | "reasoning_raw_content_delta":
                if event["item_id"] not in open_items:
                    broken.append(f"{event['type']} of item {event['item_id']}, which is not open")
    return broken


def _other_id(id: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, id))


def _item_id(event: Json) -> str:
    (item,) = event["item"].values()
    return str(item["id"])


def spans(
    events: Sequence[tuple[str, Json]], *, to_the_end: bool = True, terminals: Mapping[str, bool] = NONE
) -> list[str]:
    """Return violations of spans: each begin has one end under the same call id, or ends with its turn; output comes in
    between. `terminals` outlive their turns; a terminal that is not known to have exited may end with the conversation.
    """
    running: dict[tuple[str, str], str] = {}
    broken = []
    for id, event in events:
        name, _, what = event["type"].rpartition("_")
        call = event.get("call_id", "")
        if event["type"] == "exec_command_output_delta":
            if not any((each, call) in running for each in ("exec_command", "patch_apply")):
                broken.append(f"output of {call}, which does not run")
        elif name in SPANS and what == "begin":
            running[name, call] = id
        elif name in SPANS and what == "end" and running.pop((name, call), None) is None:
            broken.append(f"{name} of {call} ends and does not run")
        elif event["type"] in ENDS:
            left = [key for key, turn in running.items() if turn == id]
            if event["type"] == "task_complete":
                left = [key for key in left if key[1] not in terminals]
                broken += [f"turn {id} ends while {call} runs" for _, call in left]
            for key in left:  # `turn_aborted` ends every running call, terminals too
                del running[key]
    if to_the_end:
        broken += [f"{name} of {call} never ends" for name, call in running if not terminals.get(call)]
    return broken


# --- the model's side
def terminals(requests: Sequence[ModelRequest]) -> dict[str, bool]:
    """Return the calls of `exec_command` that the model was told still run, and whether they ran at the last report."""
    found: dict[str, bool] = {}
    for request in requests:
        names: dict[str, str] = {}
        asked = {item["call_id"]: item for item in request.input if item["type"] == "function_call"}
        for call, output in request.outputs().items():
            tool = asked[call]["name"] if call in asked else None
            if tool == "exec_command" and (told := GOES_ON.search(output)):
                names[told[1]] = call
                found[call] = True
            elif tool == "write_stdin" and EXITED.search(output):
                number = str(json.loads(asked[call]["arguments"])["session_id"])
                if number in names:  # otherwise a compaction removed the call that opened it
                    found[names[number]] = False
    return found


def orphans(history: Sequence[Json]) -> list[str]:
    """Return calls without exactly one output after them, and outputs without a call."""
    calls: list[str] = []
    outputs: list[str] = []
    broken = []
    for item in history:
        match item["type"]:
            case "function_call" | "custom_tool_call" | "local_shell_call":
                calls.append(item["call_id"])
            case "function_call_output" | "custom_tool_call_output":
                if item["call_id"] not in calls:
                    broken.append(f"output of {item['call_id']}, which was not called before")
                outputs.append(item["call_id"])
    broken += [f"call {call} has no output" for call in calls if call not in outputs]
    broken += [
        f"call {call} has {n} outputs" for call, n in Counter(outputs).items() if n > calls.count(call)
    ]
    return broken


# --- the disk
def rollout(path: Path) -> tuple[list[Json], list[str]]:
    """Return the lines of a stored conversation, and what is wrong with them."""
    lines: list[Json] = []
    broken = []
    for n, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
    ):
        try:
            value = json.loads(line)
        except ValueError:
            broken.append(f"{path.name}, line {n + 1} is no JSON: {line[:100]}")
            continue
        if not {"timestamp", "type", "payload"} <= value.keys():
            broken.append(f"{path.name}, line {n + 1} is no rollout line: {line[:100]}")
            continue
        lines.append(value)
    if not lines or lines[0]["type"] != "session_meta":
        broken.append(f"{path.name} does not begin with session_meta")
    elif lines[0]["payload"]["id"] not in path.name:
        broken.append(f"{path.name} is of {lines[0]['payload']['id']}")
    kept = [line["payload"] for line in lines if line["type"] == "response_item"]
    if not any(line["type"] == "compacted" for line in lines):
        broken += [f"{path.name}: {problem}" for problem in orphans(kept)]
    return lines, broken


def unstored(received: Sequence[Json], rollouts: dict[str, list[Json]]) -> list[str]:
    """Return events that the client received, that have to be stored, and that the file does not have in that order."""
    broken = []
    for conversation in conversations(received):
        files = [lines for path, lines in rollouts.items() if conversation in path]
        stored = iter([line["payload"] for lines in files for line in lines if line["type"] == "event_msg"])
        for _, event in events_of(received, conversation):
            if event["type"] in STORED and files and not any(_is_stored_as(event, each) for each in stored):
                broken.append(f"the client was told of {json.dumps(event)[:200]}, the rollout was not")
                break
    return broken


def _is_stored_as(event: Json, line: Json) -> bool:
    """Return whether a stored line holds the event. The line may have more fields: ids and times, for clients of the
    thread API.
    """
    return all(line.get(key) == value for key, value in event.items())
