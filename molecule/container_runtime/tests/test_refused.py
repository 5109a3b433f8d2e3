"""dockerd refuses the merged configuration: the old file is back, the engine runs, one sentence names the cause."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])


def test_a_refused_configuration_is_taken_back() -> None:
    play = subprocess.run(
        ["ansible-playbook", "-i", str(ROOT / "inventories/bench"), str(ROOT / "molecule/container_runtime/refused.yml")],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert play.returncode == 0, play.stdout[-6000:] + play.stderr[-2000:]
    recap = [line for line in play.stdout.splitlines() if "unreachable=" in line]
    assert len(recap) == 3
    assert all("rescued=2" in line for line in recap), recap
