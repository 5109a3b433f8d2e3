"""preflight refuses what cannot work, with one sentence, and leaves the node exactly as it was."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("MOLECULE_PROJECT_DIRECTORY", Path(__file__).resolve().parents[3]))
PLAY = """
- hosts: "{node}"
  become: true
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: inferack.rack.preflight
"""


def preflight(tmp_path: Path, node: str, *arguments: str) -> tuple[int, str, dict[str, int]]:
    """Exit status, output and recap of the role alone on one node."""
    play = tmp_path / "play.yml"
    play.write_text(PLAY.format(node=node))
    command = ["ansible-playbook", "-i", str(ROOT / "inventories/bench"), str(play), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    recap = {key: int(value) for key, value in re.findall(r"(ok|changed|failed|unreachable)=(\d+)", done.stdout)}
    return done.returncode, done.stdout + done.stderr, recap


def state(host) -> str:
    """What the role must not touch: packages, their sources, modprobe's files and the initramfs."""
    with host.sudo():
        return host.check_output(
            "sh -c '(dpkg-query -W || rpm -qa | sort; cat /etc/apt/sources.list.d/* /etc/yum.repos.d/*; ls -lR /etc/modprobe.d;"
            " ls -l --time-style=full-iso /boot) 2>/dev/null | sha256sum'"
        )


@pytest.fixture
def name(host) -> str:
    return host.check_output("hostname")


def test_it_passes_and_changes_nothing(host, name: str, tmp_path: Path) -> None:
    before = state(host)
    status, output, recap = preflight(tmp_path, name)
    assert status == 0, output
    assert (recap["changed"], recap["failed"]) == (0, 0), output
    assert state(host) == before


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ('{"gpu_expected": {"count": 9}}', ["gpu.count: found", "expected 9 GPUs", "reseat or replace"]),
        ('{"inferack_driver_branch": "999"}', ["driver.plan: found R999", "is no branch that this collection knows"]),
        ('{"inferack_driver_branch": "615", "inferack_driver_flavour": "proprietary"}', ["R615 has open modules only"]),
        (
            '{"inferack_driver_source": "runfile", "inferack_driver_branch": "535", "inferack_driver_runfile": {},'
            ' "inferack_engine": "triton", "triton_image": "example.net/nvidia/tritonserver:26.07-py3"}',
            ["driver.plan, installer: found no sha256"],
        ),
    ],
    ids=["too few GPUs", "unknown branch", "impossible flavour", "installer without sha256"],
)
def test_it_refuses_before_anything_changes(host, name: str, tmp_path: Path, extra: str, words: list[str]) -> None:
    before = state(host)
    status, output, recap = preflight(tmp_path, name, "-e", extra)
    assert status != 0, output
    assert (recap["changed"], recap["failed"]) == (0, 1), output
    said = " ".join(output.split())
    for word in words:
        assert word in said, output
    assert state(host) == before
