"""What each setting is for, in words. Kinds and defaults are not here: they come from the code."""

from __future__ import annotations

from collections.abc import Mapping

WITHOUT_EFFECT = frozenset(
    {
        *("hide_agent_reasoning", "chatgpt_base_url", "model_reasoning_summary_format"),
        *("model_max_output_tokens", "shell_environment_policy.experimental_use_profile"),
        "otel.exporter.otlp-grpc.protocol",
    }
)
"""Settings that are checked and do nothing here; docs/configuration.md names them."""

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Model": {
        "model": "the model of new conversations",
        "review_model": "the model of reviews; unset: the conversation's",
        "model_provider": "a table of `[model_providers]`, or `openai`, `ollama` (also `oss`), `lmstudio`",
        "model_reasoning_effort": (
            "how long the model thinks: `none` `minimal` `low` `medium` `high`, or another word that the model knows;"
            " unset: as the model does by itself"
        ),
        "model_reasoning_summary": "how much of its reasoning the model sums up",
        "model_verbosity": "how much the model writes; unset: as the model does by itself",
        "model_context_window": "tokens; unset: known for the model, or else 272,000 are assumed",
        "model_auto_compact_token_limit": "tokens at which the history is compacted; unset: nine tenths of the window",
        "model_supports_reasoning_summaries": "asks for summaries of reasoning; unset: known for the model",
        "show_raw_agent_reasoning": "the conversation API, too, gives its clients the raw reasoning of the model",
    },
    "Permissions": {
        "approval_policy": "when the user is asked",
        "approval_policy.granular.sandbox_approval": "questions about what needs more than the sandbox gives; required",
        "approval_policy.granular.rules": "questions that rules want; required",
        "approval_policy.granular.mcp_elicitations": "questions of MCP servers; required",
        "approval_policy.granular.skill_approval": "no such questions exist here",
        "approval_policy.granular.request_permissions": "no such questions exist here",
        "sandbox_mode": "what commands may do; the default in trusted projects is `workspace-write`",
        "sandbox_workspace_write.writable_roots": (
            "absolute paths of folders that may be written besides the working directory; `~/` is expanded"
        ),
        "sandbox_workspace_write.network_access": "commands may use the network",
        "sandbox_workspace_write.exclude_tmpdir_env_var": "`$TMPDIR` may not be written",
        "sandbox_workspace_write.exclude_slash_tmp": "`/tmp` may not be written",
        "projects.PATH.trust_level": "`trusted` or `untrusted`; holds for the whole repository",
        "shell_environment_policy.inherit": (
            "which variables of the server commands start with; `core`: HOME, PATH and the like"
        ),
        "shell_environment_policy.ignore_default_excludes": (
            "keeps variables whose names or values look like secrets"
        ),
        "shell_environment_policy.exclude": "names of variables that are removed; `*` and `?` are wildcards",
        "shell_environment_policy.include_only": (
            "names of the only variables that are kept; wildcards as above"
        ),
        "shell_environment_policy.set": "variables that commands get",
    },
    "Instructions": {
        "developer_instructions": "a text for the model, after its base instructions",
        "model_instructions_file": "a file that replaces the base instructions; relative to the home",
        "experimental_instructions_file": "an older name of `model_instructions_file`",
        "compact_prompt": "how the model is asked to sum up the history",
        "experimental_compact_prompt_file": "a file with that text; relative to the home",
        "project_doc_max_bytes": "so much of a project's `AGENTS.md` files is read",
        "project_doc_fallback_filenames": "names to look for where there is no `AGENTS.md`",
    },
    "Providers": {
        "openai_base_url": "replaces the address of the provider `openai`",
        "model_providers.NAME.name": "required; for people",
        "model_providers.NAME.base_url": "the address up to and with `/v1` or the like",
        "model_providers.NAME.wire_api": "the API that it speaks: Responses or Chat Completions",
        "model_providers.NAME.env_key": "the variable of the server's environment that holds the key",
        "model_providers.NAME.env_key_instructions": "what is shown to the user where that variable is not set",
        "model_providers.NAME.experimental_bearer_token": "the key itself; better name a variable",
        "model_providers.NAME.query_params": "parameters of every address, such as `api-version`",
        "model_providers.NAME.http_headers": "headers of every request",
        "model_providers.NAME.env_http_headers": "headers whose values are in these variables",
        "model_providers.NAME.request_max_retries": (
            "further attempts of a request that failed; at most 100 count"
        ),
        "model_providers.NAME.stream_max_retries": (
            "further attempts of an answer that broke off; at most 100 count"
        ),
        "model_providers.NAME.stream_idle_timeout_ms": "the longest pause of an answer",
        "model_providers.NAME.requires_openai_auth": "requests carry the user's OpenAI login",
    },
    "MCP servers": {
        "mcp_servers.NAME.command": "the program of a server that is started; or give `url`",
        "mcp_servers.NAME.args": "its arguments",
        "mcp_servers.NAME.env": "variables that it gets",
        "mcp_servers.NAME.env_vars": "names of variables of the server's environment that it gets, too",
        "mcp_servers.NAME.cwd": (
            "the folder in which it starts: an absolute path, or `workspace` for the conversation's, from which"
            " interpreters may take modules and programs; unset: a folder of its own in the home"
        ),
        "mcp_servers.NAME.url": "the address of a server that is reached over streamable HTTP",
        "mcp_servers.NAME.bearer_token_env_var": "the variable that holds the token for a `url`",
        "mcp_servers.NAME.http_headers": "headers of every request to a `url`",
        "mcp_servers.NAME.env_http_headers": "headers whose values are in these variables",
        "mcp_servers.NAME.enabled": "`false`: it is not started",
        "mcp_servers.NAME.startup_timeout_sec": "so long it may take to start and to list its tools",
        "mcp_servers.NAME.startup_timeout_ms": "an older form of `startup_timeout_sec`",
        "mcp_servers.NAME.tool_timeout_sec": "so long one call may take",
        "mcp_servers.NAME.enabled_tools": "the only tools that the model is offered; unset: all",
        "mcp_servers.NAME.disabled_tools": "tools that the model is not offered",
        "mcp_servers.NAME.default_tools_approval_mode": "which calls the user is asked about",
        "mcp_servers.NAME.tools.TOOL.approval_mode": "the same for one tool",
    },
    "Clients": {
        "app_server.client_rights": (
            "`false`: a client gets at most what the rest of the configuration gives; no request changes it"
        ),
        "app_server.editor_files": "`false`: patches take no unsaved text of the editor into account",
    },
    "Login": {
        "forced_login_method": "`chatgpt` or `api`: the only way to log in",
        "forced_chatgpt_workspace_id": "the only workspace whose logins are accepted",
    },
    "History, notifications, telemetry": {
        "history.persistence": "whether front ends may add messages to `history.jsonl`",
        "history.max_bytes": "beyond it the oldest messages are removed; unset: never",
        "notify": (
            "a program with arguments that is started after each turn, with a JSON object as its "
            "last argument"
        ),
        "otel.environment": "the name of the deployment in events",
        "otel.log_user_prompt": "events have the user's words",
        "otel.exporter.otlp-http.endpoint": (
            "where events are sent over HTTP; the exporter is a table, or `none`"
        ),
        "otel.exporter.otlp-http.headers": "headers of these requests",
        "otel.exporter.otlp-http.protocol": "their encoding",
        "otel.exporter.otlp-grpc.endpoint": "where events are sent over gRPC",
        "otel.exporter.otlp-grpc.headers": "metadata of these requests",
    },
}

FEATURES: Mapping[str, str] = {
    "unified_exec": "the tools `exec_command` and `write_stdin`, whose terminals outlive a call",
    "shell_command_tool": "the tool `shell_command`, which takes a script instead of a list of words",
    "grep_files": "a tool that finds files by their content",
    "read_file": "a tool that reads files",
    "list_dir": "a tool that lists folders",
    "apply_patch_freeform": "the tool `apply_patch` without JSON around the patch",
    "view_image_tool": "the tool `view_image`",
    "web_search_request": "the search of the provider, if it has one",
    "ghost_commit": "snapshots of the working tree before the first call of a turn and at its end, for undoing it",
    "chat_deltas": (
        "over the conversation API, too, answers over Chat Completions come as deltas, with counts of tokens"
    ),
}
