"""`app-server threads`: lists stored threads, shows, renames, archives, deletes and exports them."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from app_server.client.app_server import AppServer
from app_server.client.command_line import FAILED, InvalidCommandLine
from app_server.client.options import ListOptions
from app_server.errands.errand import NotDone, agreed, misused, run_errand, say, show, show_json
from app_server.errands.thread_export import as_markdown
from protocol.v2 import thread_store as wire
from protocol.v2.fields import InThread
from protocol.v2.thread import Thread

ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAGE: Final = 100


def run_list(args: argparse.Namespace) -> int:
    async def list_threads(server: AppServer) -> int:
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
            say("no stored threads" + (" of this folder" if args.here else ""))
        return 0

    return run_errand(args, list_threads)


def run_show(args: argparse.Namespace) -> int:
    async def show_thread(server: AppServer) -> int:
        thread = await _read(server, args.thread, turns=False)
        if args.json:
            show_json(thread.to_value())
            return 0
        for name, value in _facts(thread).items():
            show(f"{name:<9} {value}")
        return 0

    return run_errand(args, show_thread)


def run_export(args: argparse.Namespace) -> int:
    async def export_thread(server: AppServer) -> int:
        thread = await _read(server, args.thread, turns=True)
        as_json = args.format == "json"
        text = thread.to_json().decode() if as_json else as_markdown(thread, _facts(thread))
        if args.out is None:
            show(text)
        else:
            Path(args.out).write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        return 0

    return run_errand(args, export_thread)


def run_rename(args: argparse.Namespace) -> int:
    async def rename_thread(server: AppServer) -> int:
        id = await _id(server, args.thread)
        params = wire.ThreadSetNameParams(thread_id=id, name=args.name)
        await server.request(wire.THREAD_NAME_SET, params)
        return 0

    return run_errand(args, rename_thread)


def run_archive(args: argparse.Namespace) -> int:
    async def archive(server: AppServer, id: str) -> None:
        await server.request(wire.THREAD_ARCHIVE, InThread(thread_id=id))

    return _for_each(args, archive)


def run_unarchive(args: argparse.Namespace) -> int:
    async def unarchive(server: AppServer, id: str) -> None:
        await server.request(wire.THREAD_UNARCHIVE, InThread(thread_id=id))

    return _for_each(args, unarchive, archived=True)


def run_delete(args: argparse.Namespace) -> int:
    async def delete(server: AppServer, id: str) -> None:
        await server.request(wire.THREAD_DELETE, InThread(thread_id=id))

    try:
        if not args.yes and not agreed(f"Delete {', '.join(args.threads)} for ever?"):
            say("nothing was deleted")
            return FAILED
    except InvalidCommandLine as error:
        return misused(args, error)
    return _for_each(args, delete)


def _for_each(
    args: argparse.Namespace, change: Callable[[AppServer, str], Awaitable[None]], *, archived: bool = False
) -> int:
    """Change every thread that is named. Which they are is found out before the first one is changed."""

    async def change_threads(server: AppServer) -> int:
        for id in [await _id(server, named, archived=archived) for named in args.threads]:
            await change(server, id)
        return 0

    return run_errand(args, change_threads)


def _stored(server: AppServer, args: argparse.Namespace) -> AsyncIterator[Thread]:
    options = ListOptions(
        model_providers=[], page_size=min(args.limit, PAGE), archived=args.archived, sort_key="updated_at"
    )
    if args.here:
        options["cwd"] = os.path.realpath(".")
    if args.search is not None:
        options["search"] = args.search
    return server.threads(**options)


async def _read(server: AppServer, named: str, *, turns: bool) -> Thread:
    id = await _id(server, named)
    params = wire.ThreadReadParams(thread_id=id, include_turns=turns)
    return (await server.request(wire.THREAD_READ, params)).thread


async def _id(server: AppServer, named: str, *, archived: bool = False) -> str:
    """Return the id of the thread that is named by its id or by its name. Raises NotDone."""
    if ID.fullmatch(named):
        return named
    found = server.threads(model_providers=[], page_size=PAGE, search=named, archived=archived)
    ids = [thread.id async for thread in found if thread.name == named]
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise NotDone(f"{len(ids)} threads have the name {named!r}", f"name one by its id: {', '.join(ids)}")
    raise NotDone(f"there is no thread {named!r}", "`app-server threads list` shows their ids and names")


def _row(thread: Thread) -> str:
    """Return a line of the list: as wide as the terminal, or whole and with tabs for other programs."""
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
