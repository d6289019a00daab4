"""The types that `app-server generate-ts` writes, checked by the compiler of TypeScript."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.npm import npm_packages
from tests.support.program import SCRIPT

pytestmark = [pytest.mark.process, pytest.mark.integration]

CLIENT = Path(__file__).parent / "typescript_client.ts"


@pytest.mark.parametrize("options", [(), ("--experimental",)])
def test_a_client_of_codex_compiles_with_the_types(
    tmp_path: Path, pytestconfig: pytest.Config, options: tuple[str, ...]
) -> None:
    node, (compiler,) = npm_packages(
        pytestconfig, "typescript", ("typescript@5.9.3",), ["typescript/bin/tsc"]
    )
    subprocess.run([SCRIPT, "generate-ts", "--out", "types", *options], cwd=tmp_path, check=True)
    shutil.copy(CLIENT, tmp_path / "client.ts")
    words = [
        "--strict",
        "--noEmit",
        "--target",
        "es2022",
        "--module",
        "esnext",
        "--moduleResolution",
        "bundler",
    ]
    compiled = subprocess.run(
        [node, compiler, *words, "client.ts", "types/index.ts"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stdout
