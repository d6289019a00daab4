"""Every setting is checked, and an invalid one is explained."""

from pathlib import Path

import pytest

from app_server.engine.config import config_values, mcp_server_settings
from app_server.engine.config.tolerance import joined
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.policy import DangerFullAccess, ReadOnly, WorkspaceWrite
from tests.engine.config import homes


def load(
    home: Path, text: str, env: dict[str, str] | None = None, cwd: str | None = None
) -> config_values.Config:
    return homes.load(
        home, text, request=config_values.RequestOverrides.in_folder(cwd), cwd=home / "ws", env=env
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("approval_policy = 'sometimes'", "`approval_policy` must be one of `untrusted`, `on-failure`"),
        ("approval_policy = {}", "`approval_policy` must be a word, or a table with `granular`"),
        ("approval_policy = 1", "`approval_policy` must be a string, not an integer"),
        ("[approval_policy]\ngranular = true", "`approval_policy.granular` must be a table, not a boolean"),
        ("[approval_policy.granular]\nrules = true", "`approval_policy.granular.sandbox_approval` is missing"),
        ("[approval_policy.granular]\nsandbox_approval = 'no'", "must be true or false, not a string"),
        ("sandbox_mode = 'off'", "`sandbox_mode` must be one of"),
        ("[history]\npersistence = 'q'", "`history.persistence` must be one of `save-all`, `none`"),
        ("forced_login_method = 'x'", "`forced_login_method` must be one of `chatgpt`, `api`"),
        ("experimental_instructions_file = 'none.md'", "none.md cannot be read: it does not exist"),
        ("model = 7", "`model` must be a string, not an integer"),
        ("model = true", "`model` must be a string, not a boolean"),
        ("model = ''", "`model` must not be empty"),
        ("model = 1979-05-27", "`model` must be a string, not a date or time"),
        ("model_provider = 7", "`model_provider` must be a string, not an integer"),
        ("profile = 'p'\n[profiles.p]\nmodel = 7", "`model` must be a string, not an integer"),
        ("profile = 3", "`profile` must be a string"),
        ("[sandbox_workspace_write]\nnetwork_access = 'no'", "must be true or false, not a string"),
        ("[shell_environment_policy]\nexclude = 'A*'", "must be a list of strings, not a string"),
        ("[app_server]\nclient_rights = 'no'", "`app_server.client_rights` must be true or false"),
    ],
)  # fmt: skip
def test_a_wrong_setting_that_guards_or_chooses_a_model_is_an_error(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith("error deriving config: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model_reasoning_effort = ''", "`model_reasoning_effort` must have 1 to 64 characters"),
        ("model_reasoning_effort = 3", "`model_reasoning_effort` must be a string"),
        ("model_context_window = 0", "`model_context_window` must be at least 1"),
        ("model_context_window = 9223372036854775808", "fit into 64 bits"),
        ("hide_agent_reasoning = 'yes'", "`hide_agent_reasoning` must be true or false, not a string"),
        ("notify = 'x'", "`notify` must be a list of strings, not a string"),
        ("notify = ['x', 1]", "`notify` must be a list of strings, not a list with an integer"),
        ("mcp_servers = 1", "`mcp_servers` must be a table, not an integer"),
        ("[mcp_servers.x]\nargs = []", "`mcp_servers.x` needs a `command` or a `url`"),
        ("[mcp_servers.x]\ncommand = 'a'\nurl = 'b'", "`mcp_servers.x.url` is not supported for a server"),
        ("[mcp_servers.x]\nurl = 'b'\nargs = []", "`mcp_servers.x.args` is not supported for a server"),
        ("[mcp_servers.x]\nurl = 'b'\nbearer_token = 't'", "`mcp_servers.x.bearer_token` is not supported"),
        ("[mcp_servers.x]\ncommand = 'a'\noauth_resource = 'b'", "`mcp_servers.x.oauth_resource` is not supported"),
        ("[mcp_servers.x]\ncommand = 'a'\noauth.client_id = 'b'", "`mcp_servers.x.oauth` is not supported"),
        ("[mcp_servers.x]\nurl = 'b'\noauth.client_secret = 's'", "`mcp_servers.x.oauth.client_secret` needs"),
        ("[mcp_servers.x]\ncommand = 'a'\nstartup_timeout_sec = -1", "a number of seconds above zero"),
        ("[mcp_servers.x]\ncommand = 'a'\ntool_timeout_sec = nan", "a number of seconds above zero"),
        ("[mcp_servers.\"a b\"]\ncommand = 1", "`mcp_servers.'a b'.command` must be a string"),
        ("[model_providers.q]\nbase_url = 'x'", "`model_providers.q.name` is missing"),
        ("[model_providers.q]\nname = 'x'\nwire_api = 'soap'", "one of `responses`, `chat`, `messages`, not 'soap'"),
        ("[model_providers.q]\nname = 'x'\nhttp_headers = { a = 1 }", "must be a table of strings"),
        ("[model_providers.oss.quirks]\neffort = 'openruter'", "`reasoning_effort`, `openrouter`, "),
        ("[model_providers.oss.quirks]\nlist = 'olama'", "`ollama`, `lmstudio`, `llamacpp`, `vllm`, "),
        ("[model_providers.oss.quirks]\nwire = 'soap'", "one of `responses`, `chat`, `messages`, not 'soap'"),
        ("[model_providers.oss.quirks]\nweb_search = '('", ".quirks.web_search` is no valid pattern of model names"),
        ("[tools]\nweb_search = 7", "`tools.web_search` must be true or false"),
        ("[features]\nunified_exec = 'yes'", "`features.unified_exec` must be true or false"),
        ("features = []", "`features` must be a table, not a list"),
        ("experimental_use_rmcp_client = 1", "`experimental_use_rmcp_client` must be true or false"),
        ("[otel]\nexporter = 'otlp-http'", "`otel.exporter` must be `none` or a table"),
        ("[otel.exporter.otlp-http]\nprotocol = 'json'", "`otel.exporter.otlp-http.endpoint` is missing"),
        ("project_doc_fallback_filenames = ['../x']", "must hold names of files in a folder or below it, not '../x'"),
    ],
)  # fmt: skip
def test_another_wrong_setting_costs_itself(tmp_path: Path, text: str, problem: str) -> None:
    config = load(tmp_path, f"review_model = 'kept'\n{text}")
    [warning] = config.notices.warnings
    assert problem in warning.text
    assert warning.text.endswith(" is ignored")
    assert warning.place is not None
    assert config.model.review_model == "kept"
    key, value = text.partition(" = ")[::2]
    if key.isidentifier():  # elsewhere it is an error
        with pytest.raises(ConfigError, match="error deriving config: "):
            homes.load(tmp_path, "", config_values.CliOverrides(settings=((key, value),)))


def test_of_wrong_entries_each_costs_itself_and_leaves_the_others(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "model = 'mine'\nmodel_context_window = 'big'\nproject_doc_fallback_filenames = ['a.md', '../b.md', 'c/d.md']\n"
        "[mcp_servers.good]\ncommand = 'a'\n[mcp_servers.bad]\ncommand = 'b'\nenabled_tools = 'read'\n"
        "[model_providers.bad]\nbase_url = 'x'\n[otel.exporter.otlp-http]\nprotocol = 'json'\n",
    )
    assert (config.thread.model, config.model.context_window) == ("mine", None)
    assert config.instructions.project_doc_fallback_filenames == ("a.md", "c/d.md")
    assert (list(config.mcp_servers), "bad" in config.providers) == (["good"], False)
    assert config.otel.exporter is config_values.OtelExporter.NONE
    assert len(config.notices.warnings) == 5
    assert "that part of it is ignored" in " ".join(map(str, config.notices.warnings))


def test_the_reason_is_told_where_a_wrong_provider_is_the_chosen_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"provider `q` not found.*`model_providers\.q\.name` is missing"):
        load(tmp_path, "model_provider = 'q'\n[model_providers.q]\nbase_url = 'x'")


def test_variables_of_an_mcp_server_may_say_where_they_come_from(tmp_path: Path) -> None:
    text = "[mcp_servers.a]\ncommand = 'c'\nenv_vars = ['A', { name = 'B', source = 'remote' }]"
    config = load(tmp_path, text)
    assert config.mcp_servers["a"].transport == mcp_server_settings.McpStdioTransport(
        command="c", env_vars=("A", "B")
    )
    assert config.notices.warnings == ()


def test_several_warnings_are_one_text() -> None:
    one, other = config_values.SettingsWarning("one."), config_values.SettingsWarning("two.")
    assert (joined(()), joined((one,))) == (None, "one.")
    assert joined((one, other)) == "2 settings are not used as they are written:\n- one.\n- two."


def test_errors_and_warnings_do_not_repeat_values_that_may_be_secret(tmp_path: Path) -> None:
    for text in ("experimental_bearer_token = ['hunter2']", "http_headers = 'hunter2'", "hunter = 'hunter2'"):
        try:
            config = load(tmp_path, f"[model_providers.q]\nname = 'q'\n{text}\n")
        except ConfigError as error:
            said = str(error)
        else:
            said = repr(config.notices.warnings)
        assert said
        assert "hunter2" not in said


def test_a_config_shows_no_secret_when_printed(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "[model_providers.q]\nname = 'q'\n"
        "experimental_bearer_token = 'hunter2'\nhttp_headers = {a = 'hunter2'}\n"
        "query_params = {key = 'hunter2'}\n[mcp_servers.x]\n"
        "command = 'c'\nargs = ['hunter2']\nenv = {A = 'hunter2'}\n"
        "[mcp_servers.y]\nurl = 'u'\nhttp_headers = {A = 'hunter2'}\n"
        "[shell_environment_policy]\nset = {A = 'hunter2'}\n"
        "[otel.exporter.otlp-grpc]\nendpoint = 'e'\nheaders = {A = 'hunter2'}\n",
    )
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("modle = 'x'", "unknown setting `modle` is ignored; did you mean `model`?"),
        ("zzzz = 1", "unknown setting `zzzz` is ignored"),
        (
            "[tools]\nwebsearch = true",
            "unknown setting `tools.websearch` is ignored; did you mean `web_search`?",
        ),
        (
            "[mcp_servers.x]\ncommand = 'c'\nenabeld = true",
            "unknown setting `mcp_servers.x.enabeld` is ignored; did you mean `enabled`?",
        ),
        (
            "[features]\nunifiedexec = true",
            "unknown setting `features.unifiedexec` is ignored; did you mean `unified_exec`?",
        ),
        (
            "[model_providers.openai]\nname = 'x'",
            "`name` of `model_providers.openai` is ignored: `openai` is built in, and its key goes to its host",
        ),
        (
            "[projects.'/x']\ntrust_level = 'very'",
            "`projects.'/x'.trust_level` is ignored: it is neither `trusted` nor `untrusted`",
        ),
    ],
)
def test_odd_settings_are_warnings(tmp_path: Path, text: str, warning: str) -> None:
    [found] = load(tmp_path, f"\n{text}").notices.warnings
    place = "2:2" if "model_providers" in text else f"{1 + len(text.splitlines())}:1"
    assert (found.text, str(found)) == (warning, f"{tmp_path}/config.toml:{place}: {warning}")


def test_a_warning_about_the_command_line_has_no_place(tmp_path: Path) -> None:
    cli = config_values.CliOverrides(settings=(("mdoel", "x"),))
    config = homes.load(tmp_path, cli=cli)
    assert [str(each) for each in config.notices.warnings] == [
        "unknown setting `mdoel` is ignored; did you mean `model`?"
    ]


def test_a_warning_about_a_profile_is_at_its_place_there(tmp_path: Path) -> None:
    [found] = load(tmp_path, "profile = 'p'\n[profiles.p]\nmdoel = 1").notices.warnings
    assert found.place is not None
    assert found.place.line == 3


@pytest.mark.parametrize("below", ["", "deeper/"])
def test_a_home_that_is_no_folder_is_told(below: str, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    home = tmp_path / "home" / below
    with pytest.raises(
        ConfigError, match="cannot be written: it is not a folder; make it writable, or set CODEX_HOME"
    ):
        homes.load(home, cwd=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "file_opener = 'cursor'\ndisable_paste_burst = true\n"
        "[tui]\nnotifications = ['x']\n[notice]\nanything = 1",
        "cli_auth_credentials_store = 'file'\nmcp_oauth_credentials_store = 'auto'",
        "[profiles.other]\nmodel = 'x'\nwhatever = 1",
        "[features]\nundo = true\nweb_search = true",
        "[mcp_servers.x]\ncommand = 'c'\nstartup_timeout_ms = 5",
    ],
)
def test_settings_of_others_are_no_warnings(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).notices.warnings == ()


def test_thousands_of_unknown_settings_are_a_few_warnings(tmp_path: Path) -> None:
    assert len(load(tmp_path, "\n".join(f"unknown{i} = 1" for i in range(5000))).notices.warnings) == 20


@pytest.mark.parametrize(
    ("mode", "policy"),
    [
        ("read-only", ReadOnly()),
        ("danger-full-access", DangerFullAccess()),
        (
            "workspace-write",
            WorkspaceWrite(
                writable_roots=("/abs", "/users/me/b", "/users/me"),
                network_access=False,
                exclude_tmpdir_env_var=True,
                exclude_slash_tmp=False,
            ),
        ),
    ],
)
def test_sandbox_modes(
    tmp_path: Path, mode: str, policy: ReadOnly | DangerFullAccess | WorkspaceWrite
) -> None:
    config = load(
        tmp_path,
        f"sandbox_mode = '{mode}'\n[sandbox_workspace_write]\n"
        "writable_roots = ['/abs/', '~/b', '~']\nexclude_tmpdir_env_var = true\n",
        env={"HOME": "/users/me"},
    )
    assert config.thread.sandbox_policy == policy


def test_a_root_that_no_file_can_have_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r":2:1: `sandbox_workspace_write.writable_roots` .*NUL"):
        load(tmp_path, '[sandbox_workspace_write]\nwritable_roots = ["/a", "/a\\u0000b"]\n')


@pytest.mark.parametrize("root", ["rel", "..", "", ".", "~", "~other/x"])
def test_a_relative_root_is_an_error_with_its_place(tmp_path: Path, root: str) -> None:
    with pytest.raises(
        ConfigError, match=r":2:1: `sandbox_workspace_write.writable_roots` must hold absolute paths"
    ):
        load(tmp_path, f'[sandbox_workspace_write]\nwritable_roots = ["/a", "{root}"]\n', env={})


def test_a_user_provider(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "model_provider = 'q'\n[model_providers.q]\nname = 'Q'\n"
        "base_url = 'http://h/v1'\nwire_api = 'responses'\n"
        "env_key = 'Q_KEY'\nenv_key_instructions = 'get one'\n"
        "query_params = {v = '1'}\nhttp_headers = {a = 'b'}\n"
        "env_http_headers = {c = 'D'}\nrequest_max_retries = 1000\nstream_max_retries = 0\n"
        "stream_idle_timeout_ms = 7\nrequires_openai_auth = true\nexperimental_bearer_token = 't'\n",
    )
    provider = config.provider
    assert (provider.id, provider.name, provider.base_url) == ("q", "Q", "http://h/v1")
    assert provider.wire_api is config_values.WireApi.RESPONSES
    assert (provider.env_key, provider.env_key_instructions) == ("Q_KEY", "get one")
    assert (provider.query_params, provider.http_headers) == ({"v": "1"}, {"a": "b"})
    assert provider.env_http_headers == {"c": "D"}
    assert (provider.request_max_retries, provider.stream_max_retries) == (100, 0)
    assert (provider.stream_idle_timeout_ms, provider.requires_openai_auth) == (7, True)
    assert provider.experimental_bearer_token == "t"
    assert config.providers["openai"].wire_api is config_values.WireApi.RESPONSES


@pytest.mark.parametrize(
    ("provider", "env", "base_url"),
    [
        ("oss", {}, "http://localhost:11434/v1"),
        ("ollama", {"CODEX_OSS_PORT": "1"}, "http://localhost:1/v1"),
        ("ollama", {"CODEX_OSS_PORT": "1@evil"}, "http://localhost:11434/v1"),
        ("lmstudio", {}, "http://localhost:1234/v1"),
        ("lmstudio", {"CODEX_OSS_BASE_URL": "http://other/v1"}, "http://other/v1"),
        ("openai", {"OPENAI_BASE_URL": "http://other/v1"}, "http://other/v1"),
        ("openai", {}, None),
    ],
)
def test_built_in_providers(tmp_path: Path, provider: str, env: dict[str, str], base_url: str | None) -> None:
    assert load(tmp_path, f"model_provider = '{provider}'", env).provider.base_url == base_url


@pytest.mark.parametrize(("set_to", "used"), [("http://mine/v1", "http://mine/v1"), ("", "http://other/v1")])
def test_a_setting_moves_the_provider_openai_more_than_a_variable(
    tmp_path: Path, set_to: str, used: str
) -> None:
    config = load(tmp_path, f'openai_base_url = "{set_to}"', {"OPENAI_BASE_URL": "http://other/v1"})
    assert (config.provider.base_url, config.notices.warnings) == (used, ())


def test_a_built_in_provider_cannot_be_sent_elsewhere(tmp_path: Path) -> None:
    config = load(tmp_path, "[model_providers.openai]\nname = 'x'\nbase_url = 'http://evil'\n")
    assert (config.provider.name, config.provider.base_url) == ("OpenAI", None)


def test_mcp_servers(tmp_path: Path) -> None:
    servers = load(
        tmp_path,
        "[mcp_servers.a]\ncommand = 'c'\nargs = ['x']\nenv = {A = 'B'}\nenv_vars = ['C']\ncwd = 'sub'\n"
        "startup_timeout_ms = 1500\nenabled_tools = ['t']\ndisabled_tools = ['u']\n"
        "[mcp_servers.b]\nurl = 'http://h'\nbearer_token_env_var = 'T'\n"
        "enabled = false\nstartup_timeout_sec = 2\n"
        "tool_timeout_sec = 0.5\nhttp_headers = {a = 'b'}\nenv_http_headers = {c = 'D'}\n",
    ).mcp_servers
    assert servers["a"].transport == mcp_server_settings.McpStdioTransport(
        command="c", args=("x",), env={"A": "B"}, env_vars=("C",), cwd="sub"
    )
    assert (servers["a"].startup_timeout_sec, servers["a"].tool_timeout_sec) == (1.5, 60)
    assert (servers["a"].enabled_tools, servers["a"].disabled_tools) == (frozenset("t"), frozenset("u"))
    assert servers["b"].transport == mcp_server_settings.McpHttpTransport(
        url="http://h", bearer_token_env_var="T", http_headers={"a": "b"}, env_http_headers={"c": "D"}
    )
    assert not servers["b"].enabled
    assert (servers["b"].startup_timeout_sec, servers["b"].tool_timeout_sec) == (2, 0.5)
    assert servers["b"].enabled_tools is None


def test_tables_of_their_own(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "notify = ['prog', 'arg']\n[shell_environment_policy]\n"
        "inherit = 'core'\nignore_default_excludes = true\n"
        "exclude = ['A*']\nset = {B = 'C'}\ninclude_only = ['PATH']\nexperimental_use_profile = true\n"
        "[history]\npersistence = 'none'\nmax_bytes = 5\n"
        "[otel]\nenvironment = 'prod'\nlog_user_prompt = true\n"
        "exporter = {otlp-http = {endpoint = 'http://h', protocol = 'json', headers = {a = 'b'}}}\n",
    )
    policy = config.permissions.environment
    assert (policy.inherit, policy.ignore_default_excludes, policy.exclude) == (
        config_values.EnvInherit.CORE,
        True,
        ("A*",),
    )
    assert (policy.set, policy.include_only) == ({"B": "C"}, ("PATH",))
    assert (config.history.persistence, config.history.max_bytes) == (
        config_values.HistoryPersistence.NONE,
        5,
    )
    assert config.notify == ("prog", "arg")
    assert (config.otel.exporter, config.otel.endpoint) == (config_values.OtelExporter.OTLP_HTTP, "http://h")
    assert (config.otel.protocol, config.otel.headers) == (config_values.OtelProtocol.JSON, {"a": "b"})
    assert (config.otel.environment, config.otel.log_user_prompt) == ("prod", True)


def test_instructions_come_from_the_home_and_never_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "base.md").write_text("from the workspace")
    (tmp_path / "base.md").write_text("from the home\n")
    config = load(
        tmp_path, "experimental_instructions_file = 'base.md'\nexperimental_compact_prompt_file = 'base.md'"
    )
    assert (config.instructions.base, config.instructions.compact_prompt) == (
        "from the home",
        "from the home",
    )


@pytest.mark.parametrize("target", ["{top}/home/auth.json", "{top}/secret", "/proc/self/environ"])
@pytest.mark.parametrize("key", ["model_instructions_file", "experimental_compact_prompt_file"])
def test_no_link_in_a_workspace_chooses_the_instructions(tmp_path: Path, key: str, target: str) -> None:
    home, workspace = tmp_path / "home", tmp_path / "ws"
    for folder in (home, workspace):
        folder.mkdir()
    for secret in (home / "auth.json", tmp_path / "secret"):
        secret.write_text("secret")
    (workspace / "plain.md").write_text("plain")
    for name, place in (("base.md", target.format(top=tmp_path)), ("good.md", "plain.md")):
        (workspace / name).symlink_to(place)

    def read(path: Path) -> config_values.Config:
        return homes.load(home, f"{key} = '{path}'\n", cwd=workspace)

    with pytest.raises(ConfigError, match=r"base\.md cannot be read"):
        read(workspace / "base.md")
    instructions = read(workspace / "good.md").instructions
    assert "plain" in (instructions.base, instructions.compact_prompt)


def test_credentials_are_no_instructions(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("secret")
    with pytest.raises(ConfigError, match=r"auth\.json cannot be read: kept secret by the server"):
        load(tmp_path, "model_instructions_file = 'auth.json'")


def test_nothing_in_the_workspace_is_read_as_settings(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    (workspace / ".codex").mkdir(parents=True)
    evil = 'model = "evil"\nsandbox_mode = "danger-full-access"\nnotify = ["touch", "x"]\n'
    (workspace / ".codex" / "config.toml").write_text(evil)
    (workspace / "config.toml").write_text(evil)
    (workspace / ".env").write_text("CODEX_HOME=.\nOPENAI_BASE_URL=http://evil\n")
    plain = load(tmp_path, "")
    for name in (".codex/config.toml", ".codex", "config.toml", ".env"):
        path = workspace / name
        path.rmdir() if path.is_dir() else path.unlink()
    assert load(tmp_path, "") == plain


@pytest.mark.parametrize(
    ("requested", "cwd"), [(None, "ws"), ("", "ws"), ("sub", "ws/sub"), ("/abs", "/abs"), ("../x", "ws/../x")]
)
def test_the_working_directory(tmp_path: Path, requested: str | None, cwd: str) -> None:
    assert load(tmp_path, "", cwd=requested).cwd == tmp_path / cwd


@pytest.mark.parametrize("requested", ["a\0b", "\ud800"])
def test_a_working_directory_that_is_no_path(tmp_path: Path, requested: str) -> None:
    with pytest.raises(ConfigError, match="the working directory is not a path"):
        load(tmp_path, "", cwd=requested)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            '{"models": [{"slug": "a"}, {"slug": "b", "context_window": "x"}]}',
            "models[1].context_window: expected an integer",
        ),
        ('{"models": [{"display_name": "b"}]}', "models[0]: object missing required field slug"),
        ('{"models": {}}', "models: expected a list"),
        ("[]", "expected an object"),
        ('{"models": [', "input data was truncated"),
    ],
)
def test_a_catalogue_of_models_that_is_wrong_says_where(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "mine.json").write_text(content)
    config = load(tmp_path, 'model_catalog_json = "mine.json"')
    [warning] = config.notices.warnings
    assert f"model_catalog_json mine.json: {words}" in warning.text
    assert config.models.catalogue is None


def test_a_catalogue_of_models_in_the_form_of_the_reference_is_taken(tmp_path: Path) -> None:
    row = '{"slug": "a", "tool_mode": "code_mode_only", "upgrade": null, "supported_reasoning_levels": []}'
    (tmp_path / "mine.json").write_text(f'{{"models": [{row}], "fetched_at": "today"}}')
    assert load(tmp_path, 'model_catalog_json = "mine.json"').models.catalogue is not None


def test_a_table_of_a_model_that_is_wrong_says_where(tmp_path: Path) -> None:
    config = load(tmp_path, "[models.m]\nservice_tiers = ['fast']\n[models.n]\ncontext_window = 5\n")
    [warning] = config.notices.warnings
    assert "models.m.service_tiers[0]: expected an object" in warning.text
    assert list(config.models.tables) == ["n"]
