# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""An engine's first error, from its container's log or from the words of the Docker Engine.

An engine that fails to start says why in one line among hundreds, and repeats it in other words further down; the first
one is the cause. Sources of the lines: Triton 2.51 as run with each fault, and issues of triton-inference-server/server
(6571, 6989, 8342), NVIDIA/TensorRT-LLM (2758), NVIDIA/NemoClaw (3333).
Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A cause: the check it belongs to, the line, what to do, and the model it names."""

    check: str
    line: str
    remedy: str
    model: str = ""


Rule = tuple[str, str, str]

_TAKE_DRIVER = "Take an image for this driver, or install a newer driver, and run again."
_TOOLKIT = "(role nvidia_container_toolkit) and run again."

#: (check, pattern, remedy), most telling first. A group `model` names the model; `what` is the part worth showing.
KNOWN: tuple[Rule, ...] = (
    (
        "engine.config",
        r"(?P<what>Error parsing text-format inference\.ModelConfig: .*)",
        "Correct the model's configuration (the position is line:column of config.pbtxt) and run again.",
    ),
    (
        "engine.config",
        r"(?P<what>Poll failed for model directory '(?P<model>[^']+)': .*)",
        "Correct the model's configuration, or remove the folder from the model repository, and run again.",
    ),
    (
        "engine.config",
        r"(?P<what>failed to load model '(?P<model>[^']+)': at least one version must be available.*)",
        "Give the model a numbered version folder with its files and run again.",
    ),
    (
        "engine.models",
        r"(?P<what>failed to load '(?P<model>[^']+)' version \d+: .*unable to find backend library.*)",
        "Use an image that contains the backend, or correct the model's backend, and run again.",
    ),
    (
        "engine.models",
        r"(?P<what>failed to load '(?P<model>[^']+)' version \d+: .*(ModuleNotFoundError|ImportError).*)",
        "Use an image that contains the Python package the model imports, and run again.",
    ),
    (
        "engine.models",
        r"(?P<what>failed to load '(?P<model>[^']+)' version \d+: .*no GPUs are available.*)",
        "Give the engine its GPUs, or set the model's instance_group to KIND_CPU, and run again.",
    ),
    (
        "engine.models",
        r"(?P<what>failed to load '(?P<model>[^']+)' version \d+: .*)",
        "Correct the model's files and run again.",
    ),
    (
        "engine.models",
        r"(?P<what>(failed to stat file|failed to open|unable to find|unable to open) \S*models\S*.*)",
        "Mount a model repository that is there, and run again.",
    ),
    (
        "engine.port",
        r"(?P<what>.*(address already in use|failed to start (HTTP|GRPC|metrics) service).*)",
        "Free the port and run again.",
    ),
    (
        "engine.registry",
        r"(?P<what>.*(Authentication Error|NGC_API_KEY is (not set|invalid)|invalid (ngc )?api key).*)",
        "Put a valid NGC key into nim_api_key and run again.",
    ),
    (
        "engine.config",
        r"(?P<what>.*(PermissionError|Permission denied).*(cache|hub).*)",
        "Make the cache folder writable for the user the container runs as, and run again.",
    ),
    ("engine.config", r"(?P<what>Unknown profiles provided.*)", "Choose one of the image's profiles and run again."),
    (
        "gpu.memory",
        r"(?P<what>.*(CUDA out of memory|torch\.OutOfMemoryError|failed to allocate .*memory).*)",
        "Free GPU memory or take a smaller model, and run again.",
    ),
    ("driver.version", r"(?P<what>.*unsatisfied condition: cuda.*)", _TAKE_DRIVER),
)

#: What Docker Engine says when it cannot start a container.
START: tuple[Rule, ...] = (
    ("container.toolkit", r"could not select device driver", f"Install the NVIDIA Container Toolkit {_TOOLKIT}"),
    ("container.runtime", r"unknown or invalid runtime name", f"Register the runtime {_TOOLKIT}"),
    ("engine.port", r"port is already allocated|address already in use", "Free the port and run again."),
    ("driver.version", r"unsatisfied condition: cuda", _TAKE_DRIVER),
    (
        "container.gpu_visible",
        r"nvidia-container-cli|libnvidia-ml|CDI device injection|unresolvable CDI",
        f"Bring driver and container toolkit in order {_TOOLKIT}",
    ),
    ("engine.image", r"no such image|manifest unknown", "Name an image that the registry has, and run again."),
    (
        "container.engine",
        r"cannot connect|connection (refused|aborted)|no such file or directory.*docker\.sock|requests",
        "Bring Docker Engine in order (role container_runtime) and run again.",
    ),
)

#: Lines that look like errors and are none: Triton says them on every machine without a GPU or DCGM.
HARMLESS = re.compile(
    r"CudaDriverHelper has not been initialized|Failed to initialize NVML|DCGM (unable|initialization)|pinned (system )?memory"
    r"|failed to load all models|0 in-flight|Unable to get power limit",
    re.IGNORECASE,
)

#: A line in which an engine says that something is wrong, whatever it is.
_WRONG = re.compile(
    r"^E\d{4} \d\d:|^error:|\b(ERROR|CRITICAL|FATAL)\b|\b\w*(Error|Exception): |^\[libprotobuf ERROR", re.MULTILINE
)
_PREFIX = re.compile(r"^[EWI]\d{4} [\d:.]+ \d+ \S+:\d+\] *|^\[libprotobuf ERROR \S+\] *|^\d{4}-\d\d-\d\d [\d:,.]+ +\w+ +")

LONGEST_LINE = 400


def tidy(line: str) -> str:
    """A log line without its time, place, quotes and traceback, at most LONGEST_LINE characters."""
    text = _PREFIX.sub("", line.strip()).strip().strip('"')
    text = re.split(r"\\n\\nAt:|\n\nAt:", text)[0].replace("\\n", " ")
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"


def match(line: str, table: tuple[Rule, ...]) -> Finding | None:
    """The first row of a table that a line fits."""
    for check, pattern, remedy in table:
        found = re.search(pattern, line, re.IGNORECASE)
        if found:
            groups = found.groupdict()
            return Finding(check, tidy(groups.get("what") or line), remedy, groups.get("model") or "")
    return None


def suspects(log: str) -> list[str]:
    """The lines in which an engine says that something is wrong, without the harmless ones."""
    return [line for line in log.splitlines() if _WRONG.search(line) and not HARMLESS.search(line)]


def first_error(log: str) -> Finding | None:
    """The first cause an engine's log names; None when it names none.

    protobuf gives the position of a fault on one line and Triton the model on the next: the two become one finding.
    """
    lines = log.splitlines()
    findings = [
        (number, found)
        for number, line in enumerate(lines)
        if not HARMLESS.search(line)
        for found in [match(line, KNOWN)]
        if found
    ]
    if findings:
        number, first = findings[0]
        following = findings[1:2]
        if not first.model and following and following[0][0] == number + 1 and following[0][1].model:
            return Finding(first.check, first.line, first.remedy, following[0][1].model)
        return first
    wrong = suspects(log)
    return Finding("engine.ready", tidy(wrong[0]), "Read the container's log, mend the cause and run again.") if wrong else None


def start_error(message: str) -> Finding:
    """The cause in Docker Engine's words about a container that it could not create or start."""
    words = re.search(r'\("(.*)"\)\s*$', message, re.DOTALL)  # the SDK wraps the engine's words in its own
    text = tidy(words.group(1) if words else message)
    found = match(text, START)
    if found:
        return Finding(found.check, text, found.remedy)
    return Finding("engine.ready", text, "Mend what Docker Engine names and run again.")


def pull_error(message: str, image: str, registry: str, username: str) -> Finding:
    """The cause in Docker Engine's words about an image that it could not pull."""
    text = tidy(message)
    name = image[len(registry) + 1 :] if image.startswith(f"{registry}/") else image
    if re.search(r"unauthorized|denied|authentication required|\b40[13]\b|no basic auth", text, re.IGNORECASE):
        who = f"the login of {username}" if username else "a pull without a login"
        remedy = f"Put a key that {registry} accepts into the inventory and run again."
        return Finding("engine.registry", f"{registry} refused {who} ({text})", remedy)
    if re.search(r"manifest.*unknown|not found|no such image|name unknown", text, re.IGNORECASE):
        return Finding(
            "engine.image", f"{registry} has no {name}", "Name an image and tag that the registry has, and run again."
        )
    if re.search(r"no space left", text, re.IGNORECASE):
        return Finding("node.disk", text, "Free space below /var/lib/docker and run again.")
    if re.search(r"x509|certificate", text, re.IGNORECASE):
        remedy = f"Put the registry's authority into /etc/docker/certs.d/{registry}/ca.crt and run again."
        return Finding("engine.registry", f"{registry} is not trusted ({text})", remedy)
    return Finding(
        "engine.registry", f"{registry} cannot be asked ({text})", f"Make {registry} reachable from the node and run again."
    )
