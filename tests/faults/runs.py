"""Bad days on the bench's rack: a fault is put in, the playbook runs, the verdict is read from what an operator sees.

The nodes must have been accepted before (`molecule test -s site` leaves them so). Every test puts its faults right again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests/bench/bench"
INVENTORY = ROOT / "inventories/bench"
INSTANCE = int(os.environ.get("BENCH", "0"))
REPORT = ROOT / "reports" / (f"bench-{INSTANCE}" if INSTANCE else "bench") / "report.json"
RUN_TIMEOUT_S = 900
RECAP = re.compile(
    r"^(?P<host>\S+)\s+: ok=(?P<ok>\d+)\s+changed=(?P<changed>\d+)\s+unreachable=(?P<unreachable>\d+)\s+failed=(?P<failed>\d+)",
    re.MULTILINE,
)


@dataclass
class Run:
    """One playbook run as its operator sees it."""

    rc: int
    output: str
    report: dict
    recap: dict[str, dict[str, int]] = field(default_factory=dict)

    def node(self, name: str) -> dict:
        return next(node for node in self.report["nodes"] if node["name"] == name)

    def failing(self, name: str) -> set[str]:
        """Ids of the node's failing checks in the report."""
        return {check["id"] for check in self.report["checks"] if check["node"] == name and check["status"] == "fail"}


def last_report() -> dict:
    """The report of the last run; empty where there is none."""
    return json.loads(REPORT.read_text()) if REPORT.exists() else {}


def playbook(name: str, *arguments: str) -> Run:
    REPORT.unlink(missing_ok=True)
    command = ["ansible-playbook", "-i", str(INVENTORY), str(ROOT / "playbooks" / name), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    recap = {
        match["host"]: {key: int(match[key]) for key in ("ok", "changed", "unreachable", "failed")}
        for match in RECAP.finditer(done.stdout)
    }
    return Run(done.returncode, done.stdout, last_report(), recap)


def bench(*arguments: str) -> str:
    done = subprocess.run(
        [str(BENCH), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"bench {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def on(node: str, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell command as root in a node, past Ansible."""
    container = f"inferack-{INSTANCE}-{node}"
    return subprocess.run(
        ["docker", "exec", container, "sh", "-c", command], capture_output=True, text=True, timeout=120, check=False
    )


@contextmanager
def fault(node: str, name: str) -> Iterator[None]:
    bench("fault", node, name)
    try:
        yield
    finally:
        bench("repair", node, name)
