"""Asking for GPUs in a container: the command, the words of failure, the comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _checks, _container_gpu
from ansible_collections.inferack.rack.plugins.module_utils._smi_reading import Gpu, Reading

HOOK = "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: "
CLI = "runc create failed: unable to start container process: error during container init: error running prestart hook #0: exit status 1, stdout: , stderr: nvidia-container-cli: "


@pytest.mark.parametrize(
    ("wanted", "info", "method"),
    [
        ("auto", {"Runtimes": {"nvidia": {}, "runc": {}}}, "runtime"),
        ("auto", {"Runtimes": {"runc": {}}}, "gpus"),
        ("auto", {"Runtimes": {"runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}, "cdi"),
        ("auto", {"Runtimes": None, "DiscoveredDevices": None}, "gpus"),
        ("auto", {}, "gpus"),
        ("cdi", {"Runtimes": {"nvidia": {}}}, "cdi"),
    ],
)
def test_method(wanted: str, info: dict[str, Any], method: str) -> None:
    assert _container_gpu.choose_method(wanted, info) == method


@pytest.mark.parametrize(
    ("method", "devices", "part"),
    [
        ("runtime", "all", ["--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=all"]),
        ("runtime", "0,1", ["--env", "NVIDIA_VISIBLE_DEVICES=0,1"]),
        ("gpus", "all", ["--gpus", "all"]),
        ("gpus", "0,1", ["--gpus", '"device=0,1"']),
        ("cdi", "0,1", ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"]),
    ],
)
@pytest.mark.parametrize("shell", [True, False])
def test_command(method: str, devices: str, part: list[str], shell: bool) -> None:
    line = _container_gpu.command("docker", "probe", "image:1", method, devices, shell)
    assert line[:5] == ["docker", "run", "--rm", "--name", "probe"]
    assert line[line.index("--network") + 1] == "none"
    text = "\n".join(line)
    assert "\n".join(part) in text
    after = line[line.index("image:1") + 1 :]
    assert after == (["-c", after[1]] if shell else ["-q", "-x"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "Docker without a GPU driver",
        ),
        (
            'Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]]',
            "Docker without a GPU driver",
        ),
        (
            'docker: Error response from daemon: could not select device driver "cdi" with capabilities: []',
            "a Docker without CDI",
        ),
        ("docker: Error response from daemon: unknown or invalid runtime name: nvidia.", "no runtime nvidia"),
        ("docker: Error response from daemon: Unknown runtime specified nvidia.", "no runtime nvidia"),
        (
            HOOK + CLI + "requirement error: unsatisfied condition: cuda>=12.9, please update your driver",
            "an image that needs cuda>=12.9",
        ),
        (HOOK + CLI + "requirement error: unsatisfied condition: brand = tesla: unknown", "an image that needs brand = tesla"),
        (HOOK + CLI + "initialization error: nvml error: driver not loaded: unknown", "no loaded driver"),
        (HOOK + CLI + "initialization error: nvml error:\ndriver/library version mismatch: unknown", "different versions"),
        (
            HOOK + CLI + "initialization error: nvml error: insufficient permissions: unknown.",
            "no permission for the device nodes",
        ),
        (
            HOOK
            + CLI
            + "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file",
            "no libnvidia-ml.so.1",
        ),
        (HOOK + CLI + "device error: GPU-1234: unknown device: unknown", "a GPU that the driver does not have"),
        (HOOK + CLI + "initialization error: driver rpc error: timed out: unknown", "takes too long"),
        (HOOK + CLI + "initialization error: nvcgo rpc error: timed out", "busy host"),
        (
            "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all: unknown",
            "no CDI specification with nvidia.com/gpu=all",
        ),
        (
            "docker: Error response from daemon: CDI device injection failed: failed to inject devices: failed to stat CDI host device",
            "does not fit",
        ),
        (HOOK + 'exec: "nvidia-smi": executable file not found in $PATH: unknown', "no nvidia-smi in the container"),
        ("sh: nvidia-smi: not found", "no nvidia-smi in the container"),
        ("exec: nvidia-smi: not found", "no nvidia-smi in the container"),
        (
            'unable to retrieve OCI runtime error: exec: "nvidia-container-runtime": executable file not found in $PATH',
            "no nvidia-container-runtime",
        ),
        ("exec: fork/exec /usr/bin/nvidia-container-runtime: no such file or directory", "no nvidia-container-runtime"),
        ("Failed to initialize NVML: Unknown Error", "lost access to its devices"),
        ("exec /usr/bin/sh: exec format error", "another processor architecture"),
        ("Error response from daemon: No such image: probe:1", "no image probe:1 on the node"),
        (
            "Error response from daemon: no such image: nope:latest: No such image: nope:latest",
            "no image nope:latest on the node",
        ),
        ("Error response from daemon: manifest for r/x:1 not found: manifest unknown", "no such image in the registry"),
        ("Error response from daemon: pull access denied for x, repository does not exist", "refuses the login"),
        ("Get https://r/v2/: x509: certificate signed by unknown authority", "cannot be reached"),
        (
            "Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
            "no permission for Docker",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            "no running Docker",
        ),
        (
            'error gathering device information while adding custom device "/dev/nvidia-uvm": lstat /dev/nvidia-uvm: no such file',
            "no device node /dev/nvidia-uvm",
        ),
    ],
)
def test_words_of_docker(text: str, found: str) -> None:
    words = _container_gpu.explain(text)
    assert words is not None
    assert found in words.found
    assert words.remedy
    check = _container_gpu.failed(text, 125, "", 60)
    assert (check.id, check.status) == ("container.gpu_visible", "fail")
    assert found in _checks.sentence(check)


def test_requirements_in_the_toolkits_command_line_are_no_error() -> None:
    text = (
        "exit status 1, stdout: , stderr: exec command: [/usr/bin/nvidia-container-cli --load-kmods configure --require=cuda>=10.0 "
        'brand=tesla,driver>=384 --pid=5 /var/x]\\\\\\\\nnvidia-container-cli: initialization error: driver error: timed out\\\\\\\\n\\\\\\"'
    )
    words = _container_gpu.explain(text)
    assert words is not None
    assert "takes too long" in words.found


@pytest.mark.parametrize(
    ("text", "rc", "problem", "words"),
    [
        ("", None, "timeout", "no answer from the container within 60 s"),
        ("", None, "missing", "no docker command"),
        ("", 1, "", "exit status 1 (nothing said)"),
        ("surprise\n", 3, "", "exit status 3 (surprise)"),
        ("NVIDIA_VISIBLE_DEVICES=all\nNo devices were found\n", 6, "", "no GPU, though the driver is loaded in the container"),
    ],
)
def test_other_failures(text: str, rc: int | None, problem: str, words: str) -> None:
    assert words in _checks.sentence(_container_gpu.failed(text, rc, problem, 60))


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ('exec: "sh": executable file not found in $PATH: unknown', True),
        ('exec: \\"sh\\": executable file not found in $PATH', True),
        ('exec: "nvidia-smi": executable file not found in $PATH', False),
        ("sh: nvidia-smi: not found", False),
    ],
)
def test_an_image_without_a_shell(text: str, lacks: bool) -> None:
    assert _container_gpu.lacks_shell(text) is lacks


@pytest.mark.parametrize(
    ("text", "method", "how"),
    [
        ("NVIDIA_VISIBLE_DEVICES=void\n<?xml", "runtime", "cdi"),
        ("NVIDIA_VISIBLE_DEVICES=all\n<?xml", "runtime", "hook"),
        ("NVIDIA_VISIBLE_DEVICES=\n<?xml", "gpus", "hook"),
        ("NVIDIA_VISIBLE_DEVICES=all\n<?xml", "cdi", "cdi"),
        ("<nvidia_smi_log>", "cdi", "cdi"),
        ("<nvidia_smi_log>", "runtime", None),
        ("", "cdi", None),
    ],
)
def test_injection(text: str, method: str, how: str | None) -> None:
    assert _container_gpu.injection(text, method) == how


def test_versions_in_cdi_specifications() -> None:
    text = "hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\nhostPath: /usr/lib64/libnvidia-ml.so.580.95.05\nlibcuda.so.1\n"
    assert _container_gpu.spec_versions([text, "libcuda.so.550.76"]) == ["550.76", "580.95.05"]
    assert _container_gpu.spec_versions([]) == []


ONE, TWO = Gpu(bus_id="0000:07:00.0", uuid="GPU-1"), Gpu(bus_id="0000:41:00.0", uuid="GPU-2")
HOST = Reading(form="xml", driver_version="580.95.05", gpus=[ONE, TWO])


@pytest.mark.parametrize(
    ("inside", "host", "count", "how", "specs", "statuses", "words"),
    [
        (HOST, HOST, None, "hook", [], "pass pass pass", ""),
        (HOST, HOST, 2, "cdi", ["580.95.05"], "pass pass pass", ""),
        (replace(HOST, gpus=[ONE]), HOST, None, "hook", [], "fail fail pass", "found 1 GPU in the container, expected 2"),
        (replace(HOST, gpus=[ONE]), HOST, 1, "hook", [], "pass pass pass", ""),
        (replace(HOST, gpus=[ONE]), HOST, None, "cdi", [], "fail fail pass", "nvidia-ctk cdi generate"),
        (
            replace(HOST, gpus=[ONE, replace(TWO, uuid="GPU-9")]),
            HOST,
            None,
            "hook",
            [],
            "pass fail pass",
            "GPU-9, which the node does not",
        ),
        (replace(HOST, driver_version="550.76"), HOST, None, "hook", [], "pass pass fail", "found 550.76, expected 580.95.05"),
        (HOST, HOST, None, "cdi", ["550.76"], "pass pass fail", "a CDI specification for 550.76"),
        (HOST, HOST, None, "hook", ["550.76"], "pass pass pass", ""),
        (replace(HOST, gpus=[]), HOST, None, "hook", [], "fail skip pass", "found 0 GPUs"),
        (HOST, Reading(), None, "hook", [], "pass skip skip", ""),
        (HOST, Reading(), 4, "hook", [], "fail skip skip", "expected 4"),
    ],
)
def test_comparison(
    inside: Reading, host: Reading, count: int | None, how: str, specs: list[str], statuses: str, words: str
) -> None:
    checks = _container_gpu.compare(inside, host, count, how, specs)
    assert [check.id for check in checks] == ["container.gpu_visible", "container.gpu_uuid", "container.gpu_driver"]
    assert " ".join(check.status for check in checks) == statuses
    assert any(words in _checks.sentence(check) for check in checks)
    for check in checks:
        assert (check.status == "fail") <= bool(check.remedy)


@given(st.text(), st.one_of(st.none(), st.integers(0, 255)))
def test_no_words_break_the_reader(text: str, rc: int | None) -> None:
    _checks.sentence(_container_gpu.failed(text, rc, "", 1.0))
    _container_gpu.injection(text, "runtime")
    _container_gpu.lacks_shell(text)
