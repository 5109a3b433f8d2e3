#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Prove that an inference engine answers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_endpoint
short_description: Prove that an inference engine is ready, has its models, and answers
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Asks a Triton Inference Server (KServe v2) or a service that speaks the OpenAI API (NIM, vLLM, cloud services) whether it is
    ready and which models it has, then asks one model one question. Only an answer proves that the engine works.
  - Waits as long as O(wait_s) says for an engine that is starting, and not at all for one that will not become ready.
  - When O(container) is given and the engine does not become ready, names the first error in the container's log.
  - Proxies in the environment are not used. The key is in no message.
options:
  url:
    description:
      - Base address of the engine. For V(openai) with or without a trailing C(/v1).
    type: str
    required: true
  adapter:
    description: The protocol it speaks.
    type: str
    choices: [triton, openai]
    default: triton
  models:
    description: Models that it must have, ready (V(triton)) or listed (V(openai)).
    type: list
    elements: str
    default: []
  model:
    description:
      - The model to question. If left out, the first of O(models), else the first that the engine has.
    type: str
  prompt:
    description: The question.
    type: str
    default: What is a rack?
  expect:
    description: Text that the answer must contain. If left out, any text will do.
    type: str
  ask:
    description: Whether to ask the question. If not, the engine only has to be ready and to have its models.
    type: bool
    default: true
  stream:
    description: Ask for a stream, which also gives the time to the first token. Only for V(openai).
    type: bool
    default: false
  max_tokens:
    description: Upper limit of the answer. Only for V(openai).
    type: int
    default: 32
  input_name:
    description:
      - Triton's input that takes the question. If left out, the model's only input, when that is a text; a model without one
        is not questioned.
    type: str
  output_name:
    description: Triton's output that holds the answer. If left out, the first that is a text.
    type: str
  api_key:
    description: Sent as a bearer token.
    type: str
  ca_path:
    description: File with further certificate authorities to trust.
    type: path
  validate_certs:
    description: Whether the certificate of an C(https) address must be trusted.
    type: bool
    default: true
  connect_timeout_s:
    description: The longest time until a connection is open, in seconds.
    type: float
    default: 5
  timeout_s:
    description: The longest silence while an answer is awaited, in seconds.
    type: float
    default: 60
  wait_s:
    description: How long to wait for an engine that is starting, in seconds.
    type: float
    default: 0
  interval_s:
    description: Time between two looks while waiting, in seconds.
    type: float
    default: 1
  container:
    description:
      - Name of the Docker container that the engine runs in, on the node the module runs on. Used only to say why the engine
        is not ready, and to stop waiting when the container has ended.
    type: str
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.checks
  - inferack.rack.attributes.reads
  - inferack.rack.attributes.docker_socket
"""

EXAMPLES = r"""
- name: Wait for Triton and question a model
  inferack.rack.inference_endpoint:
    url: http://127.0.0.1:8000
    models: [text_model]
    wait_s: 300
    container: triton

- name: Prove that a NIM streams
  inferack.rack.inference_endpoint:
    url: http://127.0.0.1:8000/v1
    adapter: openai
    models: [meta/llama-3.1-8b-instruct]
    stream: true

- name: Ask a service we do not provision
  inferack.rack.inference_endpoint:
    url: "{{ item.base_url }}"
    adapter: "{{ item.adapter }}"
    models: "{{ item.models }}"
    api_key: "{{ item.api_key }}"
    report_only: true
  loop: "{{ inferack_external_engines }}"
  loop_control:
    label: "{{ item.name }}"
  delegate_to: localhost
"""

RETURN = r"""
ready:
  description: The engine is ready, has its models, and answered when it was asked.
  returned: always
  type: bool
starting:
  description: The engine is not ready yet, and waiting longer may help.
  returned: always
  type: bool
models:
  description: The models the engine named.
  returned: always
  type: list
  elements: str
model:
  description: The model that was questioned; empty when none was.
  returned: always
  type: str
answer:
  description: Its answer; null when there is none.
  returned: always
  type: str
usage:
  description: Tokens as the engine counted them; null when it said nothing.
  returned: always
  type: dict
timings:
  description:
    - C(ready_ms), time of the readiness path; C(first_token_ms), of a stream; C(total_ms), of the answer; C(waited_s), until
      the last look. Null where there was nothing to measure.
  returned: always
  type: dict
checks:
  description:
    - C(engine.ready), C(engine.models) for each expected model, C(engine.answer), and the check that the container's log names
      (such as C(engine.config)).
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

import ssl
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _endpoint
from ansible_collections.inferack.rack.plugins.module_utils._checks import PASS, REPORT_ONLY, SKIP, finish
from ansible_collections.inferack.rack.plugins.module_utils._docker_socket import DOCKER_SOCKET
from ansible_collections.inferack.rack.plugins.module_utils._engine_wait import Watch, wait


def argument_spec() -> dict[str, Any]:
    """The options, as documented."""
    return {
        "url": {"type": "str", "required": True},
        "adapter": {"type": "str", "choices": ["triton", "openai"], "default": "triton"},
        "models": {"type": "list", "elements": "str", "default": []},
        "model": {"type": "str"},
        "prompt": {"type": "str", "default": "What is a rack?"},
        "expect": {"type": "str"},
        "ask": {"type": "bool", "default": True},
        "stream": {"type": "bool", "default": False},
        "max_tokens": {"type": "int", "default": 32},
        "input_name": {"type": "str"},
        "output_name": {"type": "str"},
        "api_key": {"type": "str", "no_log": True},
        "ca_path": {"type": "path"},
        "validate_certs": {"type": "bool", "default": True},
        "connect_timeout_s": {"type": "float", "default": 5.0},
        "timeout_s": {"type": "float", "default": 60.0},
        "wait_s": {"type": "float", "default": 0.0},
        "interval_s": {"type": "float", "default": 1.0},
        "container": {"type": "str"},
        **DOCKER_SOCKET,
        **REPORT_ONLY,
    }


def target_of(options: dict[str, Any]) -> _endpoint.Target:
    """What to ask. Raises ValueError or OSError for options that cannot work."""
    url = _endpoint.normalise(options["url"], options["adapter"])
    try:
        context = (
            _endpoint.tls_context(options["ca_path"] or "", options["validate_certs"]) if url.startswith("https") else None
        )
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"ca_path {options['ca_path']} holds no certificates: {error}") from error
    return _endpoint.Target(
        url=url,
        adapter=options["adapter"],
        models=options["models"],
        model=options["model"] or "",
        prompt=options["prompt"],
        expect=options["expect"] or "",
        api_key=options["api_key"] or "",
        ask=options["ask"],
        stream=options["stream"],
        max_tokens=options["max_tokens"],
        input_name=options["input_name"] or "",
        output_name=options["output_name"] or "",
        connect_timeout=options["connect_timeout_s"],
        timeout=options["timeout_s"],
        context=context,
    )


def main() -> None:
    """Wait, ask, judge."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    options: dict[str, Any] = module.params
    try:
        target = target_of(options)
    except ValueError as error:
        module.fail_json(msg=f"inference_endpoint: {error}.")
    watch = Watch(options["container"], options["docker_socket"]) if options["container"] else None
    result, waited = wait(target, options["wait_s"], options["interval_s"], watch)
    finish(
        module,
        result.checks,
        options["report_only"],
        ready=result.state == _endpoint.READY and all(check.status in (PASS, SKIP) for check in result.checks),
        starting=result.state == _endpoint.STARTING,
        models=result.models,
        model=result.model if result.answer is not None else "",
        answer=result.answer,
        usage=result.usage,
        timings={**result.timings, "waited_s": round(waited, 1)},
    )


if __name__ == "__main__":
    main()
