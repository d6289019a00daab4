"""An answer as an object: `python examples/structured_output.py path/to/module.py`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from app_server.client import AppServerError
from app_server.client.sync import SyncAppServer


class Finding(BaseModel):
    line: int
    severity: Literal["low", "medium", "high"]
    summary: str


class Findings(BaseModel):
    findings: list[Finding]
    verdict: str


def main(path: Path) -> int:
    with SyncAppServer.spawn() as server:
        thread = server.start_thread(cwd=Path.cwd(), sandbox="read-only", ephemeral=True)
        result = thread.run(f"Review {path} for mistakes.", output=Findings)
        try:
            report = result.output
        except AppServerError as error:  # the turn failed, or the answer does not fit the schema
            print(error, file=sys.stderr)
            return 1
        for finding in sorted(report.findings, key=lambda found: found.line):
            print(f"{path}:{finding.line}: {finding.severity}: {finding.summary}")
        print(report.verdict)
        return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
