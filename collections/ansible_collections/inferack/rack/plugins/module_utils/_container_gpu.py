# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a container see the GPUs that the host has: the command that asks, the words of failure, the comparison.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import _nvidia_smi
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, Check, plural
from ansible_collections.inferack.rack.plugins.module_utils._smi_reading import Reading

VISIBLE, UUID, DRIVER = "container.gpu_visible", "container.gpu_uuid", "container.gpu_driver"
METHODS = ("runtime", "gpus", "cdi")

#: First line that the container prints, before nvidia-smi's own: how the devices came in.
MARKER = "NVIDIA_VISIBLE_DEVICES="

#: NVIDIA's container runtime sets this value in a container whose devices came in by CDI (container toolkit, "CDI support").
CDI_VALUE = "void"

TOOLKIT = "Install the NVIDIA Container Toolkit and restart Docker"
REGISTER = "Register the runtime in daemon.json (nvidia-ctk runtime configure does it) and restart Docker"
REFRESH = "Write the CDI specification anew with nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
REBOOT = "Reboot the node, so that the loaded module is of the library's version, and hold the driver's packages"
CGROUPS = "Use CDI, or native.cgroupdriver=cgroupfs, since systemctl daemon-reload takes the devices away otherwise"


@dataclass(frozen=True)
class Words:
    """A pattern in Docker's or the toolkit's words, what it means, and the remedy. `{0}` stands for the pattern's group."""

    pattern: str
    found: str
    remedy: str


#: The most telling first. Sources: the reports in which these words were collected (the kind docker of the case
#: collection), and the messages in libnvidia-container and moby.
WORDS: tuple[Words, ...] = (
    Words(
        r"unsatisfied condition: ([a-z]+ ?[<>=]+ ?[\w.]+)",
        "an image that needs {0}, which the driver does not offer",
        "Take an image for an older CUDA, or install a newer driver branch",
    ),
    Words(r"driver/library version mismatch", "the loaded module and the driver's library of different versions", REBOOT),
    Words(
        r"nvml error: driver not loaded",
        "no loaded driver",
        "Load the module with modprobe nvidia and read dmesg if it refuses",
    ),
    Words(
        r"nvml error: insufficient permissions",
        "no permission for the device nodes",
        "Check mode and SELinux context of /dev/nvidia*, and user namespaces in daemon.json",
    ),
    Words(r"nvcgo rpc error: timed out", "a toolkit that timed out on a busy host", "Run again when the node is less busy"),
    Words(
        r"driver error: timed out|driver rpc error: timed out",
        "a driver that takes too long to start",
        "Start nvidia-persistenced, so that the driver stays initialised, and read dmesg for Xid lines",
    ),
    Words(
        r"driver (?:rpc )?error: failed to process request",
        "a driver that refuses the toolkit's request",
        "Run nvidia-smi on the node and read dmesg; reboot after a driver update",
    ),
    Words(
        r"load library failed: (\S+?):? cannot open shared object",
        "no {0} on the node",
        "Install the driver's library packages of the module's version",
    ),
    Words(
        r"could not select device driver \W*cdi|device information while adding custom device \W*nvidia\.com/gpu",
        "a Docker without CDI",
        "Upgrade Docker to 25.0 or later and switch CDI on, or ask for GPUs by the runtime",
    ),
    Words(r"could not select device driver .*? with capabilities: \[\[.*?gpu", "Docker without a GPU driver", TOOLKIT),
    Words(r"unknown or invalid runtime name: ([\w.-]+)", "no runtime {0} in the running Docker", REGISTER),
    Words(r"unknown runtime specified ([\w.-]+)", "no runtime {0} in the running Docker", REGISTER),
    Words(
        r"unresolvable CDI devices? ([^\s:]+)",
        "no CDI specification with {0}",
        REFRESH,
    ),
    Words(r"CDI device injection failed", "a CDI specification that does not fit", REFRESH),
    Words(
        r"nvidia-container-runtime\W+.{0,40}(?:executable file not found|no such file)",
        "no nvidia-container-runtime, though Docker has it registered",
        TOOLKIT,
    ),
    Words(
        r"ldcache error",
        "ldconfig failing in the container",
        "Set ldconfig in /etc/nvidia-container-runtime/config.toml to the node's own",
    ),
    Words(
        r"(?:lstat|stat failed:|gathering device information.*?\") ?\"?(/dev/nvidia[\w-]*)",
        "no device node {0}",
        "Load nvidia_uvm and make its nodes with nvidia-modprobe -u -c=0; write a CDI specification anew if one is used",
    ),
    Words(
        r"stat failed: /(?!dev/)([^:]+)",
        "a toolkit that takes the GPU's name {0} for a path",
        "Upgrade the NVIDIA Container Toolkit",
    ),
    Words(r"mount operation failed: ([^:]*)", "a mount that failed at {0}", "Reboot the node after a driver or Docker update"),
    Words(
        r"unknown device: ?(\S*)|device error: (?:\S+ )?unknown device",
        "a GPU that the driver does not have",
        "Correct the devices asked for",
    ),
    Words(
        r"nvidia-smi\W+.{0,30}executable file not found|exec: \W*nvidia-smi\W*: not found|nvidia-smi: not found",
        "no nvidia-smi in the container",
        "Add utility to NVIDIA_DRIVER_CAPABILITIES, and install the driver's utilities package on the node",
    ),
    Words(r"Failed to initialize NVML: Unknown Error", "a container that lost access to its devices", CGROUPS),
    Words(r"exec format error", "an image for another processor architecture", "Take the image for the node's architecture"),
    Words(
        r"(?:unauthorized|pull access denied|denied: requested access)",
        "a registry that refuses the login",
        "Log in with docker login, and check that the key may pull this image",
    ),
    Words(r"no such image: ?(\S+?):?(?: |$)", "no image {0} on the node", "Pull the image, or let it be pulled"),
    Words(
        r"manifest unknown|manifest for \S+ not found|not found: manifest",
        "no such image in the registry",
        "Correct the image's name and tag",
    ),
    Words(
        r"no such host|connection refused|i/o timeout|x509:",
        "a registry that cannot be reached",
        "Check the name, the network and the certificate authority",
    ),
    Words(
        r"permission denied while trying to connect|dial unix .*permission denied",
        "no permission for Docker's socket",
        "Run with become as root",
    ),
    Words(
        r"Cannot connect to the Docker daemon|Is the docker daemon running",
        "no running Docker",
        "Start Docker and read journalctl -u docker if it refuses",
    ),
)


def bare(text: str) -> str:
    """Docker's words on one line without their layers of quoting, and without the toolkit's own command line.

    That command line repeats the image's requirements (`--require=cuda>=10.0`), which are no error.
    """
    line = " ".join(text.split())
    line = re.sub(r"\\+n", " ", line)
    line = re.sub(r"\\+", "", line)
    return re.sub(r"exec command: \[.*?\](?= ?n?nvidia-container-cli|$)", "", line)


def explain(text: str) -> Words | None:
    """What words of failure mean, with the group filled in; None for words that nobody knows."""
    line = bare(text)
    for words in WORDS:
        match = re.search(words.pattern, line, re.IGNORECASE)
        if match:
            group = next((part for part in match.groups() if part), "it") if match.groups() else ""
            return Words(words.pattern, words.found.format(group.strip()), words.remedy)
    return None


def choose_method(wanted: str, info: Mapping[str, Any]) -> str:
    """The method for `auto`: the runtime where Docker has it, CDI where that is all there is, else --gpus.

    info: Docker's own answer to `docker info --format '{{json .}}'`.
    """
    if wanted != "auto":
        return wanted
    runtimes = info.get("Runtimes")
    if isinstance(runtimes, Mapping) and "nvidia" in runtimes:
        return "runtime"
    devices = info.get("DiscoveredDevices")
    listed = devices if isinstance(devices, list) else []
    if any(isinstance(device, Mapping) and str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in listed):
        return "cdi"
    return "gpus"


def command(docker: str, name: str, image: str, method: str, devices: str, shell: bool = True) -> list[str]:
    """The command that runs nvidia-smi in a container and says how its devices came in.

    devices: `all`, or ids divided by commas as NVIDIA_VISIBLE_DEVICES takes them.
    shell: the image has a shell; without it the marker line is missing.
    """
    line = [docker, "run", "--rm", "--name", name, "--label", "inferack.rack=probe", "--network", "none"]
    capabilities = ["--env", "NVIDIA_DRIVER_CAPABILITIES=utility,compute"]
    if method == "runtime":
        line += ["--runtime", "nvidia", "--env", f"NVIDIA_VISIBLE_DEVICES={devices}", *capabilities]
    elif method == "gpus":
        line += ["--gpus", "all" if devices == "all" else f'"device={devices}"', *capabilities]
    else:
        for device in devices.split(","):
            line += ["--device", f"nvidia.com/gpu={device}"]
    if shell:
        script = f'echo "{MARKER}$NVIDIA_VISIBLE_DEVICES"; exec nvidia-smi -q -x'
        return [*line, "--entrypoint", "sh", image, "-c", script]
    return [*line, "--entrypoint", "nvidia-smi", image, "-q", "-x"]


def lacks_shell(text: str) -> bool:
    """Docker refused because the image has no shell."""
    return bool(re.search(r"exec: \W*sh\W*: executable file not found|\"sh\".{0,40}no such file", bare(text)))


def injection(text: str, method: str) -> str | None:
    """How the devices came in: `cdi` or `hook`; None when the container did not say."""
    match = re.search(rf"^{MARKER}(.*)$", text, re.MULTILINE)
    if not match:
        return "cdi" if method == "cdi" and "<nvidia_smi_log" in text else None
    return "cdi" if method == "cdi" or match.group(1).strip() == CDI_VALUE else "hook"


def spec_versions(texts: Sequence[str]) -> list[str]:
    """Driver versions in CDI specifications, by the names of the libraries they mount."""
    found = {version for text in texts for version in re.findall(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3,}\.[\d.]*\d)", text)}
    return sorted(found)


def _by_uuid(reading: Reading) -> dict[str, str]:
    return {gpu.uuid: gpu.bus_id or "?" for gpu in reading.gpus if gpu.uuid}


def failed(text: str, rc: int | None, problem: str, timeout: float) -> Check:
    """`container.gpu_visible` for a container that gave no answer."""
    expected = "a container that sees the GPUs"
    evidence = [bare(line)[:300] for line in text.splitlines() if line.strip() and not line.startswith(MARKER)][:6]
    if problem in ("timeout", "stuck"):
        remedy = "Read docker logs and dmesg for what holds the container; the driver may hang on a GPU"
        return Check(VISIBLE, FAIL, f"no answer from the container within {timeout:g} s", expected, remedy, evidence)
    if problem == "missing":
        return Check(VISIBLE, FAIL, "no docker command on this node", expected, "Install Docker and its command line", evidence)
    words = explain(text)
    if words:
        return Check(VISIBLE, FAIL, words.found, expected, words.remedy, evidence)
    causes = _nvidia_smi.causes(text)
    if causes:
        return Check(VISIBLE, FAIL, f"{causes[0].found} in the container", expected, causes[0].remedy, evidence)
    said = evidence[-1] if evidence else "nothing said"
    return Check(VISIBLE, FAIL, f"exit status {rc} ({said})", expected, "Run the command by hand and read its words", evidence)


def compare(inside: Reading, host: Reading, count: int | None, how: str | None, specs: Sequence[str]) -> list[Check]:
    """The three checks on a container that answered.

    count: how many GPUs it should see; None: as many as the host has, where the host's nvidia-smi answers.
    how: `hook`, `cdi` or None; specs: driver versions in the node's CDI specifications.
    """
    wanted = count if count is not None else (len(host.gpus) or None)
    seen = len(inside.gpus)
    evidence = [f"devices by {how}"] if how else []
    evidence += [f"{bus} {uuid}" for uuid, bus in _by_uuid(inside).items()]
    remedy = (
        REFRESH if how == "cdi" else "Check NVIDIA_VISIBLE_DEVICES and the device nodes, and restart Docker after adding GPUs"
    )
    if seen == 0 or (wanted is not None and seen != wanted):
        visible = Check(
            VISIBLE, FAIL, f"{plural(seen, 'GPU')} in the container", f"{wanted or 'at least one'}", remedy, evidence
        )
    else:
        visible = Check(VISIBLE, PASS, f"{plural(seen, 'GPU')} in the container", wanted, "", evidence)
    return [visible, _compare_uuids(inside, host, count, remedy), _compare_drivers(inside, host, how, specs)]


def _compare_uuids(inside: Reading, host: Reading, count: int | None, remedy: str) -> Check:
    here, there = _by_uuid(inside), _by_uuid(host)
    if not here or not there:
        return Check(UUID, SKIP, None, None, "Bring nvidia-smi on the node to answer first, see driver.smi")
    foreign = sorted(set(here) - set(there))
    missing = sorted(set(there) - set(here)) if count is None or count >= len(there) else []
    if foreign:
        stale = "Restart the container's engine; it holds devices that the node no longer has"
        return Check(UUID, FAIL, f"{', '.join(foreign)}, which the node does not have", "the node's own GPUs", stale)
    if missing:
        where = ", ".join(f"{uuid} ({there[uuid]})" for uuid in missing)
        return Check(UUID, FAIL, f"{where} not in the container", "all of the node's GPUs", remedy)
    return Check(UUID, PASS, sorted(here), "the node's own GPUs")


def _compare_drivers(inside: Reading, host: Reading, how: str | None, specs: Sequence[str]) -> Check:
    if inside.driver_version is None or host.driver_version is None:
        return Check(
            DRIVER,
            SKIP,
            inside.driver_version,
            host.driver_version,
            "Bring nvidia-smi on the node to answer first, see driver.smi",
        )
    if inside.driver_version != host.driver_version:
        return Check(
            DRIVER,
            FAIL,
            inside.driver_version,
            host.driver_version,
            "Restart Docker after a driver update, and reboot if it stays",
        )
    if how == "cdi" and specs and host.driver_version not in specs:
        found = f"a CDI specification for {', '.join(specs)}"
        return Check(DRIVER, FAIL, found, f"one for {host.driver_version}", REFRESH)
    return Check(
        DRIVER,
        PASS,
        inside.driver_version,
        host.driver_version,
        "",
        [f"CDI specification for {', '.join(specs)}"] if specs else [],
    )
