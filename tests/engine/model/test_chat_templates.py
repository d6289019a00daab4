"""Chat templates of local models, rendered with the messages of a long thread: none refuses them or drops text.

`CHAT_TEMPLATES` names a folder of templates (`*.jinja`), such as `models/templates` of llama.cpp.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from app_server.engine.config.config_values import ProviderConfig
from app_server.engine.model.catalogue import PLAIN
from app_server.engine.model.chat_writer import ChatWriter
from app_server.engine.model.prompt import FunctionTool, Prompt, RequestSettings
from app_server.engine.model.quirks import quirks_of
from app_server_protocol.encoding import Json
from app_server_protocol.responses import ResponseItem
from tests.engine.model.test_chat_writer import call, output, said, thought, user

ext = pytest.importorskip("jinja2.ext")
sandbox = pytest.importorskip("jinja2.sandbox")

WITHOUT_TOOLS = frozenset({"google-gemma-2-2b-it"})
"""Templates without instructions and tools. Their models cannot be used."""

TEMPLATES = sorted(Path(os.environ.get("CHAT_TEMPLATES") or "no folder").glob("*.jinja"))

SHELL = FunctionTool(
    "shell",
    "Runs a command.",
    {
        "type": "object",
        "properties": {"command": {"type": "array", "items": {"type": "string"}, "description": "words"}},
    },
)
ARGUMENTS = '{"command": ["echo", "hi"]}'

THREAD: Sequence[ResponseItem] = (
    user("devfirst", "developer"),
    user("userone"),
    thought("Two looks.", "a", field="reasoning_content"),
    said("I look.", "a"),
    call("c1", "a", ARGUMENTS),
    output("c1", "outputone"),
    call("c2", "a", ARGUMENTS),
    output("c2", "outputtwo"),
    said("Seen.", "b"),
    user("devlater", "developer"),
    user("usertwo"),
    call("c3", "c", ARGUMENTS),
    output("c3", "outputthree"),
    user("steered"),
    said("As you say.", "d"),
    user("interrupted"),
    user("userthree"),
)
SAID = ("devfirst", "userone", "devlater", "usertwo", "steered", "interrupted", "userthree")


class Generation(ext.Extension):  # type: ignore[name-defined,misc,unused-ignore]
    """Extension for the tag `generation`, which marks the text of the assistant."""

    tags = frozenset({"generation"})

    def parse(self, parser: Json) -> Json:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateRefused(Exception):
    """Refusal of the messages by a template."""


def messages(model: str) -> list[Json]:
    provider = ProviderConfig(id="llamacpp", name="llamacpp")
    settings = RequestSettings(model=model, row=PLAIN, conversation_id="c")
    prompt = Prompt(instructions="Be useful.", input=THREAD, tools=(SHELL,))
    body = json.loads(ChatWriter().body(prompt, settings, quirks_of(provider, model), "llamacpp"))
    written: list[Json] = body["messages"]
    return written


def with_objects(written: Sequence[Json]) -> list[Json]:
    """Return the messages with arguments as objects, as servers pass them to templates that require it."""
    out = []
    for message in written:
        calls = [
            {**each, "function": {**each["function"], "arguments": json.loads(each["function"]["arguments"])}}
            for each in message.get("tool_calls", ())
        ]
        out.append({**message, **({"tool_calls": calls} if calls else {})})
    return out


def render(template: Path, written: Sequence[Json]) -> str:
    def refuse(words: str) -> None:
        raise TemplateRefused(words)

    environment = sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: "2026-11-28"}
    environment.filters["tojson"] = lambda value, **more: json.dumps(value, ensure_ascii=False, default=list)
    environment.filters["fromjson"] = json.loads
    function = {"name": SHELL.name, "description": SHELL.description, "parameters": SHELL.parameters}
    made = environment.from_string(template.read_text(encoding="utf-8"))
    text: str = made.render(
        messages=written,
        tools=[{"type": "function", "function": function}],
        add_generation_prompt=True,
        bos_token="<s>",
        eos_token="</s>",
        date_string="28 Nov 2026",
        functions=json.dumps(function),
        datetime="28 Nov 2026",
    )
    return text


@pytest.mark.skipif(not TEMPLATES, reason="CHAT_TEMPLATES names no folder of templates")
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_renders_a_long_thread_with_all_words(template: Path) -> None:
    written = messages(re.sub("^(mistralai|meta-llama)-", r"\1/", template.stem))
    try:
        text = render(template, with_objects(written))
    except TemplateRefused:
        assert template.stem in WITHOUT_TOOLS
        return
    except Exception:
        text = render(template, written)
    lost = [each for each in SAID if each not in text]
    assert lost == []
