"""One example exchange for every row of the table, for the documentation and for tests."""

from typing import Final

from protocol.base import Json
from protocol.v1 import methods

CONVERSATION: Final = "0199e3a4-5b6c-7d8e-9f01-23456789abcd"
SUBSCRIPTION: Final = "5d1c7b1e-4f0a-4c6b-8e2d-9a7b3c5d1e2f"
LOGIN: Final = "c0ffee00-1234-4abc-8def-0123456789ab"
ROLLOUT: Final = f"/home/me/.codex/sessions/2026/03/04/rollout-2026-03-04T10-20-30-{CONVERSATION}.jsonl"

_SUMMARY: Final[Json] = {
    "conversationId": CONVERSATION,
    "path": ROLLOUT,
    "preview": "Why does the build fail?",
    "timestamp": "2026-03-04T10:20:30.123Z",
    "modelProvider": "openai",
    "cwd": "/home/me/project",
    "cliVersion": "0.58.0",
    "source": "vscode",
    "gitInfo": {"sha": "35cae3c", "branch": "main", "origin_url": None},
}

REQUESTS: Final[dict[str, tuple[Json, Json]]] = {
    methods.INITIALIZE.method: (
        {"clientInfo": {"name": "my-editor", "title": "My Editor", "version": "1.2.3"}},
        {"userAgent": "my-editor/0.169.0 (Linux 6.18; x86_64) xterm (my-editor; 1.2.3)"},
    ),
    methods.NEW_CONVERSATION.method: (
        {"cwd": "/home/me/project", "approvalPolicy": "on-request", "sandbox": "workspace-write"},
        {
            "conversationId": CONVERSATION,
            "model": "gpt-5.1-codex",
            "reasoningEffort": None,
            "rolloutPath": ROLLOUT,
        },
    ),
    methods.GET_CONVERSATION_SUMMARY.method: ({"conversationId": CONVERSATION}, {"summary": _SUMMARY}),
    methods.LIST_CONVERSATIONS.method: ({"pageSize": 1}, {"items": [_SUMMARY], "nextCursor": "cursor-2"}),
    methods.RESUME_CONVERSATION.method: (
        {"path": ROLLOUT},
        {
            "conversationId": CONVERSATION,
            "model": "gpt-5.1-codex",
            "initialMessages": [
                {"type": "user_message", "message": "Why does the build fail?", "images": []},
                {"type": "agent_message", "message": "A header is missing."},
            ],
            "rolloutPath": ROLLOUT,
        },
    ),
    methods.ARCHIVE_CONVERSATION.method: ({"conversationId": CONVERSATION, "rolloutPath": ROLLOUT}, {}),
    methods.SEND_USER_MESSAGE.method: (
        {"conversationId": CONVERSATION, "items": [{"type": "text", "data": {"text": "Fix it, please."}}]},
        {},
    ),
    methods.SEND_USER_TURN.method: (
        {
            "conversationId": CONVERSATION,
            "items": [
                {"type": "text", "data": {"text": "What is wrong in this picture?"}},
                {"type": "localImage", "data": {"path": "/home/me/shot.png"}},
            ],
            "cwd": "/home/me/project",
            "approvalPolicy": "on-request",
            "sandboxPolicy": {"mode": "workspace-write", "writable_roots": [], "network_access": False},
            "model": "gpt-5.1-codex",
            "effort": "medium",
            "summary": "auto",
        },
        {},
    ),
    methods.INTERRUPT_CONVERSATION.method: (
        {"conversationId": CONVERSATION},
        {"abortReason": "interrupted"},
    ),
    methods.ADD_CONVERSATION_LISTENER.method: (
        {"conversationId": CONVERSATION},
        {"subscriptionId": SUBSCRIPTION},
    ),
    methods.REMOVE_CONVERSATION_LISTENER.method: ({"subscriptionId": SUBSCRIPTION}, {}),
    methods.SUBMIT.method: (
        {"conversationId": CONVERSATION, "op": {"type": "compact"}},
        {"submissionId": "3"},
    ),
    methods.GIT_DIFF_TO_REMOTE.method: (
        {"cwd": "/home/me/project"},
        {"sha": "35cae3ca8ace71cd1744ebacec6e41ca0ec42232", "diff": "diff --git a/a.txt b/a.txt\n"},
    ),
    methods.LOGIN_API_KEY.method: ({"apiKey": "sk-example"}, {}),
    methods.LOGIN_CHAT_GPT.method: (
        None,
        {"loginId": LOGIN, "authUrl": "https://auth.example.com/oauth/authorize?state=abc"},
    ),
    methods.CANCEL_LOGIN_CHAT_GPT.method: ({"loginId": LOGIN}, {}),
    methods.LOGOUT_CHAT_GPT.method: (None, {}),
    methods.GET_AUTH_STATUS.method: (
        {"includeToken": False},
        {"authMethod": "apikey", "authToken": None, "requiresOpenaiAuth": True},
    ),
    methods.GET_USER_SAVED_CONFIG.method: (
        None,
        {
            "config": {
                "approvalPolicy": "on-request",
                "sandboxMode": "workspace-write",
                "sandboxSettings": None,
                "forcedChatgptWorkspaceId": None,
                "forcedLoginMethod": None,
                "model": "gpt-5.1-codex",
                "modelReasoningEffort": None,
                "modelReasoningSummary": None,
                "modelVerbosity": None,
                "tools": {"webSearch": True, "viewImage": None},
                "profile": None,
                "profiles": {},
            }
        },
    ),
    methods.SET_DEFAULT_MODEL.method: ({"model": "gpt-5.1-codex", "reasoningEffort": "low"}, {}),
    methods.GET_USER_AGENT.method: (
        None,
        {"userAgent": "my-editor/0.169.0 (Linux 6.18; x86_64) xterm (my-editor; 1.2.3)"},
    ),
    methods.USER_INFO.method: (None, {"allegedUserEmail": "me@example.com"}),
    methods.FUZZY_FILE_SEARCH.method: (
        {"query": "mainpy", "roots": ["/home/me/project"], "cancellationToken": "search-1"},
        {
            "files": [
                {
                    "root": "/home/me/project",
                    "path": "src/main.py",
                    "file_name": "main.py",
                    "score": 120,
                    "indices": [4, 5, 6, 7, 9, 10],
                }
            ]
        },
    ),
    methods.EXEC_ONE_OFF_COMMAND.method: (
        {"command": ["git", "status", "--short"], "cwd": "/home/me/project", "timeoutMs": 5000},
        {"exitCode": 0, "stdout": " M src/main.py\n", "stderr": ""},
    ),
    methods.MODEL_LIST.method: (
        {"limit": 1},
        {
            "data": [
                {
                    "id": "gpt-5.1-codex",
                    "model": "gpt-5.1-codex",
                    "displayName": "gpt-5.1-codex",
                    "description": "For work on code.",
                    "supportedReasoningEfforts": [{"reasoningEffort": "medium", "description": "Balanced."}],
                    "defaultReasoningEffort": "medium",
                    "isDefault": True,
                }
            ],
            "nextCursor": None,
        },
    ),
}

NOTIFICATIONS: Final[dict[str, Json]] = {
    methods.AUTH_STATUS_CHANGE.method: {"authMethod": "apikey"},
    methods.LOGIN_CHAT_GPT_COMPLETE.method: {"loginId": LOGIN, "success": True, "error": None},
    methods.SESSION_CONFIGURED.method: {
        "sessionId": CONVERSATION,
        "model": "gpt-5.1-codex",
        "reasoningEffort": None,
        "historyLogId": 0,
        "historyEntryCount": 0,
        "initialMessages": [{"type": "agent_message", "message": "A header is missing."}],
        "rolloutPath": ROLLOUT,
    },
}

SERVER_REQUESTS: Final[dict[str, tuple[Json, Json]]] = {
    methods.EXEC_COMMAND_APPROVAL.method: (
        {
            "conversationId": CONVERSATION,
            "callId": "call_1",
            "command": ["touch", "made.txt"],
            "cwd": "/home/me/project",
            "reason": None,
            "risk": None,
            "parsedCmd": [{"type": "unknown", "cmd": "touch made.txt"}],
        },
        {"decision": "approved"},
    ),
    methods.APPLY_PATCH_APPROVAL.method: (
        {
            "conversationId": CONVERSATION,
            "callId": "call_2",
            "fileChanges": {"/home/me/project/new.txt": {"add": {"content": "hello\n"}}},
            "reason": None,
            "grantRoot": None,
        },
        {"decision": "denied"},
    ),
    methods.ELICITATION_REQUEST.method: (
        {
            "conversationId": CONVERSATION,
            "serverName": "tickets",
            "requestId": "1",
            "message": "Which project?",
            "requestedSchema": {"type": "object", "properties": {"project": {"type": "string"}}},
        },
        {"action": "accept", "content": {"project": "web"}},
    ),
}
