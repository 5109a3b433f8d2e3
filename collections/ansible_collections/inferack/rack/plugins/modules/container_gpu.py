#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Prove that a container sees the GPUs that the node has."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_gpu
short_description: Prove that a container sees the GPUs that the node has
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Runs C(nvidia-smi -q -x) in a container and on the node, and compares the GPUs by UUID, their number, and the driver.
  - Says whether the devices came in by the toolkit's hook or by CDI, and notices a CDI specification that was written for
    another driver.
  - Names cause and remedy for the words with which Docker and the container toolkit refuse.
  - The container has no network and is removed afterwards, whatever happens.
  - Uses the C(docker) command line and needs no Python library on the node.
options:
  image:
    description:
      - An image with a C library; nvidia-smi itself is brought in by the container toolkit.
    type: str
    required: true
  method:
    description:
      - How to ask for GPUs. V(runtime) is C(--runtime=nvidia), V(gpus) is C(--gpus), V(cdi) is C(--device nvidia.com/gpu=…).
      - V(auto) takes the runtime where Docker has it, CDI where Docker lists such devices, else C(--gpus).
    type: str
    choices: [auto, runtime, gpus, cdi]
    default: auto
  devices:
    description:
      - The GPUs to ask for, by UUID or index, divided by commas.
    type: str
    default: all
  expected_count:
    description:
      - How many GPUs the container should see. By default as many as the node's nvidia-smi shows.
    type: int
  pull:
    description:
      - Pull the image when it is not there. With V(never) that is a failure.
    type: str
    choices: [missing, never]
    default: missing
  pull_timeout:
    description:
      - The longest time that the pull may take, in seconds.
    type: float
    default: 1800
  timeout:
    description:
      - The longest time that the container may take, in seconds.
    type: float
    default: 120
  docker:
    description:
      - The docker command, looked up in PATH when it has no folder.
    type: str
    default: docker
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.checks
attributes:
  check_mode:
    support: partial
    details: Runs no container; the checks are skipped.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: Reports a change only when the image was pulled.
"""

EXAMPLES = r"""
- name: Prove that containers see all GPUs
  inferack.rack.container_gpu:
    image: ubuntu:24.04

- name: Prove that CDI works too, with one GPU
  inferack.rack.container_gpu:
    image: ubuntu:24.04
    method: cdi
    devices: "0"
    expected_count: 1
"""

RETURN = r"""
method:
  description: How GPUs were asked for.
  returned: always
  type: str
  sample: runtime
injection:
  description: How they came in, V(hook) or V(cdi); null when the container did not say.
  returned: always
  type: str
command:
  description: The command that ran the container.
  returned: when a container was run
  type: list
  elements: str
container:
  description: What nvidia-smi said in the container, in the structure that M(inferack.rack.nvidia_smi) documents.
  returned: when a container was run
  type: dict
host:
  description: What nvidia-smi said on the node.
  returned: when a container was run
  type: dict
seconds:
  description: How long the container took.
  returned: when a container was run
  type: float
checks:
  description: C(container.gpu_visible), C(container.gpu_uuid) and C(container.gpu_driver).
  returned: always
  type: list
  elements: dict
worst:
  description: The most harmful status among the checks.
  returned: always
  type: str
msg:
  description: The first failing check in one sentence.
  returned: when a check fails
  type: str
"""

import glob
import json
import uuid
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _container_gpu, _run, _smi_reading
from ansible_collections.inferack.rack.plugins.module_utils._checks import REPORT_ONLY, SKIP, Check, finish


def docker_info(docker: str) -> dict[str, Any]:
    """Docker's own answer; empty when it gives none."""
    answer = _run.run([docker, "info", "--format", "{{json .}}"], 30)
    try:
        info = json.loads(answer.out)
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}


def spec_texts() -> list[str]:
    """The CDI specifications of the node. Docker searches both folders and the one in /var/run wins."""
    texts: list[str] = []
    for path in [name for pattern in ("/etc/cdi/*", "/var/run/cdi/*") for name in sorted(glob.glob(pattern))]:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        if "nvidia.com/gpu" in text:
            texts = [*texts, text] if not path.startswith("/var/run") else [text]
    return texts


def fetch(docker: str, image: str, pull: str, timeout: float) -> tuple[bool, _run.Output | None]:
    """Have the image on the node: whether it was pulled, and the output of what failed."""
    present = _run.run([docker, "image", "inspect", "--format", "{{.Id}}", image], 30)
    if present.ok or present.problem:
        return False, present if present.problem else None
    if pull == "never" or "no such image" not in present.err.lower():
        return False, present
    pulled = _run.run([docker, "pull", "--quiet", image], timeout)
    return pulled.ok, None if pulled.ok else pulled


def run_container(options: dict[str, Any], method: str) -> tuple[list[str], _run.Output]:
    """Run the container, without a shell where the image has none, and make sure that nothing stays behind."""
    line: list[str] = []
    output = _run.Output(None)
    for shell in (True, False):
        name = f"inferack-probe-{uuid.uuid4().hex[:12]}"
        line = _container_gpu.command(options["docker"], name, options["image"], method, options["devices"], shell)
        output = _run.run(line, options["timeout"])
        if not output.ok:
            _run.run([options["docker"], "rm", "--force", "--volumes", name], 60)
        if not _container_gpu.lacks_shell(output.err):
            break
    return line, output


def main() -> None:
    """Ask in a container, ask on the node, compare."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "method": {"type": "str", "choices": ["auto", *_container_gpu.METHODS], "default": "auto"},
            "devices": {"type": "str", "default": "all"},
            "expected_count": {"type": "int"},
            "pull": {"type": "str", "choices": ["missing", "never"], "default": "missing"},
            "pull_timeout": {"type": "float", "default": 1800.0},
            "timeout": {"type": "float", "default": 120.0},
            "docker": {"type": "str", "default": "docker"},
            **REPORT_ONLY,
        },
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    report_only: bool = options["report_only"]
    if module.check_mode:
        names = (_container_gpu.VISIBLE, _container_gpu.UUID, _container_gpu.DRIVER)
        skipped = [Check(name, SKIP, remedy="Run without check mode, which runs no container") for name in names]
        finish(module, skipped, report_only, method=options["method"], injection=None)
    method = _container_gpu.choose_method(options["method"], docker_info(options["docker"]))
    pulled, trouble = fetch(options["docker"], options["image"], options["pull"], options["pull_timeout"])
    if trouble is not None:
        check = _container_gpu.failed(trouble.err + trouble.out, trouble.rc, trouble.problem, options["pull_timeout"])
        finish(module, [check], report_only, method=method, injection=None)
    line, output = run_container(options, method)
    inside = _smi_reading.read(output.out)
    own = _smi_reading.read(_run.run(["nvidia-smi", "-q", "-x"], 60).out)
    how = _container_gpu.injection(output.out, method)
    if output.ok and inside.gpus:
        specs = _container_gpu.spec_versions(spec_texts()) if how == "cdi" else []
        checks = _container_gpu.compare(inside, own, options["expected_count"], how, specs)
    else:
        checks = [_container_gpu.failed(output.err + "\n" + output.out, output.rc, output.problem, options["timeout"])]
    finish(
        module,
        checks,
        report_only,
        changed=pulled,
        method=method,
        injection=how,
        command=line,
        container=_smi_reading.as_dict(inside),
        host=_smi_reading.as_dict(own),
        seconds=output.seconds,
    )


if __name__ == "__main__":
    main()
