"""`app-server threads`: lists stored threads, and shows, renames, archives, deletes and exports them."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from app_server.cli.admin import rewind_thread
from app_server.cli.admin.one_shot import (
    CommandFailed,
    Run,
    agreed,
    eprint,
    misused,
    one_shot,
    run_one_shot,
    show,
    show_json,
)
from app_server.cli.admin.thread_markdown import as_markdown
from app_server.cli.named_files import NamedOutput
from app_server.client.command_line import FAILED, InvalidCommandLine
from app_server.client.request_client import RequestClient
from app_server_protocol.v2 import thread_store as wire
from app_server_protocol.v2.fields import InThread
from app_server_protocol.v2.thread import Thread

ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAGE: Final = 100


async def list_threads(server: RequestClient, args: argparse.Namespace) -> None:
    found: list[Thread] = []
    async for thread in _stored(server, args):
        found.append(thread)
        if len(found) == args.limit:
            break
    if args.json:
        show_json([thread.to_value() for thread in found])
    for thread in found if not args.json else ():
        show(_row(thread))
    if not found:
        eprint("no stored threads" + (" of this folder" if args.here else ""))


async def show_thread(server: RequestClient, args: argparse.Namespace) -> None:
    thread = await _read(server, args.thread, turns=False)
    if args.json:
        show_json(thread.to_value())
        return
    for name, value in _facts(thread).items():
        show(f"{name:<9} {value}")


async def export_thread(server: RequestClient, args: argparse.Namespace) -> None:
    try:
        out = None if args.out is None else NamedOutput(Path(args.out), private=True)
        thread = await _read(server, args.thread, turns=True)
        text = thread.to_json().decode() if args.format == "json" else as_markdown(thread, _facts(thread))
        if out is None:
            show(text)
        else:
            out.write(f"{text}\n")
    except OSError as error:
        raise CommandFailed(
            f"{args.out}: {error.strerror or error}", "name a file in a folder that you can write to"
        ) from None


async def rename_thread(server: RequestClient, args: argparse.Namespace) -> None:
    params = wire.ThreadSetNameParams(thread_id=await _id(server, args.thread), name=args.name)
    await server.request(wire.THREAD_NAME_SET, params)


async def archive_threads(server: RequestClient, args: argparse.Namespace) -> None:
    for id in await _ids(server, args.threads):
        await server.request(wire.THREAD_ARCHIVE, InThread(thread_id=id))


async def unarchive_threads(server: RequestClient, args: argparse.Namespace) -> None:
    for id in await _ids(server, args.threads, archived=True):
        await server.request(wire.THREAD_UNARCHIVE, InThread(thread_id=id))


def run_delete(args: argparse.Namespace) -> int:
    """Delete threads, after a question that is asked before a server is started."""
    try:
        if not args.yes and not agreed(f"Delete {', '.join(args.threads)} for ever?"):
            eprint("nothing was deleted")
            return FAILED
    except InvalidCommandLine as error:
        return misused(args, error)
    return run_one_shot(args, _delete_threads)


async def _delete_threads(server: RequestClient, args: argparse.Namespace) -> None:
    for id in await _ids(server, args.threads):
        await server.request(wire.THREAD_DELETE, InThread(thread_id=id))


async def _ids(server: RequestClient, names: Sequence[str], *, archived: bool = False) -> list[str]:
    """Return the ids of threads: all of them, before the first one is changed. Raises CommandFailed."""
    return [await _id(server, named, archived=archived) for named in names]


def _stored(server: RequestClient, args: argparse.Namespace) -> AsyncIterator[Thread]:
    params = wire.ThreadListParams(
        model_providers=(),
        limit=min(args.limit, PAGE),
        archived=args.archived,
        sort_key="updated_at",
        cwd=os.path.realpath(".") if args.here else None,
        search_term=args.search,
    )
    return _listed(server, params)


async def _listed(server: RequestClient, params: wire.ThreadListParams) -> AsyncIterator[Thread]:
    async for page in server.pages(wire.THREAD_LIST, params):
        for thread in page.data:
            yield thread


async def _read(server: RequestClient, named: str, *, turns: bool) -> Thread:
    id = await _id(server, named)
    params = wire.ThreadReadParams(thread_id=id, include_turns=turns)
    return (await server.request(wire.THREAD_READ, params)).thread


async def _id(server: RequestClient, named: str, *, archived: bool = False) -> str:
    """Return the id of the thread with this id or name. Raises CommandFailed."""
    if ID.fullmatch(named):
        return named
    params = wire.ThreadListParams(model_providers=(), limit=PAGE, search_term=named, archived=archived)
    found = _listed(server, params)
    ids = [thread.id async for thread in found if thread.name == named]
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise CommandFailed(
            f"{len(ids)} threads have the name {named!r}", f"name one by its id: {', '.join(ids)}"
        )
    raise CommandFailed(
        f"there is no thread {named!r}", "`app-server threads list` shows their ids and names"
    )


async def _rewind(server: RequestClient, args: argparse.Namespace) -> None:
    await rewind_thread.rewind(server, args, await _id(server, args.thread))


def _row(thread: Thread) -> str:
    """Return a line of the list: as wide as the terminal, or complete and with tabs for other programs."""
    words = " ".join((thread.name or thread.preview or "").split())
    if not sys.stdout.isatty():
        return "\t".join((thread.id, _time(thread.updated_at), thread.cwd, words))
    columns = shutil.get_terminal_size().columns
    line = f"{thread.id}  {_time(thread.updated_at)[:16].replace('T', ' ')}  {words}"
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def _facts(thread: Thread) -> dict[str, str]:
    facts = {
        "id": thread.id,
        "name": thread.name or "",
        "begins": " ".join((thread.preview or "").split()),
        "folder": thread.cwd,
        "provider": thread.model_provider,
        "created": _time(thread.created_at),
        "updated": _time(thread.updated_at),
        "copy of": thread.forked_from_id or "",
        "file": thread.path or "",
    }
    return {name: value for name, value in facts.items() if value}


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


COMMANDS: Final[Mapping[str, Run]] = {
    "threads list": one_shot(list_threads),
    "threads show": one_shot(show_thread),
    "threads export": one_shot(export_thread),
    "threads rename": one_shot(rename_thread),
    "threads archive": one_shot(archive_threads),
    "threads unarchive": one_shot(unarchive_threads),
    "threads delete": run_delete,
    "threads rewind": one_shot(_rewind),
}
