#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name the causes of a fault from what a node and its tools say."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose
short_description: Name the causes of a fault, the root before its consequences
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Reads texts (nvidia-smi's output, kernel log, DKMS and installer logs, Docker's words, logs of containers and engines) and
    returns the causes they name, each with the lines that prove it, what it affects, and a remedy.
  - A root comes before its consequences, and a consequence says what explains it. An application's fault is never blamed on
    the hardware. Where no rule fits, the answer is V(unknown), with the lines that no rule explains.
  - Without texts it collects them from the node itself, bounded in time and size. It changes nothing and does not fail over
    what it finds.
  - The rules, with a remedy and a source each, are listed in docs/troubleshooting.md.
options:
  texts:
    description:
      - Texts to read, such as what someone sent.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: What to call it in the result.
        type: str
        required: true
      text:
        description: The text itself. Of one over 32 million characters the first and the last half of that are read.
        type: str
        required: true
      container:
        description: Name of the container whose log it is, where it is one's.
        type: str
        default: ""
  files:
    description:
      - Files on the node to read, the end of each, O(max_size) at most.
    type: list
    elements: path
    default: []
  collect:
    description:
      - What to collect from the node. Left out, everything is collected, or nothing where O(texts) or O(files) are given.
      - V(node) is kernel against headers and CDI specifications against the loaded module; V(kernel) the kernel's log of this
        boot; V(build) logs of DKMS builds that did not end and of NVIDIA's installer; V(packages) apt's history; V(smi)
        C(nvidia-smi -q -x); V(services) the journal of the driver's services; V(docker) that of Docker and containerd;
        V(containers) the logs of containers since their last start.
    type: list
    elements: str
    choices: [node, kernel, build, packages, smi, services, docker, containers]
  containers:
    description:
      - Containers whose logs to collect. Left out, those of the last twenty, the ones that do not run first.
    type: list
    elements: str
    default: []
  since:
    description:
      - Take the journal since this time, in the words of C(journalctl --since), instead of since the last boot.
    type: str
    default: ""
  timeout:
    description:
      - The longest time that collecting may take, in seconds.
    type: float
    default: 60
  max_size:
    description:
      - The largest size of one collected text, in bytes; of larger ones the end is read.
    type: int
    default: 4194304
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.reads
  - inferack.rack.attributes.docker_socket
"""

EXAMPLES = r"""
- name: Say what is wrong with the node
  inferack.rack.diagnose:
  register: diagnosis

- name: Say what is wrong with the engine's container
  inferack.rack.diagnose:
    collect: [kernel, smi, docker, containers]
    containers: [triton]

- name: Explain what someone sent
  inferack.rack.diagnose:
    texts:
      - name: dmesg
        text: "{{ lookup('ansible.builtin.file', 'dmesg.txt') }}"
  delegate_to: localhost
"""

RETURN = r"""
verdict:
  description:
    - V(cause) when a root is named; V(symptom) when what fails is named, and why is not in the texts; V(notice) when nothing
      has to be done at once; V(none) when nothing in the texts says that something is wrong; V(unknown) when there are
      errors that no
      rule explains, or nothing to read.
  returned: always
  type: str
  sample: cause
causes:
  description: The causes, the root first.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: The rule's name in docs/troubleshooting.md, or C(xid-) or C(sxid-) and a number.
      type: str
      sample: version-mismatch
    found:
      description: The cause in words.
      type: str
    confidence:
      description: V(high), V(medium) or V(low).
      type: str
    severity:
      description: V(fault), V(application) (the node is well), V(notice), or V(symptom) (a consequence of something).
      type: str
    blames:
      description: Whom, such as V(hardware), V(driver), V(kernel), V(container), V(registry), V(engine) or V(application).
      type: str
    affects:
      description: What is affected, each with C(kind) (V(gpu), V(model), V(container), V(image), V(node), …) and C(name), a
        GPU's being its bus id. The name is empty where the texts have none.
      type: list
      elements: dict
    remedy:
      description: What to do.
      type: str
    evidence:
      description: The lines that prove it, as they stand.
      type: list
      elements: str
    source:
      description: The text that the first of them is in.
      type: str
    line:
      description: Its number, from 1; 0 where the evidence is no line.
      type: int
    count:
      description: How often it was seen; of a message that fills a large log only a part is counted.
      type: int
    consequence_of:
      description: The id of the cause that explains this one; empty for a root.
      type: str
texts:
  description:
    - What each text was, with C(name), C(form) (such as V(smi.xml), V(kernel), V(docker), V(engine), V(other), V(empty)), its
      own C(verdict), what was C(read) from nvidia-smi's output, whether it was C(truncated), lines left C(unexplained), and
      C(harmless) lines that look like errors, with the reason.
  returned: always
  type: list
  elements: dict
skipped:
  description: What could not be collected, with C(name) and C(why).
  returned: always
  type: list
  elements: dict
msg:
  description: The first cause with its remedy in one sentence, or why there is none.
  returned: always
  type: str
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _cause, _diagnose, _node_logs
from ansible_collections.inferack.rack.plugins.module_utils._docker_socket import DOCKER_SOCKET


def gather(options: dict[str, Any]) -> tuple[list[_cause.Text], list[dict[str, str]]]:
    """The texts of the options, and what could not be read."""
    collector = _node_logs.Collector(
        docker_socket=options["docker_socket"],
        timeout=options["timeout"],
        most=options["max_size"],
        since=options["since"],
        containers=options["containers"],
    )
    texts = [_cause.Text(given["name"], given["text"], given["container"] or "") for given in options["texts"]]
    for name in options["files"]:
        text = collector.tail(Path(name))
        if text is None and not any(item["name"] == name for item in collector.skipped):
            collector.skip(name, "no such file")
        if text is not None:
            texts.append(_cause.Text(name, text))
    wanted = options["collect"]
    if wanted is None:
        wanted = [] if options["texts"] or options["files"] else list(_node_logs.SOURCES)
    return texts + _node_logs.collect(collector, wanted), collector.skipped


def main() -> None:
    """Collect, read, and say what is wrong."""
    module = AnsibleModule(
        argument_spec={
            "texts": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "text": {"type": "str", "required": True},
                    "container": {"type": "str", "default": ""},
                },
            },
            "files": {"type": "list", "elements": "path", "default": []},
            "collect": {"type": "list", "elements": "str", "choices": list(_node_logs.SOURCES)},
            "containers": {"type": "list", "elements": "str", "default": []},
            "since": {"type": "str", "default": ""},
            "timeout": {"type": "float", "default": 60.0},
            "max_size": {"type": "int", "default": 4 * 1024 * 1024},
            **DOCKER_SOCKET,
        },
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    for name, least in (("timeout", 0.1), ("max_size", 1024)):
        if options[name] < least:
            module.fail_json(msg=f"{name} is {options[name]}, expected at least {least}; leave it out for the default.")
    texts, skipped = gather(options)
    diagnosis = _diagnose.diagnose(texts)
    module.exit_json(
        changed=False,
        verdict=diagnosis.verdict,
        causes=[_cause.as_dict(cause) for cause in diagnosis.causes],
        texts=[asdict(reading) for reading in diagnosis.texts],
        skipped=skipped,
        msg=_diagnose.sentence(diagnosis),
    )


if __name__ == "__main__":
    main()
