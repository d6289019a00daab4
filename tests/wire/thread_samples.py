"""Messages of the thread API as they look on the wire: every kind of item and notification, and the core
requests."""

from typing import Final

from protocol.structs import Json

THREAD: Final = "0199e3a4-5b6c-7d8e-9f01-23456789abcd"
TURN: Final = "0199e3a4-6000-7d8e-9f01-23456789abcd"
_TIMES: Final[Json] = {"startedAtMs": 1795288573327, "completedAtMs": None}
_OF_THREAD: Final[Json] = {"threadId": THREAD}
_OF_TURN: Final[Json] = {"threadId": THREAD, "turnId": TURN}
_OF_ITEM: Final[Json] = {**_OF_TURN, "itemId": "call-1"}


def _item(type_: str, **fields: Json) -> Json:
    return {"type": type_, "id": f"{type_}-1", **_TIMES, **fields}


ITEMS: Final[list[Json]] = [
    _item(
        "userMessage",
        clientId=None,
        content=[
            {
                "type": "text",
                "text": "hi @a",
                "text_elements": [{"byteRange": {"start": 3, "end": 5}, "placeholder": "a"}],
            },
            {"type": "text", "text": "plain", "text_elements": []},
            {"type": "image", "url": "data:image/png;base64,AAAA", "detail": None},
            {"type": "localImage", "path": "/ws/dot.png", "detail": "high"},
            {"type": "audio", "url": "data:audio/wav;base64,AAAA"},
            {"type": "localAudio", "path": "/ws/a.wav"},
            {"type": "skill", "name": "s", "path": "/skills/s/SKILL.md"},
            {"type": "mention", "name": "a.py", "path": "/ws/a.py"},
        ],
    ),
    _item("hookPrompt", fragments=[{"text": "be brief", "hookRunId": "h1"}]),
    _item("agentMessage", text="Hello", phase=None, memoryCitation=None),
    _item(
        "agentMessage",
        text="Hello",
        phase="final_answer",
        memoryCitation={
            "entries": [{"path": "/m", "lineStart": 1, "lineEnd": 2, "note": "n"}],
            "threadIds": [THREAD],
        },
    ),
    _item("functionCallOutput", name="f", namespace=None, output="text"),
    _item("functionCallOutput", name="f", namespace="n", output=[{"type": "input_text", "text": "t"}]),
    _item("plan", text="1. look"),
    _item("reasoning", summary=["**Looking**"], content=[]),
    _item(
        "commandExecution",
        command="/bin/bash -lc 'cat a.py'",
        cwd="/ws",
        processId=None,
        source="agent",
        status="inProgress",
        commandActions=[
            {"type": "read", "command": "cat a.py", "name": "a.py", "path": "/ws/a.py"},
            {"type": "listFiles", "command": "ls", "path": None},
            {"type": "search", "command": "rg x", "query": "x", "path": None},
            {"type": "unknown", "command": "make"},
        ],
        aggregatedOutput=None,
        exitCode=None,
        durationMs=None,
        pluginId=None,
        scriptPath=None,
    ),
    _item(
        "fileChange",
        changes=[
            {"path": "/ws/new", "kind": {"type": "add"}, "diff": "hello\n"},
            {"path": "/ws/old", "kind": {"type": "delete"}, "diff": "bye\n"},
            {"path": "/ws/a", "kind": {"type": "update", "move_path": None}, "diff": "@@ -1 +1 @@\n-a\n+b\n"},
        ],
        status="declined",
    ),
    _item(
        "mcpToolCall",
        server="kit",
        tool="echo",
        status="completed",
        arguments={"text": "x"},
        result={"content": [{"type": "text", "text": "x"}], "structuredContent": None, "_meta": {"a": 1}},
        error=None,
        durationMs=1,
        appContext=None,
        pluginId=None,
        readOnlyHint=None,
        mcpAppUi=None,
    ),
    _item(
        "dynamicToolCall",
        namespace=None,
        tool="lookup",
        arguments={"id": 7},
        status="completed",
        contentItems=[
            {"type": "inputText", "text": "t"},
            {"type": "inputImage", "imageUrl": "data:image/png;base64,AAAA"},
            {"type": "inputAudio", "audioUrl": "data:audio/wav;base64,AAAA"},
        ],
        success=True,
        durationMs=3,
    ),
    _item(
        "collabAgentToolCall",
        tool="spawnAgent",
        status="inProgress",
        senderThreadId=THREAD,
        receiverThreadIds=[],
        agentsStates={THREAD: {"status": "running", "message": None}},
        prompt=None,
        model=None,
        reasoningEffort="high",
    ),
    _item(
        "subAgentActivity",
        kind="started",
        agentThreadId=THREAD,
        agentPath="/a",
        model=None,
        reasoningEffort=None,
    ),
    _item("webSearch", query="weather", action=None, results=None),
    _item(
        "webSearch", query="w", action={"type": "search", "query": "w", "queries": None}, results=[{"u": 1}]
    ),
    _item("webSearch", query="", action={"type": "openPage", "url": None}, results=None),
    _item("webSearch", query="", action={"type": "findInPage", "url": "u", "pattern": "p"}, results=None),
    _item("webSearch", query="", action={"type": "other"}, results=None),
    _item("imageView", path="/ws/dot.png"),
    _item("sleep", durationMs=5),
    _item(
        "imageGeneration",
        status="failed",
        result="AAAA",
        failure={"type": "usageLimitExceeded", "limitId": "l", "resetsAt": None},
        generationId=None,
        inputImages=[{"path": "/ws/dot.png", "sha256": "00"}],
        revisedPrompt=None,
        savedPath=None,
        transparentBackground=None,
    ),
    _item("enteredReviewMode", review="current changes"),
    _item("exitedReviewMode", review="No findings."),
    _item("contextCompaction"),
]

ERRORS: Final[list[Json]] = [
    None,
    "contextWindowExceeded",
    "other",
    {"httpConnectionFailed": {"httpStatusCode": 503}},
    {"responseStreamConnectionFailed": {"httpStatusCode": None}},
    {"responseStreamDisconnected": {"httpStatusCode": None}},
    {"responseTooManyFailedAttempts": {"httpStatusCode": 500}},
    {"activeTurnNotSteerable": {"turnKind": "compact"}},
]

_TURN_VALUE: Final[Json] = {
    "id": TURN,
    "rootTurnId": TURN,
    "items": [],
    "itemsView": "notLoaded",
    "status": "inProgress",
    "error": None,
    "startedAt": None,
    "completedAt": None,
    "durationMs": None,
}

THREAD_VALUE: Final[Json] = {
    "id": THREAD,
    "sessionId": THREAD,
    "forkedFromId": None,
    "parentThreadId": None,
    "preview": "",
    "ephemeral": False,
    "projectId": None,
    "historyMode": "paginated",
    "modelProvider": "mock",
    "model": "mock-model",
    "reasoningEffort": None,
    "createdAt": 1795288573,
    "updatedAt": 1795288573,
    "recencyAt": None,
    "status": {"type": "idle"},
    "path": None,
    "cwd": "/ws",
    "cliVersion": "0.169.0",
    "originator": "lab",
    "source": "vscode",
    "threadSource": None,
    "agentNickname": None,
    "agentRole": None,
    "name": None,
    "gitInfo": None,
    "turns": [],
}

_IN_FORCE: Final[Json] = {
    "model": "mock-model",
    "modelProvider": "mock",
    "serviceTier": None,
    "cwd": "/ws",
    "runtimeWorkspaceRoots": ["/ws"],
    "instructionSources": [],
    "approvalPolicy": "on-request",
    "approvalsReviewer": "user",
    "sandbox": {
        "type": "workspaceWrite",
        "writableRoots": [],
        "networkAccess": False,
        "excludeTmpdirEnvVar": False,
        "excludeSlashTmp": False,
    },
    "activePermissionProfile": None,
    "reasoningEffort": None,
}

_SETTINGS: Final[Json] = {
    "cwd": "/ws",
    "approvalPolicy": {
        "granular": {
            "sandbox_approval": True,
            "rules": True,
            "skill_approval": False,
            "request_permissions": False,
            "mcp_elicitations": True,
        }
    },
    "approvalsReviewer": "user",
    "sandboxPolicy": {"type": "readOnly", "networkAccess": False},
    "activePermissionProfile": None,
    "model": "m",
    "modelProvider": "mock",
    "serviceTier": None,
    "effort": "xhigh",
    "summary": "auto",
    "collaborationMode": {
        "mode": "plan",
        "settings": {"model": "m", "reasoning_effort": None, "developer_instructions": None},
    },
    "personality": None,
}

_USAGE: Final[Json] = {
    "totalTokens": 15,
    "inputTokens": 10,
    "cachedInputTokens": 0,
    "cacheWriteInputTokens": 0,
    "outputTokens": 5,
    "reasoningOutputTokens": 0,
}
_LIMITS: Final[Json] = {
    "limitId": "codex",
    "limitName": None,
    "normalModelSlug": None,
    "primary": {"usedPercent": 12, "windowDurationMins": 300, "resetsAt": None},
    "secondary": None,
    "credits": None,
    "individualLimit": None,
    "spendControlReached": None,
    "planType": "plus",
    "rateLimitReachedType": None,
}
_GOAL: Final[Json] = {
    "threadId": THREAD,
    "objective": "green tests",
    "status": "active",
    "tokenBudget": None,
    "tokensUsed": 0,
    "timeUsedSeconds": 0,
    "createdAt": 1,
    "updatedAt": 2,
}
_HIT: Final[Json] = {
    "root": "/ws",
    "path": "a.py",
    "match_type": "file",
    "file_name": "a.py",
    "score": 9,
    "indices": None,
}

NOTIFICATIONS: Final[dict[str, Json]] = {
    "thread/started": {"thread": THREAD_VALUE},
    "thread/status/changed": {
        **_OF_THREAD,
        "status": {"type": "active", "activeFlags": ["waitingOnApproval"]},
    },
    "thread/archived": _OF_THREAD,
    "thread/unarchived": _OF_THREAD,
    "thread/deleted": _OF_THREAD,
    "thread/closed": _OF_THREAD,
    "thread/reverted": _OF_THREAD,
    "thread/name/updated": {**_OF_THREAD, "threadName": "Build"},
    "thread/settings/updated": {**_OF_THREAD, "threadSettings": _SETTINGS},
    "thread/tokenUsage/updated": {
        **_OF_TURN,
        "tokenUsage": {"total": _USAGE, "last": _USAGE, "modelContextWindow": None},
    },
    "thread/goal/updated": {**_OF_TURN, "goal": _GOAL},
    "thread/goal/cleared": _OF_THREAD,
    "turn/started": {**_OF_THREAD, "turn": _TURN_VALUE},
    "turn/completed": {
        **_OF_THREAD,
        "turn": {
            **_TURN_VALUE,
            "items": [ITEMS[2]],
            "itemsView": "summary",
            "status": "failed",
            "error": {"message": "m", "codexErrorInfo": "other", "additionalDetails": None},
        },
    },
    "turn/diff/updated": {**_OF_TURN, "diff": "diff --git a/a b/a\n"},
    "turn/plan/updated": {
        **_OF_TURN,
        "explanation": None,
        "plan": [{"step": "look", "status": "inProgress"}],
    },
    "error": {
        "error": {"message": "Reconnecting... 1/2", "codexErrorInfo": ERRORS[5], "additionalDetails": "cut"},
        "willRetry": True,
        **_OF_TURN,
    },
    "item/started": {"item": ITEMS[0], **_OF_TURN, "startedAtMs": 1},
    "item/completed": {"item": ITEMS[2], **_OF_TURN, "contentTokenCount": None, "completedAtMs": 2},
    "item/agentMessage/delta": {**_OF_ITEM, "delta": 'Hel "lo"\n\u2028 wörld'},
    "item/plan/delta": {**_OF_ITEM, "delta": "1."},
    "item/reasoning/summaryPartAdded": {**_OF_ITEM, "summaryIndex": 0},
    "item/reasoning/summaryTextDelta": {**_OF_ITEM, "delta": "**L", "summaryIndex": 0},
    "item/reasoning/textDelta": {**_OF_ITEM, "delta": "raw", "contentIndex": 1},
    "item/commandExecution/outputDelta": {**_OF_ITEM, "delta": "b\n"},
    "item/commandExecution/terminalInteraction": {**_OF_ITEM, "processId": "1", "stdin": "y\n"},
    "serverRequest/resolved": {**_OF_THREAD, "requestId": 0},
    "mcpServer/startupStatus/updated": {
        **_OF_THREAD,
        "name": "kit",
        "status": "failed",
        "error": "no such file",
        "failureReason": None,
    },
    "mcpServer/oauthLogin/completed": {"name": "kit", **_OF_THREAD, "success": False, "error": None},
    "account/updated": {"authMode": "apikey", "planType": None},
    "account/login/completed": {"loginId": None, "success": True, "error": None},
    "account/rateLimits/updated": {"rateLimits": _LIMITS},
    "skills/changed": {},
    "fs/changed": {"watchId": "w", "changedPaths": ["/ws/a"]},
    "fuzzyFileSearch/sessionUpdated": {"sessionId": "s", "query": "a", "files": [_HIT]},
    "fuzzyFileSearch/sessionCompleted": {"sessionId": "s"},
    "command/exec/outputDelta": {
        "processId": "p",
        "stream": "stdout",
        "deltaBase64": "YQ==",
        "capReached": False,
    },
    "warning": {**_OF_THREAD, "message": "careful"},
    "deprecationNotice": {"summary": "old", "details": None},
    "configWarning": {"summary": "unknown key", "details": None},
}

_PAGE: Final[Json] = {"nextCursor": None, "backwardsCursor": "c"}

REQUESTS: Final[dict[str, tuple[Json, Json]]] = {
    "initialize": (
        {
            "clientInfo": {"name": "lab", "title": "Lab", "version": "1.0"},
            "capabilities": {
                "experimentalApi": True,
                "optOutNotificationMethods": ["thread/started", "no/such"],
            },
        },
        {
            "userAgent": "lab/0.169.0 (Debian 12; x86_64) unknown (lab; 1.0)",
            "codexHome": "/home/me/.codex",
            "platformFamily": "unix",
            "platformOs": "linux",
        },
    ),
    "thread/start": (
        {
            "cwd": "/ws",
            "approvalPolicy": "on-request",
            "sandbox": "workspace-write",
            "ephemeral": True,
            "dynamicTools": [
                {
                    "type": "function",
                    "name": "f",
                    "description": "d",
                    "inputSchema": {},
                    "deferLoading": False,
                },
                {"type": "namespace", "name": "n", "description": "d", "tools": []},
            ],
        },
        {"thread": THREAD_VALUE, **_IN_FORCE},
    ),
    "thread/resume": (
        {**_OF_THREAD, "excludeTurns": True, "initialTurnsPage": {"limit": 3, "sortDirection": "desc"}},
        {
            "thread": THREAD_VALUE,
            **_IN_FORCE,
            "collaborationMode": None,
            "initialTurnsPage": {"data": [_TURN_VALUE], **_PAGE},
            "turnsBackwardsCursor": None,
            "itemsBackwardsCursor": None,
        },
    ),
    "thread/fork": (
        {**_OF_THREAD, "lastTurnId": TURN, "ephemeral": False},
        {"thread": {**THREAD_VALUE, "forkedFromId": THREAD}, **_IN_FORCE},
    ),
    "thread/unsubscribe": (_OF_THREAD, {"status": "notLoaded"}),
    "thread/read": ({**_OF_THREAD, "includeTurns": True}, {"thread": THREAD_VALUE}),
    "thread/loaded/list": ({"limit": 1}, {"data": [THREAD], "nextCursor": None}),
    "thread/list": (
        {"cwd": ["/a", "/b"], "sortKey": "updated_at", "sourceKinds": ["cli"], "searchTerm": "x"},
        {"data": [THREAD_VALUE], **_PAGE},
    ),
    "thread/turns/list": (
        {**_OF_THREAD, "itemsView": "full", "sortDirection": "asc"},
        {"data": [_TURN_VALUE], **_PAGE},
    ),
    "thread/items/list": (
        {**_OF_TURN, "cursor": {"type": "item", "itemId": "call-1"}},
        {"data": [{"turnId": TURN, "item": ITEMS[2], "startedAtMs": 1, "completedAtMs": None}], **_PAGE},
    ),
    "turn/start": (
        {
            **_OF_THREAD,
            "input": [{"type": "text", "text": "hi", "text_elements": []}],
            "effort": "ultra",
            "sandboxPolicy": {"type": "externalSandbox", "networkAccess": "enabled"},
            "outputSchema": {"type": "object"},
        },
        {"turn": _TURN_VALUE},
    ),
    "turn/steer": ({**_OF_THREAD, "expectedTurnId": TURN, "input": []}, {"turnId": TURN}),
    "turn/interrupt": (_OF_TURN, {}),
    "review/start": (
        {**_OF_THREAD, "target": {"type": "commit", "sha": "35cae3c", "title": None}, "delivery": "inline"},
        {"turn": _TURN_VALUE, "reviewThreadId": THREAD},
    ),
    "account/read": (
        {"refreshToken": False},
        {
            "account": {"type": "chatgpt", "email": None, "planType": "plus", "workspaceName": None},
            "userId": None,
            "requiresOpenaiAuth": True,
        },
    ),
    "account/login/start": (
        {"type": "apiKey", "apiKey": "sk-example"},
        {"type": "chatgpt", "loginId": "l", "authUrl": "https://auth.example.com"},
    ),
    "account/rateLimits/read": (
        {"excludeResetCreditDetails": False},
        {
            "ordinaryUsageAllowed": None,
            "rateLimits": _LIMITS,
            "rateLimitsByLimitId": None,
            "accountId": None,
        },
    ),
    "command/exec": (
        {
            "command": ["ls"],
            "env": {"A": None, "B": "c"},
            "size": {"rows": 24, "cols": 80},
            "processId": "p",
            "tty": True,
        },
        {"exitCode": 0, "stdout": "", "stderr": ""},
    ),
    "fs/copy": ({"sourcePath": "/a", "destinationPath": "/b", "recursive": True}, {}),
    "config/value/write": (
        {"keyPath": "model", "value": "m", "mergeStrategy": "replace", "expectedVersion": "sha256:0"},
        {
            "status": "okOverridden",
            "version": "sha256:1",
            "filePath": "/home/me/.codex/config.toml",
            "overriddenMetadata": {
                "message": "a profile says otherwise",
                "overridingLayer": {
                    "name": {"type": "user", "file": "/c.toml", "profile": "p"},
                    "version": "sha256:2",
                },
                "effectiveValue": "n",
            },
        },
    ),
}

SERVER_REQUESTS: Final[dict[str, tuple[Json, Json]]] = {
    "item/commandExecution/requestApproval": (
        {
            "kind": "command",
            **_OF_ITEM,
            "startedAtMs": 1,
            "environmentId": None,
            "command": "/bin/bash -lc 'touch a'",
            "cwd": "/ws",
            "commandActions": [{"type": "unknown", "command": "touch a"}],
            "proposedExecpolicyAmendment": ["touch"],
            "availableDecisions": [
                "accept",
                {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}},
                {
                    "applyNetworkPolicyAmendment": {
                        "network_policy_amendment": {"host": "h", "action": "deny"}
                    }
                },
                "cancel",
            ],
        },
        {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}},
    ),
    "item/fileChange/requestApproval": (
        {**_OF_ITEM, "startedAtMs": 1, "reason": None, "grantRoot": None},
        {"decision": "acceptForSession"},
    ),
    "item/permissions/requestApproval": (
        {
            **_OF_ITEM,
            "environmentId": None,
            "startedAtMs": 1,
            "cwd": "/ws",
            "reason": None,
            "permissions": {
                "network": {"enabled": True},
                "fileSystem": {
                    "read": None,
                    "write": ["/a"],
                    "entries": [
                        {"path": {"type": "special", "value": {"kind": "tmpdir"}}, "access": "write"}
                    ],
                },
            },
        },
        {"permissions": {"network": {"enabled": None}}, "scope": "session", "strictAutoReview": None},
    ),
    "item/tool/requestUserInput": (
        {
            **_OF_ITEM,
            "questions": [
                {
                    "id": "q",
                    "header": "Colour",
                    "question": "Which?",
                    "isOther": False,
                    "isSecret": False,
                    "options": [{"label": "red", "description": "r"}],
                }
            ],
            "isBlocking": True,
            "autoResolutionMs": None,
        },
        {"answers": {"q": {"answers": ["red"]}}},
    ),
    "item/tool/call": (
        {**_OF_TURN, "callId": "c", "namespace": None, "tool": "f", "arguments": None},
        {"contentItems": [{"type": "inputText", "text": "t"}], "success": True},
    ),
    "mcpServer/elicitation/request": (
        {
            "threadId": THREAD,
            "turnId": None,
            "serverName": "kit",
            "mode": "form",
            "message": "May echo run?",
            "requestedSchema": {"type": "object", "properties": {}},
            "_meta": {"codex_approval_kind": "mcp_tool_call"},
        },
        {"action": "accept", "content": {}, "_meta": None},
    ),
}
