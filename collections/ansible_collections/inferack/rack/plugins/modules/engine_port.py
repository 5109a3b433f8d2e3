#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say whether an engine's ports are free, or who holds them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_port
short_description: Prove that an engine's TCP ports are free, or name who holds them
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Looks at the kernel's table of listening sockets, the processes that hold them, and the ports that containers publish.
  - A port that is held by O(container) itself is free for it.
options:
  ports:
    description: The ports.
    type: list
    elements: int
    required: true
  container:
    description: The container that is to publish them.
    type: str
    required: true
  address:
    description: The address that they are to be published on.
    type: str
    default: 0.0.0.0
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.checks
  - inferack.rack.attributes.reads
  - inferack.rack.attributes.docker_socket
"""

EXAMPLES = r"""
- name: Refuse ports that someone else holds
  inferack.rack.engine_port:
    ports: [8000, 8001, 8002]
    container: triton
"""

RETURN = r"""
taken:
  description: The ports that someone else holds, as strings, and who.
  returned: always
  type: dict
  sample: {"8000": "python3 (pid 812)"}
checks:
  description: C(engine.port) for each port.
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

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _docker_socket, _ports
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, REPORT_ONLY, Check, finish


def judge(port: int, holder: str | None, container: str) -> Check:
    """engine.port of one port."""
    subject = f"port {port}"
    if holder is None:
        return Check("engine.port", PASS, found="free", expected=f"free for container {container}", subject=subject)
    remedy = f"Stop {holder}, or give {container} another port, and run again."
    return Check(
        "engine.port",
        FAIL,
        found=f"held by {holder}",
        expected=f"free for container {container}",
        remedy=remedy,
        subject=subject,
    )


def main() -> None:
    """Look and judge."""
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "required": True},
            "container": {"type": "str", "required": True},
            "address": {"type": "str", "default": "0.0.0.0"},  # noqa: S104 - what Docker publishes on by default
            **_docker_socket.DOCKER_SOCKET,
            **REPORT_ONLY,
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        published = _docker_socket.publishers(options["docker_socket"])
    except _docker_socket.DockerError:
        published = {}
    taken = _ports.taken(options["ports"], options["address"], options["container"], published)
    checks = [judge(port, taken.get(port), options["container"]) for port in options["ports"]]
    finish(module, checks, options["report_only"], taken={str(port): holder for port, holder in taken.items()})


if __name__ == "__main__":
    main()
