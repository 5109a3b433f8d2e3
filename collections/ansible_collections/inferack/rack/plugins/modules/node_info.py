#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Everything about a node that decides what its GPUs need, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Read in one round trip what decides what a GPU node needs
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Reads the operating system, the running kernel and its headers, the GPUs on the PCI bus, what holds them, the driver that
    is loaded and the one that is built, the initramfs, packages and their sources, Docker and the container toolkit, and
    returns it as the fact C(inferack_node), to be read as C(ansible_facts['inferack_node']).
  - Never fails for what it cannot read. Such a fact is V(null), and RV(unread) has the reason where there is one.
  - Needs root for the initramfs, for the locks of the package manager and for Docker's socket; without it those are V(null).
  - What it found in the initramfs is remembered in C(/run/inferack) until the image changes, since reading it is slow.
options:
  gather_initramfs:
    description:
      - Look into the initramfs of the running kernel.
    type: bool
    default: true
  timeout:
    description:
      - The longest time that one tool may take, in seconds.
    type: float
    default: 10
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.reads
"""

EXAMPLES = r"""
- name: Look at the node
  inferack.rack.node_info:

- name: Show its GPUs and what holds them
  ansible.builtin.debug:
    msg: "{{ item.bus_id }} is a 10de:{{ item.device_id }}, bound to {{ item.bound_driver | default('nothing', true) }}"
  loop: "{{ ansible_facts['inferack_node'].gpus }}"
  loop_control:
    label: "{{ item.bus_id }}"

- name: Look again after the driver's installation, without opening the initramfs
  inferack.rack.node_info:
    gather_initramfs: false
"""

RETURN = r"""
ansible_facts:
  description: The fact.
  returned: always
  type: dict
  contains:
    inferack_node:
      description: The node. A key is V(null) where the thing is absent or cannot be read.
      type: dict
      contains:
        os:
          description: C(distribution), C(version), C(major), C(family) (V(Debian) or V(RedHat)), C(codename), C(architecture).
          type: dict
          sample: {distribution: Ubuntu, version: "24.04", major: "24", family: Debian, codename: noble, architecture: x86_64}
        kernel:
          description:
            - C(release) of the running kernel; C(headers), whether modules can be built for it, and C(headers_path);
              C(installed), every release with a folder of modules; C(bootable), those of them with a kernel in /boot;
              C(default), the one that the boot loader starts next; C(cmdline).
          type: dict
        boot_id:
          description: Changes with each boot.
          type: str
        gpus:
          description:
            - NVIDIA's display controllers on the PCI bus, each with C(bus_id), C(device_id), C(subsystem_id), C(class) and
              C(bound_driver).
          type: list
          elements: dict
          sample: [{bus_id: "0000:07:00.0", device_id: "2330", subsystem_id: 16c1, class: "0302", bound_driver: nvidia}]
        nvswitches:
          description: How many NVSwitches are on the PCI bus.
          type: int
        nouveau:
          description:
            - C(loaded); C(blacklisted) and C(modeset_disabled) by the files that modprobe reads; C(in_initramfs), whether the
              module is in the running kernel's initramfs; C(problems), lines that were meant for nouveau and do nothing.
          type: dict
        driver:
          description:
            - C(loaded_version) of the kernel module in memory, C(module_version) and C(module_name) of the one on disk for the
              running kernel, C(kernels), the version on disk for each installed kernel, C(library_version) of libnvidia-ml,
              C(flavour) (V(open) or V(proprietary)), C(smi_path), and
              C(runfile), whether NVIDIA's installer was used here.
          type: dict
        dkms:
          description: C(version), and C(modules), each with C(name), C(version), C(kernel), C(arch) and C(state).
          type: dict
        initramfs:
          description:
            - C(tool) that builds it (V(update-initramfs) or V(dracut)), C(image) of the running kernel, C(modprobe_files) in
              it, and C(nouveau_blacklisted), whether those files keep nouveau from loading.
          type: dict
        secure_boot:
          description: V(enabled), V(disabled), or V(unsupported) where the firmware has none.
          type: str
        packages:
          description: Versions by name, of packages that have to do with drivers, kernels, containers and compilers.
          type: dict
        held:
          description: Names of packages that are held or locked to a version.
          type: list
          elements: str
        broken_packages:
          description: Names of such packages that dpkg unpacked but could not configure.
          type: list
          elements: str
        sources:
          description:
            - Enabled package sources, each with C(file), C(type), C(uris), C(suites), C(components) and C(signed_by), or
              with C(file), C(id) and C(baseurl) where the package manager is dnf.
          type: list
          elements: dict
        docker:
          description:
            - C(path), C(version), C(snap), C(running), C(runtimes), C(default_runtime), C(cdi) and C(cgroup_driver). The last
              four are known while the engine runs.
          type: dict
        toolkit:
          description: C(version) of NVIDIA's container toolkit.
          type: dict
        disk:
          description: Bytes free, by folder; where a folder does not exist yet, of where it would be created.
          type: dict
        reboot_required:
          description: Whether packages of the node ask for a reboot.
          type: bool
        package_manager:
          description: C(name) (V(apt) or V(dnf)), and C(lock_held_by), the process that has it locked.
          type: dict
        glibc:
          description: Version of the C library.
          type: str
unread:
  description: Why a fact is null, by its name, where reading it broke.
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _node_facts


def main() -> None:
    """Read the node."""
    module = AnsibleModule(
        argument_spec={
            "gather_initramfs": {"type": "bool", "default": True},
            "timeout": {"type": "float", "default": 10.0},
        },
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    node = _node_facts.Node(timeout=options["timeout"], initramfs=options["gather_initramfs"])
    facts, unread = _node_facts.gather(node)
    module.exit_json(changed=False, ansible_facts={"inferack_node": facts}, unread=unread)


if __name__ == "__main__":
    main()
