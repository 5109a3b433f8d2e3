"""The module container_gpu with a docker and an nvidia-smi made for the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.modules import container_gpu

XML = """<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:07:00.0"><uuid>GPU-1</uuid></gpu></nvidia_smi_log>
"""


def docker(
    log: Path, run: str, image: str = "echo sha256:1", pull: str = "echo pulled", runtimes: str = '{"nvidia":{}}'
) -> str:
    """A docker that notes each call and answers as told."""
    return f"""echo "$*" >> {log}
case "$1" in
  info) echo '{{"Runtimes":{runtimes}}}' ;;
  image) {image} ;;
  pull) {pull} ;;
  run) {run} ;;
  rm) echo "$*" ;;
esac"""


ANSWER = f"echo NVIDIA_VISIBLE_DEVICES=all; cat <<'E'\n{XML}E\n"


def calls(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_a_container_that_sees_the_nodes_gpus(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    add_tool("docker", docker(log, ANSWER))
    add_tool("nvidia-smi", f"cat <<'E'\n{XML}E")
    result = run_module(container_gpu, {"image": "probe:1"})
    assert (result["failed"], result["changed"], result["worst"]) == (False, False, "pass")
    assert (result["method"], result["injection"]) == ("runtime", "hook")
    assert result["container"]["gpus"][0]["uuid"] == result["host"]["gpus"][0]["uuid"] == "GPU-1"
    assert not [call for call in calls(log) if call.startswith(("pull", "rm"))]


def test_check_mode_runs_nothing(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    add_tool("docker", docker(log, ANSWER))
    result = run_module(container_gpu, {"image": "probe:1"}, check_mode=True)
    assert (result["failed"], result["changed"], result["worst"]) == (False, False, "skip")
    assert not log.exists()


@pytest.mark.parametrize("report_only", [False, True])
def test_a_refused_container_is_explained_and_removed(
    run_module: Any, add_tool: Any, tmp_path: Path, report_only: bool
) -> None:
    log = tmp_path / "log"
    words = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
    add_tool("docker", docker(log, f"echo '{words}' >&2; exit 125", runtimes="{}"))
    result = run_module(container_gpu, {"image": "probe:1", "report_only": report_only})
    assert result["failed"] is not report_only
    assert result["method"] == "gpus"
    assert result["checks"][0]["found"] == "Docker without a GPU driver"
    name = next(call for call in calls(log) if call.startswith("run")).split("--name ")[1].split()[0]
    assert f"rm --force --volumes {name}" in calls(log)


def test_a_container_that_hangs_is_removed(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    add_tool("docker", docker(log, "sleep 60"))
    result = run_module(container_gpu, {"image": "probe:1", "timeout": 0.5})
    assert "no answer from the container within 0.5 s" in result["msg"]
    assert any(call.startswith("rm --force") for call in calls(log))


def test_an_image_without_a_shell_is_asked_directly(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    no_shell = 'exec: "sh": executable file not found in $PATH: unknown'
    run = f"case \"$*\" in *'--entrypoint sh'*) echo '{no_shell}' >&2; exit 127 ;; esac; cat <<'E'\n{XML}E\n"
    add_tool("docker", docker(log, run))
    add_tool("nvidia-smi", f"cat <<'E'\n{XML}E")
    result = run_module(container_gpu, {"image": "probe:1"})
    assert (result["worst"], result["injection"]) == ("pass", None)


@pytest.mark.parametrize(
    ("pull", "answer", "changed", "words"),
    [
        ("missing", "echo probe:1", True, None),
        ("missing", "echo 'unauthorized: authentication required' >&2; exit 1", False, "a registry that refuses the login"),
        ("never", "exit 1", False, "no image probe:1 on the node"),
    ],
)
def test_an_image_that_is_not_there(
    run_module: Any, add_tool: Any, tmp_path: Path, pull: str, answer: str, changed: bool, words: str | None
) -> None:
    log = tmp_path / "log"
    add_tool("docker", docker(log, ANSWER, image="echo 'Error: No such image: probe:1' >&2; exit 1", pull=answer))
    result = run_module(container_gpu, {"image": "probe:1", "pull": pull})
    assert result["changed"] is changed
    assert result["failed"] is (words is not None)
    if words:
        assert words in result["msg"]
        assert not [call for call in calls(log) if call.startswith("run")]
    assert bool([call for call in calls(log) if call.startswith("pull")]) is (pull == "missing")


def test_no_docker(run_module: Any, add_tool: Any) -> None:
    assert "no docker command on this node" in run_module(container_gpu, {"image": "probe:1"})["msg"]


def test_nvidia_smi_that_fails_inside(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    text = "Failed to initialize NVML: Unknown Error"
    add_tool("docker", docker(tmp_path / "log", f"echo NVIDIA_VISIBLE_DEVICES=all; echo '{text}'; exit 255"))
    result = run_module(container_gpu, {"image": "probe:1"})
    assert "lost access to its devices" in result["msg"]
