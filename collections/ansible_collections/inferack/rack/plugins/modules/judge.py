#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; there is no code to run on the node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: judge
short_description: Keep checks as a host fact and fail with one sentence when one fails
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Takes checks that a role computed itself, merges them into the fact C(inferack_checks) of the host, and fails with the
    sentence of the first failing check.
  - The fact is found as C(ansible_facts['inferack_checks']); two checks with the same RV(checks[].id) and
    RV(checks[].subject) are one check, and the newer one counts.
  - A failed task returns its RV(checks) but leaves the fact as it was, since Ansible stores no facts of a failed task. Where
    a failure must be kept as well, judge it in a C(rescue) with O(report_only=true).
  - This is an action plugin. It runs on the control node and opens no connection, so that it also works for a host that
    cannot be reached.
options:
  checks:
    description:
      - The checks, each a dictionary with C(id), C(status) (V(pass), V(warn), V(fail) or V(skip)) and, where they apply,
        C(found), C(expected), C(remedy), C(evidence) and C(subject).
    type: list
    elements: dict
    required: true
  report_only:
    description:
      - End successful although a check fails, and keep the failing checks in the fact.
    type: bool
    default: false
extends_documentation_fragment:
  - inferack.rack.attributes
attributes:
  check_mode:
    support: full
    details: It changes nothing, so it does the same in check mode.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Refuse a node whose /boot is too small for a second initramfs
  inferack.rack.judge:
    checks:
      - id: node.disk
        status: "{{ 'pass' if ansible_facts['inferack_node'].disk['/boot'] > 209715200 else 'fail' }}"
        found: "{{ ansible_facts['inferack_node'].disk['/boot'] // 1048576 }} MiB free in /boot"
        expected: at least 200 MiB
        remedy: Remove old kernels, then run again.
        subject: /boot

- name: Name the cause of a failed task
  block:
    - name: Load the driver
      community.general.modprobe:
        name: nvidia
  rescue:
    - name: Say why the driver cannot be loaded
      inferack.rack.judge:
        checks:
          - id: driver.module
            status: fail
            found: "{{ ansible_failed_result.msg }}"
            expected: module nvidia loaded
            remedy: Read the kernel's messages with dmesg and rebuild the module with DKMS.
"""

RETURN = r"""
checks:
  description: The checks that were given, complete with every key.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Stable name of the check.
      type: str
      sample: gpu.count
    status:
      description: One of V(pass), V(warn), V(fail) and V(skip).
      type: str
    found:
      description: What was seen; null when nothing could be read.
      type: raw
    expected:
      description: What would have passed; null without an expectation.
      type: raw
    remedy:
      description: What to do, one imperative sentence; empty on pass.
      type: str
    evidence:
      description: Lines that prove what was found.
      type: list
      elements: str
    subject:
      description: What the check is about when a node has several.
      type: str
worst:
  description: The most harmful status among the checks, V(skip) when there are none.
  returned: always
  type: str
  sample: pass
msg:
  description: The sentence of the first failing check and how many more there are.
  returned: when a check fails
  type: str
  sample: "gpu.count: found 3, expected 4; reseat the missing GPU, then run again."
ansible_facts:
  description: C(inferack_checks), all checks of the host so far.
  returned: when no check fails, or with O(report_only=true)
  type: dict
"""
