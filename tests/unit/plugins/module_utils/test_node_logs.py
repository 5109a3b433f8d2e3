"""Collecting from a node made of files, and of tools and an engine that answer from a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _docker_socket, _node_logs
from ansible_collections.inferack.rack.plugins.module_utils._node_logs import Collector, collect
from ansible_collections.inferack.rack.plugins.module_utils._run import Output


class Tools:
    """Answers by the first words of a command, and keeps what was asked."""

    def __init__(self, answers: dict[str, Output]) -> None:
        self.answers, self.asked, self.limits = answers, [], []  # type: ignore[var-annotated]

    def __call__(self, command: Sequence[str], timeout: float) -> Output:
        line = " ".join(command)
        self.asked.append(line)
        self.limits.append(timeout)
        for start, answer in self.answers.items():
            if line.startswith(start):
                return answer
        return Output(None, problem="missing")


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def texts(
    root: Path, *sources: str, answers: dict[str, Output] | None = None, **options: Any
) -> tuple[dict[str, str], Collector, Tools]:
    tools = Tools(answers or {})
    collector = Collector(root=root, run=tools, docker_socket=str(root / "docker.sock"), **options)
    return {text.name: text.text for text in collect(collector, sources)}, collector, tools


def test_the_kernels_log_of_this_boot(tmp_path: Path) -> None:
    found, _collector, tools = texts(tmp_path, "kernel", answers={"journalctl -k -b": Output(0, "NVRM: a\n")})
    assert found == {"kernel log": "NVRM: a\n"}
    assert tools.asked == ["journalctl -k -b --no-pager -q -n 20000"]


def test_dmesg_where_the_journal_has_nothing(tmp_path: Path) -> None:
    answers = {"journalctl": Output(1, "", "No journal files were found."), "dmesg": Output(0, "NVRM: b\n")}
    assert texts(tmp_path, "kernel", answers=answers)[0] == {"kernel log": "NVRM: b\n"}
    found, collector, _tools = texts(tmp_path, "kernel", answers={"dmesg": Output(1, "", "dmesg: Operation not permitted")})
    assert found == {}
    assert {"name": "kernel", "why": "dmesg: Operation not permitted"} in collector.skipped


def test_since(tmp_path: Path) -> None:
    _found, _collector, tools = texts(tmp_path, "docker", answers={"journalctl": Output(0, "x")}, since="1 hour ago")
    assert "--since 1 hour ago" in tools.asked[0]
    assert "-u docker -u containerd" in tools.asked[0]


def test_nvidia_smi_that_hangs_is_noted(tmp_path: Path) -> None:
    found, collector, _tools = texts(tmp_path, "smi", answers={"nvidia-smi": Output(None, "", "", 20.0, "timeout")})
    assert found == {}
    assert collector.skipped == [{"name": "nvidia-smi", "why": "nvidia-smi: timeout after 20 s"}]
    found, _collector, _tools = texts(tmp_path, "smi", answers={"nvidia-smi": Output(9, "", "NVIDIA-SMI has failed")})
    assert "NVIDIA-SMI has failed" in found["nvidia-smi"]


def test_no_tools_at_all(tmp_path: Path) -> None:
    found, collector, _tools = texts(tmp_path, *_node_logs.SOURCES)
    assert found == {}
    assert {item["name"] for item in collector.skipped} == {"kernel", "nvidia-smi", "services", "docker", "containers"}


def test_time_is_bounded(tmp_path: Path) -> None:
    now = iter([0.0, 1.0, 8.0, 12.0, 13.0, 14.0])
    tools = Tools({"journalctl": Output(0, "x"), "nvidia-smi": Output(0, "y")})
    collector = Collector(root=tmp_path, run=tools, timeout=10.0, clock=lambda: next(now))
    collect(collector, ["kernel", "smi", "services"])
    assert tools.limits == [9.0, 2.0]
    assert collector.skipped == [{"name": "services", "why": "no time left of 10 s"}]


def test_size_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, {"var/log/nvidia-installer.log": "a" * 5000 + "the end"})
    found, _collector, _tools = texts(
        tmp_path, "build", "kernel", answers={"journalctl": Output(0, "b" * 5000 + "the end")}, most=100
    )
    assert {name: (len(text), text[-7:]) for name, text in found.items()} == {
        "/var/log/nvidia-installer.log": (100, "the end"),
        "kernel log": (100, "the end"),
    }


def test_builds_that_did_not_end(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "var/lib/dkms/nvidia/580.95.05/build/make.log": "error",
            "var/lib/dkms/nvidia/535.1/6.1.0/x86_64/log/make.log": "an old one that ended well",
            "var/lib/dkms/zfs/2.1/build/make.log": "not ours",
            "var/log/apt/history.log": "Commandline: apt",
        },
    )
    found, _collector, _tools = texts(tmp_path, "build", "packages")
    assert set(found.values()) == {"error", "Commandline: apt"}


RELEASE = {"proc/sys/kernel/osrelease": "6.1.0-30-amd64\n", "var/lib/dkms/nvidia/580.95.05/source/dkms.conf": ""}
SPEC = "kind: nvidia.com/gpu\n- hostPath: /usr/lib/libcuda.so.{}\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({**RELEASE, "lib/modules/6.1.0-31-amd64/build/Makefile": ""}, "headers of 6.1.0-31-amd64"),
        (RELEASE, "Your kernel headers for kernel 6.1.0-30-amd64 cannot be found"),
        ({**RELEASE, "lib/modules/6.1.0-30-amd64/build/Makefile": ""}, ""),
        ({**RELEASE, "sys/module/nvidia/version": "580.95.05"}, ""),  # built long ago, and loaded
        ({"proc/sys/kernel/osrelease": "6.1.0\n"}, ""),  # nothing to build on this node
        (
            {"sys/module/nvidia/version": "580.95.05", "etc/cdi/nvidia.yaml": SPEC.format("570.1.2")},
            "/etc/cdi/nvidia.yaml is for driver 570.1.2",
        ),
        ({"sys/module/nvidia/version": "580.95.05", "etc/cdi/nvidia.yaml": SPEC.format("580.95.05")}, ""),
        (
            {
                "sys/module/nvidia/version": "580.95.05",
                "etc/cdi/nvidia.yaml": SPEC.format("570.1.2"),
                "var/run/cdi/nvidia.yaml": SPEC.format("580.95.05"),
            },
            "",  # the one under /var/run counts
        ),
    ],
)
def test_what_the_nodes_files_say(tmp_path: Path, files: dict[str, str], said: str) -> None:
    write(tmp_path, files)
    found, _collector, _tools = texts(tmp_path, "node")
    assert said in found.get("node", "")
    assert bool(found) is bool(said)


def test_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"Names": ["/runs"], "State": "running", "Created": 9},
        {"Names": ["/old"], "State": "exited", "Created": 1},
        {"Names": ["/new"], "State": "exited", "Created": 5},
    ]
    monkeypatch.setattr(_docker_socket, "call", lambda *_args, **_options: json.dumps(rows).encode())
    monkeypatch.setattr(
        _docker_socket,
        "container",
        lambda _path, name: _docker_socket.Container(name, "exited", 137, 0, "no GPU" if name == "new" else "", "i"),
    )
    monkeypatch.setattr(_docker_socket, "logs", lambda _path, name, _lines, before_s: f"log of {name}")
    found, _collector, _tools = texts(tmp_path, "containers")
    assert list(found) == ["container new", "container old", "container runs"]
    assert found["container new"].startswith("no GPU\nexit code 137")
    assert found["container new"].endswith("log of new")
    assert list(texts(tmp_path, "containers", containers=["runs"])[0]) == ["container runs"]
    monkeypatch.setattr(_docker_socket, "container", lambda *_args: None)
    _found, collector, _tools = texts(tmp_path, "containers", containers=["gone"])
    assert collector.skipped == [{"name": "container gone", "why": "no such container"}]
