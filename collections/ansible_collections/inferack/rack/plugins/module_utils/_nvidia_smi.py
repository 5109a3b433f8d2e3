# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judge what nvidia-smi said, and what it said instead when it failed.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.inferack.rack.plugins.module_utils import _smi_reading
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, WARN, Check, plural
from ansible_collections.inferack.rack.plugins.module_utils._smi_reading import Gpu, Reading

#: Share of the nominal memory that a GPU may lack: part is reserved, more with ECC on (up to a sixteenth on GDDR6 boards).
MEMORY_TOLERANCE = 0.07

#: Reasons that slow the clocks because something is wrong; a power cap or an application's setting is normal.
HARMFUL_THROTTLE = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", "hw_thermal", "hw_power_brake"}
)

#: Fields whose trouble is the sensor's, not the GPU's: they come back by themselves.
SENSORS = re.compile(r"^(?:fan_speed|.*power_readings/|clocks/|utilization/(?:enc|dec|jpeg|ofa))")


@dataclass(frozen=True)
class Expected:
    """What the node should have; None and empty where nothing is expected.

    product: words that must all be in the product's name, `H100` or `NVIDIA H100 80GB HBM3`.
    driver_version: exact, or its first numbers, `580` or `580.95.05`.
    memory_mib: nominal memory of each GPU in MiB.
    ecc: whether ECC must be on, or off.
    bus_ids: where the PCI bus has GPUs, so that a missing one can be named.
    """

    count: int | None = None
    product: str | None = None
    driver_version: str | None = None
    memory_mib: int | None = None
    ecc: bool | None = None
    bus_ids: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """How the command ended: exit status or None, why there is none, what it printed, the limit it ran under in seconds."""

    rc: int | None
    problem: str = ""
    text: str = ""
    limit: float = 0.0


@dataclass(frozen=True)
class Cause:
    """Why nvidia-smi failed: a stable name, what it found in words, the remedy, and the GPU it names."""

    name: str
    found: str
    remedy: str
    bus_id: str | None = None


MISMATCH = (
    "Reboot the node, or unload and load the nvidia modules, then hold the driver's packages so that they change together"
)
LOAD = "Load the module with modprobe nvidia and, if it refuses, read the kernel's words with dmesg"
LIBRARY = "Install the driver's library package of the module's version; in a container bring the container toolkit in order"
LOST = "Power-cycle the node, reseat the GPU, and replace it if it goes again"
DEVICES = "Read dmesg for RmInitAdapter and NVRM lines, then reset, reseat or replace the GPU that they name"
PERMISSION = "Run as root, or give the user access to /dev/nvidia* (device node mode, SELinux, device cgroup of the container)"

#: Words of nvidia-smi, the most telling first. `{bus}` stands for the GPU that they name. Sources: nvidia-smi(1), and the
#: reports in which these words were collected (the kind smi_text of the case collection).
WORDS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"Driver/library version mismatch(?:.{0,40}?NVML library version: (?P<version>[\d.]+\d))?",
        "mismatch",
        "the loaded module and the driver's library of different versions",
        MISMATCH,
    ),
    (
        r"Unable to determine the device handle for GPU\s*(?:\d+\s*:)?\s*"
        r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+\d): ?(?P<why>[^.]+)",
        "lost",
        "GPU {bus} does not answer ({why})",
        LOST,
    ),
    (
        r"could not be reset:.*?GPU (?P<bus>[0-9A-Fa-f:.]+): In use by another client",
        "reset",
        "GPU {bus} in use, it cannot be reset",
        "End the processes that use the GPU and turn persistence mode off, then reset it",
    ),
    (r"GPU is lost", "lost", "a GPU that is lost", LOST),
    (r"couldn.t communicate with the NVIDIA driver", "driver", "no loaded driver that answers", LOAD),
    (r"couldn.t find libnvidia-ml\.so", "library", "no libnvidia-ml.so", LIBRARY),
    (r"No devices were found", "devices", "no GPU, though the driver is loaded", DEVICES),
    (r"Failed to initialize NVML: Insufficient Permissions", "permission", "no permission for the GPUs", PERMISSION),
    (r"Failed to initialize NVML: Driver Not Loaded", "driver", "no loaded driver that answers", LOAD),
    (
        r"Failed to initialize NVML: Unknown Error",
        "access",
        "no access to the device nodes any more",
        "Restart the container; use CDI or the cgroupfs driver so that systemctl daemon-reload takes no devices away",
    ),
    (r"Failed to initialize NVML: (?P<why>[^.\n]+)", "nvml", "NVML does not start ({why})", LOAD),
)

#: Exit status of nvidia-smi (nvidia-smi(1), "RETURN VALUE"; 18 as seen with a version mismatch).
CODES: dict[int, Cause] = {
    2: Cause("argument", "an argument that it does not know", "Install the nvidia-smi that belongs to the driver"),
    3: Cause("unavailable", "an operation that this GPU does not offer", "Take the option out of the call"),
    4: Cause("permission", "no permission for the GPUs", PERMISSION),
    6: Cause("devices", "no GPU, though the driver is loaded", DEVICES),
    8: Cause("power", "a GPU without its external power cables", "Attach the GPU's power cables"),
    9: Cause("driver", "no loaded driver that answers", LOAD),
    10: Cause(
        "interrupt",
        "a GPU whose interrupts do not arrive",
        "Reboot with pci=nomsi off the kernel's command line, or move the GPU",
    ),
    12: Cause("library", "no libnvidia-ml.so", LIBRARY),
    13: Cause(
        "function", "a library that lacks a function nvidia-smi needs", "Install library and nvidia-smi of one driver version"
    ),
    14: Cause("inforom", "a corrupted infoROM", "Update the board's firmware or have it replaced; it may go on working"),
    15: Cause("lost", "a GPU that fell off the bus", LOST),
    18: Cause("mismatch", "the loaded module and the driver's library of different versions", MISMATCH),
    255: Cause("internal", "an internal driver error", "Read dmesg for NVRM and Xid lines"),
}


def _joined(text: str) -> str:
    """One line: quotes of mails and wrapped lines undone, typographic apostrophes made plain."""
    lines = [re.sub(r"^\s*>+\s?", "", line) for line in text.splitlines()]
    return re.sub(r"[‘’`´]", "'", " ".join(" ".join(lines).split()))


def library_version(text: str) -> str | None:
    """The library's version that nvidia-smi adds to a mismatch from driver 525 on; None when it does not."""
    match = re.search(r"NVML library version: ([\d.]+\d)", _joined(text))
    return match.group(1) if match else None


def causes(text: str) -> list[Cause]:
    """The causes that nvidia-smi's words name, each once, the most telling first."""
    joined = _joined(text)
    found: list[Cause] = []
    for pattern, name, words, remedy in WORDS:
        if name in {cause.name for cause in found} and "?P<bus>" not in pattern:
            continue
        for match in re.finditer(pattern, joined):
            groups = match.groupdict()
            bus = _smi_reading.bus_id(groups.get("bus")) or groups.get("bus")
            said = words.format(bus=bus, why=(groups.get("why") or "").strip())
            if groups.get("version"):
                said += f" (library {groups['version']})"
            cause = Cause(name, said, remedy, bus)
            if cause not in found:
                found.append(cause)
    if {"lost", "driver"} & {cause.name for cause in found[:1]}:
        return found
    named = [cause for cause in found if cause.name != "nvml"]
    return named or found


def _lines(text: str, count: int = 5) -> list[str]:
    """The first lines that say something, shortened, as evidence."""
    return [" ".join(line.split())[:200] for line in text.splitlines() if line.strip()][:count]


def judge_call(outcome: Outcome, reading: Reading) -> tuple[Check, list[Cause]]:
    """The check `driver.smi`, and the causes that were found on the way."""
    expected = "nvidia-smi to read every GPU"
    if outcome.problem in ("missing", "timeout", "stuck") or (outcome.problem and outcome.rc is None):
        words = {
            "missing": ("no nvidia-smi on this node", "Install the driver's utilities package, or the driver itself"),
            "timeout": (
                f"no answer within {outcome.limit:g} s, nvidia-smi was killed",
                "Read dmesg for Xid 79 and 119, then reset the GPU that they name or power-cycle the node",
            ),
            "stuck": (
                f"no answer within {outcome.limit:g} s, and nvidia-smi cannot be killed",
                "Power-cycle the node: a GPU holds the process in the kernel",
            ),
        }
        found, remedy = words.get(outcome.problem, (f"nvidia-smi does not start ({outcome.problem})", "Reinstall nvidia-smi"))
        return Check("driver.smi", FAIL, found, expected, remedy, _lines(outcome.text)), []
    named = causes(outcome.text) if not reading.gpus or outcome.rc not in (0, None) else []
    code = outcome.rc or 0
    evidence = ([] if outcome.rc is None else [f"exit status {outcome.rc}"]) + (
        _lines(outcome.text) if not reading.gpus else []
    )
    if named:
        return Check("driver.smi", FAIL, named[0].found, expected, named[0].remedy, evidence), named
    if code == 14 and reading.gpus:
        return Check("driver.smi", WARN, CODES[14].found, expected, CODES[14].remedy, evidence), []
    if code:
        cause = CODES.get(code) or Cause("code", f"exit status {code}", "Read dmesg for NVRM and Xid lines")
        return Check("driver.smi", FAIL, cause.found, expected, cause.remedy, evidence), [cause]
    if not reading.gpus:
        remedy = "Run nvidia-smi -q -x by hand and compare; something else answers under its name"
        return Check("driver.smi", FAIL, "output that is not nvidia-smi's", expected, remedy, evidence), []
    if reading.partial and reading.form in ("query", "table"):
        remedy = "Give the whole output, so that every GPU is in it"
        return Check("driver.smi", WARN, "a piece of nvidia-smi's output", expected, remedy, evidence), []
    if reading.partial:
        remedy = "Run again; if it stays cut off, read dmesg for Xid lines"
        return Check(
            "driver.smi", FAIL, f"output cut off after {plural(len(reading.gpus), 'GPU')}", expected, remedy, evidence
        ), []
    return Check("driver.smi", PASS, f"{plural(len(reading.gpus), 'GPU')} read", expected, "", evidence), []


def _subject(gpu: Gpu) -> str:
    return f"GPU {gpu.bus_id or gpu.uuid or gpu.index}"


def is_lost(gpu: Gpu) -> bool:
    """The GPU answers nothing any more: its name itself is a word of trouble, or the driver says that it is lost."""
    return "product_name" in gpu.troubles or any(
        "lost" in word.lower() or "fallen" in word.lower() for word in gpu.troubles.values()
    )


def judge_count(reading: Reading, expected: Expected, named: Sequence[Cause]) -> Check:
    """`gpu.count`: GPUs that answer, against what is expected, else against what the driver says is attached."""
    alive = [gpu for gpu in reading.gpus if not is_lost(gpu)]
    wanted = expected.count if expected.count is not None else (len(expected.bus_ids) or reading.attached)
    if not reading.gpus and "devices" not in {cause.name for cause in named}:
        return Check("gpu.count", SKIP, None, wanted, "Bring nvidia-smi to answer first, see driver.smi")
    if not reading.gpus and wanted is None:
        return Check("gpu.count", FAIL, 0, "at least one GPU", DEVICES)
    seen = {gpu.bus_id for gpu in alive}
    missing = [bus for raw in expected.bus_ids if (bus := _smi_reading.bus_id(raw) or raw) not in seen]
    missing += [gpu.bus_id for gpu in reading.gpus if is_lost(gpu) and gpu.bus_id and gpu.bus_id not in missing]
    evidence = [f"{gpu.bus_id or '?'} {gpu.product or '?'} {gpu.uuid or ''}".rstrip() for gpu in alive]
    attached = reading.attached
    if wanted is None or len(alive) == wanted:
        if attached is None or attached == len(reading.gpus):
            return Check("gpu.count", PASS, len(alive), wanted, "", evidence)
        remedy = "Read dmesg for the GPU that the driver counts but cannot query, then reset or reseat it"
        return Check("gpu.count", FAIL, len(alive), f"{attached}, which the driver says are attached", remedy, evidence)
    if len(alive) < wanted:
        which = f"the missing GPU ({', '.join(missing)} answers nothing)" if missing else "the missing GPU"
        return Check(
            "gpu.count", FAIL, len(alive), plural(wanted, "GPU"), f"Reseat or replace {which}, then run again", evidence
        )
    return Check("gpu.count", FAIL, len(alive), plural(wanted, "GPU"), "Correct the expected count in the inventory", evidence)


def same_product(found: str, wanted: str) -> bool:
    """Every word of the wanted name is in the found one; a name that the table cut off with dots counts as far as it goes."""
    words = re.findall(r"[a-z0-9]+", wanted.lower())
    cut = found.endswith("...")
    have = re.findall(r"[a-z0-9]+", found.lower())
    if all(word in have for word in words):
        return True
    return cut and " ".join(words).startswith(" ".join(have))


def judge_product(reading: Reading, expected: Expected) -> Check:
    """`gpu.product`: every GPU that says its name has the expected one."""
    named = [gpu for gpu in reading.gpus if gpu.product]
    products = sorted({gpu.product for gpu in named if gpu.product})
    found = products[0] if len(products) == 1 else (products or None)
    if not named:
        return Check("gpu.product", SKIP, None, expected.product, "Bring nvidia-smi to answer first, see driver.smi")
    evidence = [f"{gpu.bus_id or gpu.uuid} {gpu.product}" for gpu in named]
    if expected.product is None:
        return Check("gpu.product", PASS, found, None, "", evidence)
    wrong = [gpu for gpu in named if not same_product(gpu.product or "", expected.product)]
    if not wrong:
        return Check("gpu.product", PASS, found, expected.product, "", evidence)
    where = ", ".join(f"{gpu.product} at {gpu.bus_id or gpu.uuid}" for gpu in wrong)
    if len(products) == 1:
        where = products[0]
    return Check(
        "gpu.product", FAIL, where, expected.product, "Swap the GPU, or correct gpu_expected in the inventory", evidence
    )


def _fabric_problem(gpu: Gpu) -> tuple[str, str] | None:
    state, status = gpu.fabric.get("state"), gpu.fabric.get("status")
    remedy = "Start nvidia-fabricmanager of exactly the driver's version, wait until the fabric is completed, then run again"
    if state and state.lower() in ("in progress", "not started"):
        return f"its NVLink fabric {state.lower()}, so that CUDA fails with error 802", remedy
    if state and status and status.lower() not in ("success",):
        return f"its NVLink fabric {state.lower()} with status {status}", remedy
    health = gpu.fabric.get("health")
    if (health and health.lower() not in ("healthy",)) or (gpu.fabric.get("route_unhealthy") or "").lower() == "true":
        return (
            f"its NVLink fabric unhealthy ({health or 'route'})",
            "Read the fabric manager's log and the switches' state; reset the GPU",
        )
    return None


def judge_state(gpu: Gpu, corrupted: Sequence[str]) -> Check:
    """`gpu.state` of one GPU: it answers, nothing asks for a reset, its fabric is up, and nothing brakes it."""
    subject, expected = _subject(gpu), "a GPU that answers and needs no reset"
    evidence = [f"{name}: {word}" for name, word in sorted(gpu.troubles.items())]
    if is_lost(gpu):
        return Check("gpu.state", FAIL, "a GPU that answers nothing", expected, LOST, evidence, subject)
    grave = [name for name in gpu.troubles if not SENSORS.match(name)]
    if grave:
        found = f"{gpu.troubles[grave[0]]} in the place of {grave[0]}"
        return Check(
            "gpu.state", FAIL, found, expected, "Reset the GPU, and power-cycle the node if that fails", evidence, subject
        )
    if gpu.recovery:
        remedy = f"Drain the node, then do what the driver asks for: {gpu.recovery}"
        return Check("gpu.state", FAIL, f"the driver asks for {gpu.recovery}", expected, remedy, evidence, subject)
    fabric = _fabric_problem(gpu)
    if fabric:
        return Check("gpu.state", FAIL, fabric[0], expected, fabric[1], evidence, subject)
    if gpu.bus_id in corrupted:
        remedy = "Update the board's firmware or have it replaced; it may go on working"
        return Check("gpu.state", WARN, "a corrupted infoROM", expected, remedy, evidence, subject)
    braked = sorted(HARMFUL_THROTTLE & set(gpu.throttle))
    if braked:
        remedy = "Check cooling, power cables and power supplies"
        return Check("gpu.state", WARN, f"clocks braked by {', '.join(braked)}", expected, remedy, evidence, subject)
    if gpu.troubles:
        remedy = "Look again later; if the sensor stays silent, reset the GPU"
        first = sorted(gpu.troubles)[0]
        return Check("gpu.state", WARN, f"{gpu.troubles[first]} in the place of {first}", expected, remedy, evidence, subject)
    return Check("gpu.state", PASS, gpu.performance_state or "answers", expected, "", evidence, subject)


def judge_ecc(gpu: Gpu) -> Check:
    """`gpu.ecc.uncorrectable` of one GPU. Errors since the last reset count, those of its whole life only warn."""
    check = "gpu.ecc.uncorrectable"
    subject = _subject(gpu)
    recent = gpu.ecc.get("volatile", {}).get("uncorrectable")
    ever = gpu.ecc.get("aggregate", {}).get("uncorrectable")
    evidence = [
        f"{name}: {value}"
        for name, value in (
            ("volatile uncorrectable", recent),
            ("aggregate uncorrectable", ever),
            ("rows remapped for uncorrectable errors", gpu.remapped.get("uncorrectable")),
            ("row remapping failure", gpu.remapped.get("failure")),
            ("row remapping pending", gpu.remapped.get("pending")),
            ("pages retired for double bit errors", gpu.retired.get("double_bit")),
            ("page retirement pending", gpu.retired.get("pending")),
            ("SRAM threshold exceeded", gpu.ecc.get("threshold_exceeded")),
        )
        if value is not None
    ]
    replace, none = "Drain the node and have the GPU replaced", "no uncorrectable error"
    if gpu.remapped.get("failure"):
        return Check(check, FAIL, "a failed row remapping", none, replace, evidence, subject)
    if gpu.ecc.get("threshold_exceeded"):
        return Check(check, FAIL, "more uncorrectable SRAM errors than the threshold", none, replace, evidence, subject)
    if gpu.repairs.get("unrepairable_memory"):
        return Check(check, FAIL, "memory that cannot be repaired", none, replace, evidence, subject)
    if recent:
        return Check(
            check, FAIL, recent, 0, "Drain the node and reset the GPU; replace it if errors come back", evidence, subject
        )
    waiting = [name for name, value in gpu.repairs.items() if value]
    if gpu.remapped.get("pending") or gpu.retired.get("pending") or waiting:
        found = waiting[0].replace("_", " ") if waiting else "a repair that waits for a reset"
        return Check(check, WARN, found, none, "Drain the node and reset the GPU", evidence, subject)
    if recent is None:
        return Check(check, SKIP, None, none, "", evidence, subject)
    if ever:
        return Check(
            check,
            WARN,
            f"none since the last reset, {ever} ever",
            none,
            "Watch the GPU; replace it if it goes on",
            evidence,
            subject,
        )
    return Check(check, PASS, 0, 0, "", evidence, subject)


def judge_memory(gpu: Gpu, expected: Expected) -> Check:
    """`gpu.memory` of one GPU: the framebuffer that the driver manages."""
    subject = _subject(gpu)
    if gpu.memory_mib is None:
        return Check("gpu.memory", SKIP, None, expected.memory_mib, "", [], subject)
    evidence = [f"total {gpu.memory_mib} MiB", f"used {gpu.memory_used_mib} MiB"]
    found = f"{gpu.memory_mib} MiB"
    if gpu.memory_mib == 0:
        return Check(
            "gpu.memory", FAIL, found, "memory", "Reset the GPU, and replace it if it stays without", evidence, subject
        )
    if expected.memory_mib is None:
        return Check("gpu.memory", PASS, found, None, "", evidence, subject)
    wanted = f"{expected.memory_mib} MiB"
    if gpu.memory_mib < expected.memory_mib * (1 - MEMORY_TOLERANCE):
        return Check("gpu.memory", FAIL, found, wanted, "Check the GPU's product and its virtual profile", evidence, subject)
    return Check("gpu.memory", PASS, found, wanted, "", evidence, subject)


def judge_ecc_mode(gpu: Gpu, wanted: bool) -> Check:
    """`gpu.ecc.mode` of one GPU; a GPU without ECC is skipped when it should be on and passes when it should be off."""
    mode = gpu.ecc.get("enabled")
    if mode is None:
        return Check("gpu.ecc.mode", SKIP, None, wanted, "", [], _subject(gpu))
    if mode == wanted:
        return Check("gpu.ecc.mode", PASS, mode, wanted, "", [], _subject(gpu))
    turn = "1" if wanted else "0"
    remedy = f"Run nvidia-smi -i {gpu.bus_id} -e {turn} and reset the GPU"
    return Check("gpu.ecc.mode", FAIL, mode, wanted, remedy, [f"pending: {gpu.ecc.get('pending')}"], _subject(gpu))


def same_version(found: str, wanted: str) -> bool:
    """The wanted version is the found one or its first numbers: `580` and `580.95` fit `580.95.05`, `58` does not."""
    have, want = found.split("."), wanted.split(".")
    return have[: len(want)] == want


def judge_version(reading: Reading, expected: Expected) -> Check:
    """`driver.version`: what the driver itself answers with."""
    found, wanted = reading.driver_version, expected.driver_version
    if found is None:
        return Check("driver.version", SKIP, None, wanted, "Bring nvidia-smi to answer first, see driver.smi")
    evidence = [f"CUDA {reading.cuda_version}"] if reading.cuda_version else []
    if wanted is None or same_version(found, wanted):
        return Check("driver.version", PASS, found, wanted, "", evidence)
    remedy = "Install the planned driver and reboot, or correct the plan"
    return Check("driver.version", FAIL, found, wanted, remedy, evidence)


def judge(reading: Reading, outcome: Outcome, expected: Expected) -> list[Check]:
    """All checks on one call of nvidia-smi, the cause before its consequences."""
    call, named = judge_call(outcome, reading)
    checks = [call]
    known = {gpu.bus_id for gpu in reading.gpus}
    for cause in named:
        if cause.bus_id and cause.name == "lost" and cause.bus_id not in known:
            known.add(cause.bus_id)
            state = Check(
                "gpu.state", FAIL, cause.found, "a GPU that answers", cause.remedy, _lines(outcome.text), f"GPU {cause.bus_id}"
            )
            checks.append(state)
    checks += [judge_count(reading, expected, named), judge_product(reading, expected), judge_version(reading, expected)]
    for gpu in reading.gpus:
        checks += [judge_state(gpu, reading.corrupted), judge_ecc(gpu), judge_memory(gpu, expected)]
        if expected.ecc is not None:
            checks.append(judge_ecc_mode(gpu, expected.ecc))
    return checks
