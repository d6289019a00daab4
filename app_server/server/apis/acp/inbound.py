"""Conversion of a client's parameters for the engine: the content blocks of a prompt, the instructions of the client,
and the MCP servers that it adds to those of the configuration for a session. Pure.

The order of blocks is preserved. Content that a client embeds is marked as context, with its address, in a block that
its text cannot end.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, urlsplit

from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpServerConfig, McpStdioTransport
from app_server.server.apis.acp.formatting import fenced, one_line
from app_server_protocol.acp import sessions as wire
from app_server_protocol.acp.sessions import (
    ContentBlock,
    HttpMcpServer,
    NameAndValue,
    SessionMcpServer,
    SseMcpServer,
    StdioMcpServer,
)
from app_server_protocol.engine.thread_settings import PromptMode, SystemPrompt
from app_server_protocol.event_items import ImageInput, LocalImageInput, TextInput, UserInput
from app_server_protocol.ids import is_unicode
from app_server_protocol.rpc_errors import RpcError, invalid_params

_IMAGE_TYPE: Final = r"image/[A-Za-z0-9.+-]{1,40}"
_BASE64: Final = r"[A-Za-z0-9+/\s]*={0,2}\s*"
_IMAGE_FILES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_LANGUAGE: Final = r"[A-Za-z0-9+#-]{1,20}"


def engine_inputs(blocks: Sequence[ContentBlock], cwd: str) -> tuple[UserInput, ...]:
    """Return content blocks as inputs of the engine. Raises RpcError for a block that was not announced as supported,
    or whose content does not match its type.
    """
    return tuple(_input(block, cwd) for block in blocks)


def _unsupported_block(text: str) -> RpcError:
    return invalid_params(text, "prompt")


def first_text(blocks: Sequence[ContentBlock]) -> str | None:
    """Return the text at the beginning of a prompt."""
    first = blocks[0] if blocks else None
    return first.text if isinstance(first, wire.TextBlock) else None


def all_text(blocks: Sequence[ContentBlock]) -> str:
    """Return the text that the user typed, without attachments."""
    return " ".join(block.text for block in blocks if isinstance(block, wire.TextBlock))


def _input(block: ContentBlock, cwd: str) -> UserInput:
    match block:
        case wire.TextBlock():
            return TextInput(text=block.text)
        case wire.ImageBlock():
            return _image(block)
        case wire.ResourceLinkBlock():
            return _link(block, cwd)
        case wire.ResourceBlock():
            return _resource(block.resource, cwd)
        case wire.AudioBlock() | wire.OtherBlock():
            raise _unsupported_block(f"content of type {one_line(block.type) or '(none)'} is not supported")


def _image(block: wire.ImageBlock) -> UserInput:
    if block.data:
        return ImageInput(image_url=_data_url(block.mime_type, block.data))
    path = file_path(block.uri or "")
    if path is None:
        raise _unsupported_block("an image has neither data nor the address of a file")
    return LocalImageInput(path=path)


def _data_url(mime_type: str, data: str) -> str:
    if not re.fullmatch(_IMAGE_TYPE, mime_type):
        raise _unsupported_block(f"{one_line(mime_type)} is no type of image")
    if not re.fullmatch(_BASE64, data):
        raise _unsupported_block("the data of an image is not base64")
    return f"data:{mime_type};base64,{''.join(data.split())}"


def _link(block: wire.ResourceLinkBlock, cwd: str) -> UserInput:
    path = file_path(block.uri)
    is_image = (block.mime_type or "").startswith("image/") or block.uri.lower().endswith(_IMAGE_FILES)
    if path is not None and is_image:
        return LocalImageInput(path=path)
    where = shown_address(block.uri, cwd)
    name = one_line(block.name)
    text = f"[@{name}]({where})"
    return TextInput(text=f"{text}: {one_line(block.description)}" if block.description else text)


def _resource(resource: wire.ResourceContents, cwd: str) -> UserInput:
    where = shown_address(resource.uri, cwd)
    if resource.text is not None:
        suffix = os.path.splitext(where)[1].removeprefix(".")
        language = suffix if re.fullmatch(_LANGUAGE, suffix) else ""
        return TextInput(text=f"Context from {where}:\n{fenced(resource.text, language)}\n")
    if resource.blob is None:
        raise _unsupported_block("a resource has neither text nor data")
    kind = resource.mime_type or ""
    if re.fullmatch(_IMAGE_TYPE, kind):
        return ImageInput(image_url=_data_url(kind, resource.blob))
    size = len(resource.blob) * 3 // 4
    return TextInput(
        text=f"Context from {where}: {one_line(kind) or 'binary data'} of {size} bytes, not shown."
    )


def shown_address(uri: str, cwd: str) -> str:
    """Return the path of a file, relative to the working directory if it is inside; any other address is returned
    unchanged.
    """
    path = file_path(uri)
    if path is None:
        return one_line(uri, 2000)
    shown = one_line(path, 4096)
    inside = os.path.normpath(path).startswith(cwd.rstrip("/") + "/")
    return os.path.relpath(shown, cwd) if inside else shown


def file_path(uri: str) -> str | None:
    """Return the absolute path that a `file://` address of this machine names, or a bare absolute path; None if the
    address is neither.
    """
    if uri.startswith("/") and "\0" not in uri:
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path, errors="replace")
    return path if path.startswith("/") and "\0" not in path else None


MOST_INSTRUCTIONS = 256 * 1024
"""Maximum length of a client's own instructions, in bytes of UTF-8: they are stored with every turn."""


def system_prompt(given: wire.SessionSystemPrompt | None) -> SystemPrompt | None:
    """Return the instructions of the client; None if it gives none. Raises RpcError."""
    if given is None:
        return None
    try:
        mode = PromptMode(given.mode)
    except ValueError:
        raise _unsupported_prompt("systemPrompt mode must be append or override") from None
    texts = [block.text for block in given.content if isinstance(block, wire.TextBlock)]
    if len(texts) < len(given.content):
        raise _unsupported_prompt("systemPrompt content must contain only text blocks")
    text = "\n\n".join(texts)
    if not text.strip():
        raise _unsupported_prompt("systemPrompt content must not be empty")
    if len(text.encode("utf-8", "replace")) > MOST_INSTRUCTIONS:
        raise _unsupported_prompt(f"systemPrompt content must be at most {MOST_INSTRUCTIONS} bytes long")
    return SystemPrompt(mode=mode, text=text)


def _unsupported_prompt(text: str) -> RpcError:
    return invalid_params(text, "systemPrompt")


MOST_SERVERS = 100
LONGEST_NAME = 60


def _unsupported_server(text: str) -> RpcError:
    return invalid_params(text, "mcpServers")


def merged_servers(
    configured: Mapping[str, McpServerConfig], given: Sequence[SessionMcpServer]
) -> Mapping[str, McpServerConfig]:
    """Return the configured servers with the client's servers, which replace those of the same name.
    Raises RpcError.
    """
    if len(given) > MOST_SERVERS:
        raise _unsupported_server(f"at most {MOST_SERVERS} MCP servers are supported")
    servers = {_name(each.name): each for each in given}
    if len(servers) < len(given):
        raise _unsupported_server("two MCP servers have the same name")
    made = {name: _server(name, each) for name, each in servers.items()}
    return MappingProxyType({**configured, **made})


def _server(name: str, given: SessionMcpServer) -> McpServerConfig:
    match given:
        case StdioMcpServer():
            env = _table(given.env)
            _require_text(given.command, *given.args, *env, *env.values())
            return McpServerConfig(
                name=name, transport=McpStdioTransport(command=given.command, args=given.args, env=env)
            )
        case HttpMcpServer():
            if not given.url.startswith(("http://", "https://")):
                raise _unsupported_server(f"the MCP server {name} has no http or https address")
            headers = _table(given.headers)
            if not all(_is_header(key, value) for key, value in headers.items()):
                raise _unsupported_server(f"the MCP server {name} has a header that cannot be sent")
            return McpServerConfig(name=name, transport=McpHttpTransport(url=given.url, http_headers=headers))
        case SseMcpServer():
            raise _unsupported_server(f"the MCP server {name} uses SSE, which is not supported; use http")


def _name(given: str) -> str:
    """Return a server's name, with characters replaced that names of tools cannot contain."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", given).strip("_")[:LONGEST_NAME]
    if not name:
        raise _unsupported_server("an MCP server has no usable name")
    return name


def _table(pairs: Sequence[NameAndValue]) -> Mapping[str, str]:
    return MappingProxyType({pair.name: pair.value for pair in pairs})


def _require_text(*values: str) -> None:
    for value in values:
        if "\0" in value or not is_unicode(value):
            raise _unsupported_server("an MCP server has an argument that is no text")


def _is_header(name: str, value: str) -> bool:
    plain = value.isascii() and not any(c in value for c in "\r\n\0")
    return bool(re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name)) and plain
