"""The process of a worker: a server with many threads at once, one for each task. It receives tasks on stdin and writes
their outcomes to stdout. When stdin ends, the process ends.
"""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from app_server.engine.support import lazy_imports

lazy_imports.install()  # a program of its own, which is started for each worker

from app_server.cli.batch import worker_messages
from app_server.cli.batch.attempt import Attempt, RunningTask, WorkerParts
from app_server.cli.batch.batch_tasks import Task
from app_server.cli.batch.checkout import Checkouts
from app_server.cli.batch.local import LONGEST_LINE, heard, scratch_folder, sender
from app_server.cli.batch.secrets import held_credentials, known_secrets
from app_server.cli.exec.output_schema import OutputSchema
from app_server.client.app_server import AppServer
from app_server.engine.config.config_values import SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.sandbox.plan import KeptFolders
from app_server.engine.support.private_folders import FOLDER, own_folder
from app_server.engine.workspace.git.find_git import find_git
from app_server.engine.workspace.git.run_git import Git
from app_server.in_process import InProcessConnector
from app_server.server.bootstrap.claim import claim_stdout
from app_server.server.bootstrap.launch import server_home
from app_server.server.bootstrap.server_process import guard_memory
from app_server.server.bootstrap.stdio import StdioTransport
from app_server.server.logs import set_up_logging
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.framing import Transport
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.model.model_client import GatedRequest

log = logging.getLogger(__name__)

ENDS_WITHIN: Final = 3
"""Timeout for the cleanup of a worker that is not needed any more, in seconds; its commands end with it."""
BYTES_PER_TOKEN: Final = 4


def main() -> None:
    """Work until stdin ends."""
    write_fd = claim_stdout()
    guard_memory()
    set_up_logging(os.environ)
    if "APP_SERVER_LOG" not in os.environ:
        logging.disable(logging.WARNING)
    leave_soon = partial(signal.alarm, ENDS_WITHIN)  # also if a step of the cleanup hangs
    transport, node = StdioTransport(0, write_fd, LONGEST_LINE), "".join(sys.argv[1:])
    anyio.run(work, transport, dict(os.environ), leave_soon, node or node_name(os.uname().nodename))
    os._exit(0)  # without waiting for threads that a disk blocks


def node_name(host: str) -> str:
    """Return the name of a machine in results, which is also the name of a folder."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", host).lstrip(".-")[:255] or "here"


async def work(
    transport: Transport, environment: Mapping[str, str], ending: Callable[[], object], node: str
) -> None:
    """Run the tasks that arrive over a transport, until it ends. Then call `ending`, and interrupt the running tasks.
    `node` is the name of this machine in results.
    """
    async with anyio.create_task_group() as group:
        say, told = sender(transport, group), heard(transport, worker_messages.for_worker)
        setup = await anext(told)
        assert isinstance(setup, worker_messages.Setup), "the first message says what the batch does"
        setup = replace(setup, node=node)
        gate = WorkerGate(say)
        running: dict[str, Attempt] = {}
        async with _parts(setup, environment, gate) as parts:

            async def run(task: Task) -> None:
                attempt = running[task.id] = Attempt(task, parts)
                say(await attempt.make())
                del running[task.id]

            say(worker_messages.Ready(setup.node))
            async for message in told:
                match message:
                    case worker_messages.Run(task=task):
                        group.start_soon(run, task, name=task.id)
                    case worker_messages.Pass(id=id, never=never):
                        if id in running:  # otherwise it has ended by now
                            running[id].answer(never=never)
                    case worker_messages.InterruptTasks():
                        for attempt in running.values():
                            attempt.whole.cancel()
                    case worker_messages.Setup():
                        pass  # it was the first message
            ending()
            group.cancel_scope.cancel()


@asynccontextmanager
async def _parts(
    setup: worker_messages.Setup, environment: Mapping[str, str], gate: WorkerGate
) -> AsyncIterator[WorkerParts]:
    """Start the objects that attempts need: a server, and a folder for checkouts."""
    home, base, overrides = server_home(environment), Path(setup.folder), setup.doing.overrides
    config = load_config(SettingsSource(home=home, cwd=base, cli=overrides, environment=environment))
    withheld = config.credential_variables()
    fetching = {name: value for name, value in environment.items() if name not in withheld}
    # The folder must be one in which no command of this machine may write: not a folder for temporary files.
    work = Path(setup.out, worker_messages.WORK) if setup.shared else Path(own_folder(home, FOLDER, "batch"))
    async with scratch_folder(work) as scratch:
        kept = (os.path.realpath(setup.out),) if setup.shared else ()
        own = scratch / ".worker"  # no task has this name
        own.mkdir()
        connector = InProcessConnector(
            home=home,
            cwd=base,
            environment=environment,
            overrides=overrides,
            threads=(Path(setup.out, worker_messages.HOMES) if setup.shared else own) / setup.node,
            kept=KeptFolders(kept, os.path.realpath(scratch)),
            gate=gate,
        )
        checkouts = Checkouts(
            Git(home, find_git(environment, base)), setup, scratch, work if setup.shared else own, fetching
        )
        async with AppServer.connect(
            connector, on_warning=lambda text, event: log.warning("%s", text)
        ) as server:
            secrets = known_secrets(config, home, environment)
            credentials = held_credentials(config, home, environment)
            schema = None if setup.doing.schema is None else OutputSchema(setup.doing.schema)
            yield WorkerParts(setup, server, gate.running, checkouts, secrets, credentials, schema)


class WorkerGate:
    """The `RequestGate` of a worker's server: the coordinator decides when each request may be sent. The waiting time
    counts for no time limit.
    """

    longest_pause = math.inf  # the coordinator bounds it, for all workers

    def __init__(self, send: Callable[[worker_messages.FromWorker], None]) -> None:
        self._send = send
        self.running: dict[str, RunningTask] = {}
        """Running tasks by thread id, to find the task of a request."""

    @asynccontextmanager
    async def passing(self, request: GatedRequest) -> AsyncIterator[None]:
        running = self.running.get(request.conversation_id)
        if running is None or running.over_budget():
            await anyio.sleep_forever()  # its turn is being interrupted
            return
        id, size, running.passes = running.task.id, request.size // BYTES_PER_TOKEN, anyio.Event()
        self._send(worker_messages.Ask(id=id, size=size, first=not running.reached))
        try:
            with running.waiting():
                await running.passes.wait()
            running.reached = True
            yield
        finally:
            used = request.usage or TokenUsage()
            usage = worker_messages.TaskUsage(
                used.input_tokens, used.cached_input_tokens, used.output_tokens, requests=1
            )
            running.requests += not request.limited
            running.tokens += usage.total
            running.refused = request.status
            limited, after, model = request.limited, request.retry_after, request.model
            self._send(
                worker_messages.Over(id=id, model=model, usage=usage, limited=limited, retry_after=after)
            )


if __name__ == "__main__":
    main()
