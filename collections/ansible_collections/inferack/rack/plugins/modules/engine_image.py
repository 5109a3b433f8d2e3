#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Have an engine's image on the node, pulled with credentials that are stored nowhere."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image
short_description: Have a container image on the node, pulled with credentials that are stored nowhere
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Pulls an image that Docker Engine does not hold yet. The credentials travel in a header of that one request to the engine's
    socket. Neither root's nor anybody's C(config.json) is written, so that no key stays on the node and no other login is lost.
  - Needs nothing but the engine's socket; no Python packages, no command line client.
  - Says in one sentence what is wrong when the registry refuses the key, has no such image, or cannot be reached.
options:
  image:
    description: Name and tag, or digest, of the image.
    type: str
    required: true
  username:
    description: User of the registry; for NVIDIA's it is the literal V($oauthtoken).
    type: str
  password:
    description: The user's password or key.
    type: str
  registry:
    description:
      - Use O(username) and O(password) only when the image is from this registry, so that a key is never sent to another one.
    type: str
  pull:
    description:
      - V(missing) pulls an image that the engine does not hold, V(always) looks for a newer one each time.
    type: str
    choices: [missing, always]
    default: missing
  silence_s:
    description: The longest time that the engine may say nothing while it pulls, in seconds.
    type: float
    default: 600
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.checks
  - inferack.rack.attributes.docker_socket
attributes:
  check_mode:
    support: full
    details: Does not pull. An engine that is not there yet counts as one that lacks the image.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Have Triton's image
  inferack.rack.engine_image:
    image: nvcr.io/nvidia/tritonserver:25.09-py3
    username: $oauthtoken
    password: "{{ vault_ngc_api_key }}"
"""

RETURN = r"""
present:
  description: Docker Engine holds the image.
  returned: always
  type: bool
checks:
  description:
    - C(engine.image), and C(engine.registry) when the registry was asked; C(container.engine) when Docker Engine is not there.
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

from ansible_collections.inferack.rack.plugins.module_utils import _docker_socket
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, REPORT_ONLY, SKIP, Check, finish
from ansible_collections.inferack.rack.plugins.module_utils._engine_log import pull_error


def have(options: dict[str, Any], check_mode: bool) -> tuple[bool, bool, list[Check]]:
    """Whether something changed (or would), whether the image is there, and the checks."""
    socket, image = options["docker_socket"], options["image"]
    registry = _docker_socket.registry_of(image)
    meant = options["registry"] in (None, "", registry)
    username, password = (options["username"] or "", options["password"] or "") if meant else ("", "")
    try:
        present = _docker_socket.has_image(socket, image)
    except _docker_socket.DockerError as error:
        if check_mode:
            return True, False, [Check("engine.image", SKIP, found="Docker Engine is not there yet", expected=image)]
        remedy = "Bring Docker Engine into service (role container_runtime) and run again."
        return False, False, [Check("container.engine", FAIL, found=str(error), expected="Docker Engine", remedy=remedy)]
    here = Check("engine.image", PASS, found=image, expected=image)
    if present and options["pull"] == "missing":
        return False, True, [here]
    if check_mode:
        return not present, present, [Check("engine.image", SKIP, found="not on the node yet", expected=image)]
    try:
        said = _docker_socket.pull(socket, image, username, password, options["silence_s"])
    except _docker_socket.DockerError as error:
        cause = pull_error(str(error), image, registry, username)
        found, evidence = (text.replace(password, "***") if password else text for text in (cause.line, str(error)))
        expected = f"to pull {image}"
        return False, present, [Check(cause.check, FAIL, found, expected, cause.remedy, evidence=[evidence])]
    newer = not any("Image is up to date" in line for line in said)
    registry_check = Check("engine.registry", PASS, found=registry, expected="to pull the image", evidence=said)
    return newer or not present, True, [registry_check, here]


def main() -> None:
    """Pull where needed and judge."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "username": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "registry": {"type": "str"},
            "pull": {"type": "str", "choices": ["missing", "always"], "default": "missing"},
            "silence_s": {"type": "float", "default": 600.0},
            **_docker_socket.DOCKER_SOCKET,
            **REPORT_ONLY,
        },
        required_by={"password": ["username"]},
        supports_check_mode=True,
    )
    changed, present, checks = have(module.params, module.check_mode)
    finish(module, checks, module.params["report_only"], changed=changed, present=present)


if __name__ == "__main__":
    main()
