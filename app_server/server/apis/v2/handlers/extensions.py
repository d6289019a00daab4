"""Extensions of threads: skills, which can be switched and may come from the client's folders. This server has no
apps and plugins, so their lists are empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

from msgspec.structs import asdict

from app_server.engine.context.skills.skill import MAX_EXTRA_ROOTS, Skill, SkillOwner, SkillSet
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, constant, route
from app_server.server.apis.v2.thread_notifier import to_client
from app_server.server.apis.v2.v2_errors import page_by_position
from app_server_protocol.outgoing import struct_from
from app_server_protocol.rpc_errors import invalid_field, invalid_params
from app_server_protocol.v2 import skills as wire

MAX_DIRECTORIES = 100
"""Maximum number of directories in one request."""

_SCOPES: Final[Mapping[SkillOwner, wire.SkillScope]] = {
    SkillOwner.REPOSITORY: "repo",
    SkillOwner.USER: "user",
    SkillOwner.SYSTEM: "system",
}


async def skills_list(context: ConnectionContext, params: wire.SkillsListParams) -> wire.SkillsListResponse:
    """List skills. They are read from the disk each time, so `forceReload` has no effect."""
    cwds = params.cwds or (str(context.config.cwd),)
    if len(cwds) > MAX_DIRECTORIES:
        raise invalid_field(f"at most {MAX_DIRECTORIES} directories at once", "cwds")
    entries = []
    for cwd in cwds:
        found = await context.host.skills.get().list(context.config.cwd / cwd)
        entries.append(_entry(cwd, found))
    return wire.SkillsListResponse(data=tuple(entries))


async def skills_extra_roots_set(
    context: ConnectionContext, params: wire.SkillsExtraRootsSetParams
) -> AsyncIterator[None]:
    if len(params.extra_roots) > MAX_EXTRA_ROOTS:
        raise invalid_field(f"at most {MAX_EXTRA_ROOTS} folders", "extraRoots")
    context.host.skills.get().set_extra_roots(params.extra_roots)
    yield
    _announce_change(context)


async def skills_config_write(
    context: ConnectionContext, params: wire.SkillsConfigWriteParams
) -> AsyncIterator[wire.SkillsConfigWriteResponse]:
    name = params.name.strip() if params.name is not None else None
    if (name is None) is (params.path is None) or name == "":
        raise invalid_params("skills/config/write requires exactly one of path or name", "name")
    await context.config.file.switch_skill(name, params.path, enabled=params.enabled)
    yield wire.SkillsConfigWriteResponse(effective_enabled=params.enabled)
    _announce_change(context)


def _entry(cwd: str, found: SkillSet) -> wire.SkillsListEntry:
    return wire.SkillsListEntry(
        cwd=cwd,
        skills=tuple(_metadata(skill) for skill in found.skills),
        errors=tuple(struct_from(wire.SkillErrorInfo, each) for each in found.problems),
    )


def _metadata(skill: Skill) -> wire.SkillMetadata:
    return wire.SkillMetadata(
        name=skill.name,
        description=skill.description,
        short_description=skill.short_description,
        path=skill.path,
        scope=_SCOPES[skill.owner],
        enabled=skill.enabled,
        interface=None if skill.appearance is None else wire.SkillInterface(**asdict(skill.appearance)),
    )


def _announce_change(context: ConnectionContext) -> None:
    to_client(context).notify(wire.SKILLS_CHANGED)


async def app_list(context: ConnectionContext, params: wire.AppsListParams) -> wire.AppsListResponse:
    page_by_position((), params.cursor, params.limit)
    return wire.AppsListResponse()


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    context.host.skills.get().on_change = partial(_announce_change, context)
    readiness = wire.WindowsSandboxReadinessResponse(status="notConfigured")
    return (
        route(wire.SKILLS_LIST, skills_list, context),
        route(wire.SKILLS_EXTRA_ROOTS_SET, skills_extra_roots_set, context),
        route(wire.SKILLS_CONFIG_WRITE, skills_config_write, context),
        route(wire.APP_LIST, app_list, context),
        constant(wire.APP_INSTALLED, wire.AppsInstalledResponse()),
        constant(wire.PLUGIN_LIST, wire.PluginListResponse()),
        constant(wire.PLUGIN_INSTALLED, wire.PluginInstalledResponse()),
        constant(wire.WINDOWS_SANDBOX_READINESS, readiness),
    )
