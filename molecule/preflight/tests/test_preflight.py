"""preflight refuses what cannot work, with one sentence, and leaves the node exactly as it was."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("MOLECULE_PROJECT_DIRECTORY", Path(__file__).resolve().parents[3]))

# What the role must not touch: packages, their sources, modprobe's files and the initramfs.
STATE = (
    "(dpkg-query -W || rpm -qa | sort; cat /etc/apt/sources.list.d/* /etc/yum.repos.d/*; ls -lR /etc/modprobe.d;"
    " ls -l --time-style=full-iso /boot) 2>/dev/null | sha256sum"
)
PLAY = [
    {
        "hosts": "gpu_nodes",
        "become": True,
        "gather_facts": False,
        "tasks": [
            {"name": "before", "ansible.builtin.shell": STATE, "changed_when": False},
            {
                "block": [{"ansible.builtin.include_role": {"name": "inferack.rack.preflight"}}],
                "always": [{"name": "after", "ansible.builtin.shell": STATE, "changed_when": False}],
            },
        ],
    }
]


@dataclass
class Said:
    """What one node's part of a run came to."""

    failed: int
    changed: int
    before: str
    after: str
    words: str


@functools.cache
def preflight(*arguments: str) -> dict[str, Said]:
    """The role alone on every node at once, by the node's name."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as play:
        json.dump(PLAY, play)
        play.flush()
        done = subprocess.run(
            ["ansible-playbook", "-i", str(ROOT / "inventories/bench"), play.name, *arguments],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    told = json.loads(done.stdout[done.stdout.index("{") :])
    tasks = [(task["task"]["name"], task["hosts"]) for task in told["plays"][0]["tasks"]]

    def of(name: str, node: str) -> str:
        return next(hosts[node]["stdout"] for task, hosts in tasks if task == name)

    return {
        node: Said(
            counts["failures"],
            counts["changed"],
            of("before", node),
            of("after", node),
            " ".join(" ".join(str(hosts.get(node, {}).get("msg", "")) for _task, hosts in tasks).split()),
        )
        for node, counts in told["stats"].items()
    }


@pytest.fixture
def name(host) -> str:
    return host.check_output("hostname")


def test_it_passes_and_changes_nothing(name: str) -> None:
    said = preflight()[name]
    assert (said.changed, said.failed) == (0, 0), said
    assert said.after == said.before


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
def test_it_refuses_before_anything_changes(name: str, extra: str, words: list[str]) -> None:
    said = preflight("-e", extra)[name]
    assert (said.changed, said.failed) == (0, 1), said
    for word in words:
        assert word in said.words, said
    assert said.after == said.before
