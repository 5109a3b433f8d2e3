# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""What every module says about itself, so that each only adds its degree of support."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation fragments `inferack.rack.attributes`, `.checks`, `.reads` and `.docker_socket` of it."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and says what it would change without changing it.
  diff_mode:
    description: Returns what changed, or would change, when in diff mode.
  idempotent:
    description: Run a second time with the same options it changes nothing, as long as nothing else changed the node.
"""

    CHECKS = r"""
options:
  report_only:
    description:
      - End successful although a check fails. The checks are in the result either way.
    type: bool
    default: false
"""

    READS = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: It only reads, so it does the same in check mode.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

    DOCKER_SOCKET = r"""
options:
  docker_socket:
    description: Socket of Docker Engine. An engine that does not answer counts as one that has nothing.
    type: path
    default: /var/run/docker.sock
"""
