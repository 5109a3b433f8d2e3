#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; there is no code to run on the node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rack_report
short_description: Write a rack's acceptance report
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Judges each node of a rack from the checks of this run and writes C(report.json), C(junit.xml) and C(index.html).
  - A node is accepted only when this run reached it, gathered all its checks, at least one passed and none failed. A node that
    the run left out is shown as not looked at, with what was last known of it beside; it is never accepted.
  - The files are replaced one by one, each in one step. The report that a different one replaces moves to
    C(history/<time>.json).
  - Values of variables named like secrets (C(password), C(api_key), C(token), …) of the rack's nodes, the values in O(secrets),
    and texts that have the form of a key are replaced by C([redacted]) wherever a node's words would show them.
  - This is an action plugin. It runs on the control node and opens no connection, so that it also works when no node answers.
options:
  path:
    description:
      - Folder on the control node; made when absent.
    type: path
    required: true
  rack:
    description:
      - Name of the rack.
    type: str
    required: true
  height:
    description:
      - Height of the rack in units.
    type: int
    default: 42
  nodes:
    description:
      - All nodes of the rack, as the filter P(inferack.rack.rack_nodes#filter) makes them.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node.
        type: str
        required: true
      rack_unit:
        description: Lowest unit that it occupies.
        type: int
      rack_units:
        description: Its height in units.
        type: int
        default: 1
      looked_at:
        description: This run had the node among its targets.
        type: bool
        default: true
      verified:
        description: All checks of the node were gathered in this run.
        type: bool
        default: false
      reached:
        description: The node answered whenever this run spoke to it.
        type: bool
        default: true
      phase:
        description: The last phase begun on the node.
        type: str
      failure:
        description: C(role), C(task) and C(sentence) of what failed.
        type: dict
      checks:
        description: The node's checks.
        type: list
        elements: dict
      gpus:
        description: The GPUs that are there, each with C(index), C(bus_id), C(product) and C(uuid).
        type: list
        elements: dict
      gpu_expected:
        description: C(count) and C(product) as the inventory has them.
        type: dict
      versions:
        description: Name of each component to its version.
        type: dict
  time:
    description:
      - When the run ended, ISO 8601 in UTC. Default is now.
    type: str
  history:
    description:
      - How many earlier reports to keep; V(0) keeps none.
    type: int
    default: 20
  secrets:
    description:
      - More values that must not be in the report.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - inferack.rack.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details:
      - The time of the report does not count as a change; it is brought up to date all the same. What the checks measured
        (how long an engine took to answer) does count.
"""

EXAMPLES = r"""
- name: Write the rack's report
  inferack.rack.rack_report:
    path: reports/rack-a
    rack: rack-a
    height: 42
    nodes: "{{ hostvars | inferack.rack.rack_nodes(groups['rack_a'], ansible_play_hosts_all) }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
accepted:
  description: Whether every node of the rack is accepted.
  returned: success
  type: bool
sentence:
  description: The rack's verdict in one sentence.
  returned: success
  type: str
  sample: "2 of 3 nodes accepted; failed: node-07."
nodes:
  description: Per node its C(status) (V(accepted), V(failed), V(unreachable) or V(not_looked_at)), C(accepted) and C(sentence).
  returned: success
  type: dict
path:
  description: The folder.
  returned: success
  type: str
files:
  description: The files of the report.
  returned: success
  type: list
  elements: str
"""
