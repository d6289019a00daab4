"""Messages as they look on the wire, one or more for every event, operation, history item and stored line."""

from typing import Final

from protocol.structs import Json

THREAD: Final = "0199e3a4-5b6c-7d8e-9f01-23456789abcd"

_USAGE: Final[Json] = {
    "input_tokens": 10,
    "cached_input_tokens": 2,
    "output_tokens": 5,
    "reasoning_output_tokens": 1,
    "total_tokens": 15,
}
_MESSAGE: Final[Json] = {
    "type": "message",
    "role": "user",
    "content": [
        {"type": "input_text", "text": "hi"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "output_text", "text": "hello"},
    ],
}
_PARSED: Final[Json] = [
    {"type": "read", "cmd": "cat a.py", "name": "a.py", "path": "src/a.py"},
    {"type": "list_files", "cmd": "ls -a", "path": None},
    {"type": "search", "cmd": "rg x src", "query": "x", "path": "src"},
    {"type": "unknown", "cmd": "make"},
]
_CHANGES: Final[Json] = {
    "/ws/new.txt": {"add": {"content": "hello\n"}},
    "/ws/old.txt": {"delete": {"content": "bye\n"}},
    "/ws/a.txt": {"update": {"unified_diff": "@@ -1 +1 @@\n-a\n+b\n", "move_path": None}},
    "/ws/b.txt": {"update": {"unified_diff": "@@ -1 +1 @@\n-a\n+b\n", "move_path": "/ws/c.txt"}},
}
_INVOCATION: Final[Json] = {"server": "kit", "tool": "echo", "arguments": {"text": "hello"}}
_DURATION: Final[Json] = {"secs": 0, "nanos": 749865}

EVENTS: Final[list[Json]] = [
    {"type": "error", "message": "boom"},
    {"type": "warning", "message": "careful"},
    {"type": "task_started", "model_context_window": None},
    {"type": "task_started", "model_context_window": 272000},
    {"type": "task_complete", "last_agent_message": None},
    {"type": "task_complete", "last_agent_message": "done"},
    {"type": "token_count", "info": None, "rate_limits": {"primary": None, "secondary": None}},
    {
        "type": "token_count",
        "info": {"total_token_usage": _USAGE, "last_token_usage": _USAGE, "model_context_window": None},
        "rate_limits": {
            "primary": {"used_percent": 12.5, "window_minutes": 300, "resets_at": 1704069000},
            "secondary": {"used_percent": 40.0, "window_minutes": None, "resets_at": None},
        },
    },
    {"type": "agent_message", "message": "Hello"},
    {"type": "user_message", "message": "hi", "images": []},
    {"type": "user_message", "message": "hi"},
    {"type": "agent_message_delta", "delta": 'Hel "lo"\n\u2028 wörld'},
    {"type": "agent_reasoning", "text": "**Thinking**"},
    {"type": "agent_reasoning_delta", "delta": "**Think"},
    {"type": "agent_reasoning_raw_content", "text": "raw"},
    {"type": "agent_reasoning_raw_content_delta", "delta": "raw"},
    {"type": "agent_reasoning_section_break"},
    {
        "type": "session_configured",
        "session_id": THREAD,
        "model": "m",
        "history_log_id": 0,
        "history_entry_count": 0,
        "rollout_path": "/r.jsonl",
    },
    {
        "type": "session_configured",
        "session_id": THREAD,
        "model": "m",
        "reasoning_effort": "high",
        "history_log_id": 7,
        "history_entry_count": 2,
        "initial_messages": [{"type": "agent_message", "message": "one"}],
        "rollout_path": "/r.jsonl",
    },
    {"type": "mcp_tool_call_begin", "call_id": "m1", "invocation": _INVOCATION},
    {
        "type": "mcp_tool_call_begin",
        "call_id": "m1",
        "invocation": {"server": "s", "tool": "t", "arguments": None},
    },
    {
        "type": "mcp_tool_call_end",
        "call_id": "m1",
        "invocation": _INVOCATION,
        "duration": _DURATION,
        "result": {
            "Ok": {
                "content": [
                    {"text": "hello", "type": "text"},
                    {"data": "AAAA", "mimeType": "image/png", "type": "image"},
                    {"data": "AAAA", "mimeType": "audio/wav", "type": "audio"},
                    {"name": "n", "type": "resource_link", "uri": "kit://n", "_meta": {"kept": True}},
                    {"resource": {"text": "t", "uri": "kit://t"}, "type": "resource"},
                    {"type": "hologram", "data": [1, 2]},
                ],
                "isError": False,
                "structuredContent": {"a": [1, None]},
            }
        },
    },
    {
        "type": "mcp_tool_call_end",
        "call_id": "m1",
        "invocation": _INVOCATION,
        "duration": _DURATION,
        "result": {"Err": "no such tool"},
    },
    {"type": "web_search_begin", "call_id": "ws-1"},
    {"type": "web_search_end", "call_id": "ws-1", "query": "weather"},
    {
        "type": "exec_command_begin",
        "call_id": "c1",
        "command": ["bash", "-lc", "ls"],
        "cwd": "/ws",
        "parsed_cmd": _PARSED,
        "is_user_shell_command": False,
    },
    {"type": "exec_command_output_delta", "call_id": "c1", "stream": "stdout", "chunk": "bG9jYWwK"},
    {
        "type": "exec_command_end",
        "call_id": "c1",
        "stdout": "a\n",
        "stderr": "",
        "aggregated_output": "a\n",
        "exit_code": -1,
        "duration": _DURATION,
        "formatted_output": "a\n",
    },
    {"type": "view_image_tool_call", "call_id": "v1", "path": "/ws/dot.png"},
    {
        "type": "exec_approval_request",
        "call_id": "c1",
        "command": ["touch", "made.txt"],
        "cwd": "/ws",
        "parsed_cmd": _PARSED,
    },
    {
        "type": "exec_approval_request",
        "call_id": "c1",
        "command": ["touch", "made.txt"],
        "cwd": "/ws",
        "reason": "writes a file",
        "risk": {"description": "little", "risk_level": "low"},
        "parsed_cmd": [],
    },
    {"type": "apply_patch_approval_request", "call_id": "c1", "changes": _CHANGES},
    {
        "type": "apply_patch_approval_request",
        "call_id": "c1",
        "changes": {},
        "reason": "outside",
        "grant_root": "/elsewhere",
    },
    {
        "type": "elicitation_request",
        "server_name": "kit",
        "id": "1",
        "message": "Which?",
        "requested_schema": {"type": "object"},
    },
    {"type": "deprecation_notice", "summary": "old"},
    {"type": "deprecation_notice", "summary": "old", "details": "use new"},
    {"type": "background_event", "message": "working"},
    {"type": "undo_started"},
    {"type": "undo_started", "message": "undoing"},
    {"type": "undo_completed", "success": False, "message": "no snapshot"},
    {"type": "undo_completed", "success": True},
    {"type": "stream_error", "message": "Reconnecting... 1/5"},
    {"type": "patch_apply_begin", "call_id": "c1", "auto_approved": True, "changes": _CHANGES},
    {"type": "patch_apply_end", "call_id": "c1", "stdout": "ok", "stderr": "", "success": True},
    {"type": "turn_diff", "unified_diff": "diff --git a/a b/a\n"},
    {"type": "get_history_entry_response", "offset": 3, "log_id": 123},
    {
        "type": "get_history_entry_response",
        "offset": 3,
        "log_id": 123,
        "entry": {"conversation_id": THREAD, "ts": 1704069000, "text": "hi"},
    },
    {
        "type": "mcp_list_tools_response",
        "tools": {
            "mcp__kit__echo": {
                "description": "echoes",
                "inputSchema": {"properties": {"text": {"type": "string"}}, "type": "object"},
                "name": "echo",
            }
        },
        "resources": {"kit": [{"name": "note", "uri": "kit://note"}]},
        "resource_templates": {"kit": [{"name": "page", "uriTemplate": "kit://{page}"}]},
        "auth_statuses": {"kit": "unsupported"},
    },
    {
        "type": "list_custom_prompts_response",
        "custom_prompts": [
            {
                "name": "fix",
                "path": "/p/fix.md",
                "content": "Fix it",
                "description": None,
                "argument_hint": None,
            }
        ],
    },
    {"type": "plan_update", "explanation": None, "plan": [{"step": "a", "status": "in_progress"}]},
    {"type": "turn_aborted", "reason": "interrupted"},
    {"type": "shutdown_complete"},
    {"type": "entered_review_mode", "prompt": "review", "user_facing_hint": "changes"},
    {"type": "exited_review_mode", "review_output": None},
    {
        "type": "exited_review_mode",
        "review_output": {
            "findings": [
                {
                    "title": "t",
                    "body": "b",
                    "confidence_score": 0.5,
                    "priority": 1,
                    "code_location": {"absolute_file_path": "/ws/a.py", "line_range": {"start": 1, "end": 2}},
                }
            ],
            "overall_correctness": "good",
            "overall_explanation": "e",
            "overall_confidence_score": 0.9,
        },
    },
    {"type": "raw_response_item", "item": _MESSAGE},
    {"type": "raw_response_item", "item": {"type": "from_the_future", "kept": [1]}},
    {
        "type": "item_started",
        "thread_id": THREAD,
        "turn_id": "0",
        "item": {
            "UserMessage": {
                "id": "i1",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image", "image_url": "data:,"},
                    {"type": "local_image", "path": "/ws/dot.png"},
                ],
            }
        },
    },
    {
        "type": "item_completed",
        "thread_id": THREAD,
        "turn_id": "0",
        "item": {"AgentMessage": {"id": "msg-1", "content": [{"Text": {"text": "Hello"}}]}},
    },
    {
        "type": "item_completed",
        "thread_id": THREAD,
        "turn_id": "0",
        "item": {"Reasoning": {"id": "rs-1", "summary_text": ["**Thinking**"], "raw_content": ["raw"]}},
    },
    {
        "type": "item_completed",
        "thread_id": THREAD,
        "turn_id": "0",
        "item": {"WebSearch": {"id": "ws-1", "query": "weather"}},
    },
    {
        "type": "agent_message_content_delta",
        "thread_id": THREAD,
        "turn_id": "0",
        "item_id": "msg-1",
        "delta": "Hel",
    },
    {
        "type": "reasoning_content_delta",
        "thread_id": THREAD,
        "turn_id": "0",
        "item_id": "rs-1",
        "delta": "**Think",
    },
    {
        "type": "reasoning_raw_content_delta",
        "thread_id": THREAD,
        "turn_id": "0",
        "item_id": "rs-1",
        "delta": "raw",
    },
]

HISTORY: Final[list[Json]] = [
    _MESSAGE,
    {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "**Thinking**"}],
        "content": [{"type": "reasoning_text", "text": "raw"}, {"type": "text", "text": "more"}],
        "encrypted_content": None,
    },
    {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "opaque"},
    {
        "type": "local_shell_call",
        "call_id": "c1",
        "status": "completed",
        "action": {
            "type": "exec",
            "command": ["echo", "local"],
            "timeout_ms": None,
            "working_directory": None,
            "env": None,
            "user": None,
        },
    },
    {"type": "function_call", "name": "shell", "arguments": '{"a": 1}', "call_id": "t1"},
    {"type": "function_call_output", "call_id": "t1", "output": "unsupported call"},
    {
        "type": "function_call_output",
        "call_id": "t1",
        "output": [
            {"type": "input_text", "text": "a picture:"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        ],
    },
    {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
    {
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "c2",
        "name": "apply_patch",
        "input": "*** Begin Patch",
    },
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "weather"}},
    {"type": "web_search_call", "action": {"type": "open_page", "url": "https://example.com"}},
    {
        "type": "ghost_snapshot",
        "ghost_commit": {
            "id": "0d31eec8",
            "parent": None,
            "preexisting_untracked_files": ["a"],
            "preexisting_untracked_dirs": [],
        },
    },
    {"type": "from_the_future", "kept": {"deep": [1, None]}},
]

_SETTINGS: Final[Json] = {
    "cwd": "/ws",
    "approval_policy": "on-request",
    "sandbox_policy": {
        "mode": "workspace-write",
        "writable_roots": ["/extra"],
        "network_access": False,
        "exclude_tmpdir_env_var": False,
        "exclude_slash_tmp": True,
    },
    "model": "m",
}
_META: Final[Json] = {
    "id": THREAD,
    "timestamp": "2026-03-04T10:20:30.123Z",
    "cwd": "/ws",
    "originator": "codex_cli_rs",
    "cli_version": "0.58.0",
    "instructions": None,
    "source": "vscode",
    "model_provider": "mock",
}

STORED: Final[list[Json]] = [
    {"type": "session_meta", "payload": _META},
    {"type": "session_meta", "payload": {**_META, "git": {"commit_hash": "a04d826", "branch": "main"}}},
    {"type": "session_meta", "payload": {**_META, "source": {"subagent": "review"}}},
    {"type": "session_meta", "payload": {**_META, "source": {"subagent": {"other": "helper"}}}},
    {"type": "turn_context", "payload": {**_SETTINGS, "summary": "auto"}},
    {
        "type": "turn_context",
        "payload": {
            **_SETTINGS,
            "sandbox_policy": {
                "mode": "workspace-write",
                "network_access": True,
                "exclude_tmpdir_env_var": False,
                "exclude_slash_tmp": False,
            },
            "summary": "auto",
        },
    },
    {"type": "turn_context", "payload": {**_SETTINGS, "effort": "high", "summary": "none"}},
    {"type": "compacted", "payload": {"message": "SUMMARY"}},
    {"type": "compacted", "payload": {"message": "SUMMARY", "replacement_history": [_MESSAGE]}},
    *({"type": "response_item", "payload": item} for item in HISTORY),
    *({"type": "event_msg", "payload": event} for event in EVENTS),
]

OPERATIONS: Final[list[Json]] = [
    {"type": "interrupt"},
    {"type": "user_input", "items": [{"type": "text", "text": "hi"}]},
    {
        "type": "user_turn",
        "items": [{"type": "local_image", "path": "/ws/dot.png"}],
        **_SETTINGS,
        "effort": None,
        "summary": "auto",
        "final_output_json_schema": {"type": "object"},
    },
    {
        "type": "override_turn_context",
        "cwd": "/ws",
        "approval_policy": "never",
        "sandbox_policy": {"mode": "read-only"},
        "model": None,
        "effort": "low",
        "summary": None,
    },
    {"type": "exec_approval", "id": "0", "call_id": "c1", "decision": "approved_for_session"},
    {"type": "patch_approval", "id": "0", "call_id": None, "decision": "abort"},
    {
        "type": "resolve_elicitation",
        "server_name": "kit",
        "request_id": "1",
        "decision": "accept",
        "content": {"a": 1},
    },
    {"type": "add_to_history", "text": "hi"},
    {"type": "get_history_entry_request", "offset": 3, "log_id": 123},
    {"type": "list_mcp_tools"},
    {"type": "list_custom_prompts"},
    {"type": "undo"},
    {"type": "compact"},
    {"type": "review", "review_request": {"prompt": "p", "user_facing_hint": "h"}},
    {"type": "run_user_shell_command", "command": "ls"},
    {"type": "shutdown"},
]
