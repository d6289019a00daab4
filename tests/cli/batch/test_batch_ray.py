"""A batch on a cluster of two nodes, on this machine: one node is killed in the middle."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.cli.batch.local import scratch_folder
from tests.support.batches import BatchWorld, writes
from tests.support.waiting import until
from tests.support.world import MARK

pytest.importorskip("ray", reason="no ray: pip install -e '.[ray]'")

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.slow]

TASKS = 200


@pytest.fixture
def cluster(batch: BatchWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run two nodes with the environment of the batch, and a temporary folder of their own."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415  an extra

    for name, value in {
        "CODEX_HOME": str(batch.home),
        "NO_PROXY": "127.0.0.1",
        MARK: str(batch.root),
        "BATCH_PROVIDER_KEY": "s3cr3t-0123456789",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": gettempdir(),
        "TMPDIR": str(batch.root / "tmp"),
    }.items():
        monkeypatch.setenv(name, value)
    (batch.root / "tmp").mkdir()
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20})
    nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    yield nodes
    nodes.shutdown()


async def test_two_hundred_tasks_with_a_node_that_dies(batch: BatchWorld, cluster: Any) -> None:
    repository = batch.repository()
    batch.write(*({"id": f"t{n}", "repo": str(repository)} for n in range(TASKS)))
    [victim] = cluster.worker_nodes

    batch.author = writes("echo x >> a.txt")
    async with batch.serving(tables='env_key = "BATCH_PROVIDER_KEY"\n'):
        with (batch.root / "stderr").open("wb") as errors:
            command = batch.process("--jobs", "8", f"--ray={cluster.address}")
            environment = {**batch.environment, "BATCH_PROVIDER_KEY": "s3cr3t-0123456789"}
            async with await anyio.open_process(
                command, stdin=-3, stdout=-3, stderr=errors, env=environment, cwd=batch.root
            ) as process:
                await until(lambda: len(batch.requests) >= TASKS // 2, "half of the tasks have run")
                await anyio.to_thread.run_sync(lambda: cluster.remove_node(victim, allow_graceful=False))
                status = await process.wait()
    assert status == 0, (batch.root / "stderr").read_text()
    lines = [json.loads(line) for line in (batch.out / "results.jsonl").read_text().splitlines()]
    assert Counter(line["id"] for line in lines) == Counter(f"t{n}" for n in range(TASKS))
    assert {line["status"] for line in lines} == {"completed"}
    assert len({line["node"] for line in lines}) == 2, "both nodes worked"
    assert len(list((batch.out / "patches").iterdir())) == TASKS
    threads = {path.stem[-36:] for path in batch.out.glob("homes/*/sessions/**/*.jsonl")}
    assert {line["threadId"] for line in lines} <= threads, "threads come back"
    work = batch.home / "tmp" / "batch"
    await until(lambda: len(list(work.glob("worker-????????"))) <= 1, "of those that worked on")
    async with scratch_folder(work):
        pass  # the next cluster on the machine removes what the dead node left
    assert list(work.iterdir()) == []
    logs = Path(cluster.head_node.get_session_dir_path()) / "logs"
    for folder in (logs, batch.out):
        found = [
            path for path in folder.rglob("*") if path.is_file() and b"s3cr3t-0123456789" in path.read_bytes()
        ]
        assert found == []
