#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read nvidia-smi and judge what it says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_smi
short_description: Read nvidia-smi and judge it against what the node should have
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Runs C(nvidia-smi -q -x) and returns what it says in one structure for all versions of the document type.
  - Judges whether it answers at all and, if not, why; how many GPUs answer; their product, state, memory errors and memory;
    and the driver's version.
  - What is V(N/A), deprecated or absent is null and never makes a check fail.
  - A call that hangs, as it does when a GPU fell off the bus, is killed after O(timeout) and reported.
options:
  expected:
    description:
      - What the node should have. Where nothing is said, nothing is expected.
    type: dict
    default: {}
    suboptions:
      count:
        description: How many GPUs answer.
        type: int
      product:
        description: Words that must all be in the name of each GPU, such as V(H100) or V(NVIDIA L40S).
        type: str
      driver_version:
        description: The driver's version, or its first numbers, such as V(580).
        type: str
      memory_mib:
        description: Nominal memory of each GPU in MiB; a few percent less are accepted, since part of it is reserved.
        type: int
      ecc:
        description: Whether ECC must be on (V(true)) or off.
        type: bool
      bus_ids:
        description: Where the PCI bus has GPUs, so that a missing one can be named.
        type: list
        elements: str
  path:
    description:
      - The program, looked up in PATH when it has no folder.
    type: str
    default: nvidia-smi
  timeout:
    description:
      - The longest time it may take, in seconds.
    type: float
    default: 60
  text:
    description:
      - Judge this output instead of running anything. All forms are understood, C(-q -x), C(-q), the table, CSV with a
        heading, and C(-L).
    type: str
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.checks
  - inferack.rack.attributes.reads
"""

EXAMPLES = r"""
- name: Prove that the GPUs are the ones that were bought
  inferack.rack.nvidia_smi:
    expected:
      count: 8
      product: H100
      driver_version: "580"
      bus_ids: "{{ ansible_facts['inferack_node'].gpus | map(attribute='bus_id') | list }}"

- name: Look without failing
  inferack.rack.nvidia_smi:
    report_only: true
  register: smi

- name: Judge what someone sent
  inferack.rack.nvidia_smi:
    text: "{{ lookup('ansible.builtin.file', 'nvidia-smi.xml') }}"
  delegate_to: localhost
"""

RETURN = r"""
reading:
  description: What nvidia-smi said; null where it said nothing.
  returned: always
  type: dict
  contains:
    form:
      description: V(xml), V(query), V(table), V(csv), V(list), or V(none) when the output was none of these.
      type: str
    driver_version:
      description: The driver's version.
      type: str
      sample: 580.95.05
    cuda_version:
      description: The newest CUDA that the driver runs.
      type: str
    attached:
      description: How many GPUs the driver says are attached.
      type: int
    partial:
      description: The output ends in the middle.
      type: bool
    corrupted:
      description: Bus ids of GPUs whose infoROM is corrupted.
      type: list
      elements: str
    gpus:
      description:
        - Each GPU, with C(bus_id), C(index), C(minor), C(product), C(architecture), C(uuid), C(serial), C(vbios),
          C(memory_mib), C(memory_used_mib), C(memory_free_mib), C(temperature_c), C(power_w), C(power_limit_w),
          C(utilization_percent), C(persistence), C(performance_state), C(virtualization), C(ecc), C(retired), C(remapped),
          C(repairs), C(mig), C(fabric), C(link), C(throttle), C(recovery) and C(troubles).
      type: list
      elements: dict
exit_status:
  description: Exit status of nvidia-smi; null when it did not run or was killed.
  returned: always
  type: int
seconds:
  description: How long it took.
  returned: always
  type: float
checks:
  description:
    - C(driver.smi), C(gpu.count), C(gpu.product), C(driver.version), and for each GPU C(gpu.state), C(gpu.ecc.uncorrectable)
      and C(gpu.memory), with O(expected.ecc) also C(gpu.ecc.mode).
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

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _nvidia_smi, _run, _smi_reading
from ansible_collections.inferack.rack.plugins.module_utils._checks import REPORT_ONLY, finish


def call(path: str, timeout: float) -> tuple[_nvidia_smi.Outcome, float]:
    """Run nvidia-smi: how it ended with all it printed, and the seconds it took.

    Its words of failure are on standard output in most versions, on standard error in some.
    """
    output = _run.run([path, "-q", "-x"], timeout)
    text = output.out + ("\n" + output.err if output.err.strip() else "")
    return _nvidia_smi.Outcome(output.rc, output.problem, text, timeout), output.seconds


def main() -> None:
    """Read and judge."""
    module = AnsibleModule(
        argument_spec={
            "expected": {
                "type": "dict",
                "default": {},
                "options": {
                    "count": {"type": "int"},
                    "product": {"type": "str"},
                    "driver_version": {"type": "str"},
                    "memory_mib": {"type": "int"},
                    "ecc": {"type": "bool"},
                    "bus_ids": {"type": "list", "elements": "str"},
                },
            },
            "path": {"type": "str", "default": "nvidia-smi"},
            "timeout": {"type": "float", "default": 60.0},
            "text": {"type": "str"},
            **REPORT_ONLY,
        },
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    given = {key: value for key, value in options["expected"].items() if value not in (None, "")}
    expected = _nvidia_smi.Expected(**given)
    if options["text"] is not None:
        outcome, seconds = _nvidia_smi.Outcome(None, "", options["text"]), 0.0
    else:
        outcome, seconds = call(options["path"], options["timeout"])
    reading = _smi_reading.read(outcome.text)
    checks = _nvidia_smi.judge(reading, outcome, expected)
    # Not under the name rc: Ansible fails every task whose rc is not 0, and here that is for the checks to say.
    result = {"reading": _smi_reading.as_dict(reading), "exit_status": outcome.rc, "seconds": seconds}
    finish(module, checks, options["report_only"], **result)


if __name__ == "__main__":
    main()
