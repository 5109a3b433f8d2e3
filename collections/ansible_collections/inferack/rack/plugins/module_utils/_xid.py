# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Xid and SXid messages: what each number means, whom it blames, and what to do.

Sources: NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors: description and resolution
bucket of each code) and "Xid Errors" (working with Xid errors 13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 154); forms
of the line since driver 173 from reports. The words here are ours.

Pure functions over data; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

APPLICATION, HARDWARE, DRIVER, SOFTWARE, LINK, INFORMATION = (
    "application", "hardware", "driver", "software", "nvlink", "information",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What Xids of one kind have in common.

    blames: `application` (the GPU is healthy), `hardware`, `driver`, `software` (application or driver), `nvlink`,
    `information`, `unknown`. severity: `fault`, `application` or `notice`. order: place among Xids of one GPU, the root first.
    """

    blames: str
    severity: str
    remedy: str
    order: int


#: Kinds by name, in the order of blame when one GPU has several.
KINDS: dict[str, Kind] = {
    "bus": Kind(
        HARDWARE,
        "fault",
        "Drain the node and power-cycle it; reseat the GPU and its power cables, and replace it if it goes again",
        0,
    ),
    "power": Kind(HARDWARE, "fault", "Attach the GPU's power cables and check the power supplies", 1),
    "memory": Kind(
        HARDWARE,
        "fault",
        "Drain the node and reset the GPU; check row remapping with nvidia-smi -q -d ROW_REMAPPER, and replace the GPU if "
        "errors come back",
        2,
    ),
    "memory_failure": Kind(HARDWARE, "fault", "Drain the node and reset the GPU; have it replaced if it happens again", 2),
    "memory_contained": Kind(
        HARDWARE,
        "fault",
        "Start the application anew; drain the node and reset the GPU when it is free, so that the bad row is remapped",
        3,
    ),
    "memory_remapped": Kind(
        HARDWARE, "notice", "Reset the GPU when it is free, so that the new row or page comes into force", 12
    ),
    "memory_correctable": Kind(HARDWARE, "notice", "Watch the GPU's corrected errors; have it replaced if they go on", 13),
    "firmware": Kind(
        DRIVER,
        "fault",
        "Drain the node and reset the GPU, or power-cycle the node if a reset is refused (reloading the module is not enough); "
        "if it comes back, update the driver, or switch GSP off (NVreg_EnableGpuFirmware=0, proprietary module only)",
        5,
    ),
    "hang": Kind(DRIVER, "fault", "Drain the node and reset the GPU; report it to NVIDIA if it comes back", 6),
    "nvlink": Kind(
        LINK,
        "fault",
        "Drain the node and reset the GPUs of this NVLink domain; check cables, bridges and switches if it comes back",
        4,
    ),
    "nvlink_nonfatal": Kind(LINK, "notice", "Nothing at once: watch the link's error counters, and act if it turns fatal", 11),
    "application": Kind(
        APPLICATION,
        "application",
        "Mend or restart the application; the GPU is healthy (compute-sanitizer finds the access)",
        9,
    ),
    "engine": Kind(SOFTWARE, "application", "Restart the application; report it to NVIDIA if it comes back", 8),
    "follow_on": Kind(APPLICATION, "application", "Look for the Xid before it, and restart the application", 10),
    "driver": Kind(DRIVER, "notice", "Nothing at once; update the driver if it comes back", 11),
    "software": Kind(SOFTWARE, "fault", "Update driver and firmware of the node", 8),
    "vm": Kind(DRIVER, "fault", "Restart the virtual machine", 7),
    "action": Kind(INFORMATION, "fault", "Do what the driver asks for", 7),
    "information": Kind(INFORMATION, "notice", "Nothing: it informs", 14),
    "reserved": Kind("unknown", "fault", "Report the line to NVIDIA: this code should not occur any more", 8),
    "unknown": Kind(
        "unknown",
        "fault",
        "Look the number up in NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors) for this driver",
        8,
    ),
}

#: Codes: (kind, what happened). Numbers that NVIDIA lists as unused are not here and read as `reserved`.
CATALOGUE: dict[int, tuple[str, str]] = {
    8: ("engine", "a GPU channel that stood still"),
    11: ("application", "a corrupt command stream"),
    13: ("application", "an exception in the application's GPU code"),
    14: ("information", "a test message"),
    25: ("application", "an illegal command stream"),
    31: ("application", "an access to GPU memory that is not mapped"),
    32: ("application", "a corrupt command stream"),
    37: ("driver", "a firmware method that is not there"),
    38: ("driver", "a firmware watchdog that ran out"),
    43: ("follow_on", "a channel that was stopped after the application's error"),
    44: ("driver", "a fault while switching contexts"),
    45: ("follow_on", "channels that were removed after an earlier error or the end of their process"),
    46: ("hang", "a GPU that stopped processing"),
    48: ("memory", "an uncorrectable memory error (double bit)"),
    54: ("power", "a GPU without auxiliary power"),
    56: ("driver", "a fault in the display engine"),
    57: ("memory_failure", "video memory whose link did not train"),
    58: ("memory_failure", "an error in video memory"),
    59: ("hang", "an error of the power management controller"),
    60: ("engine", "an exception in a video engine"),
    61: ("hang", "a stopped internal controller"),
    62: ("hang", "a halted internal controller"),
    63: ("memory_remapped", "a memory row or page that was marked for replacement"),
    64: ("memory_failure", "a memory row or page that could not be replaced"),
    66: ("driver", "an illegal access by the driver"),
    67: ("driver", "an illegal access by the driver"),
    69: ("application", "a command that the graphics engine does not know"),
    74: ("nvlink", "an NVLink error"),
    78: ("software", "a virtual GPU that did not start"),
    79: ("bus", "a GPU that has fallen off the bus"),
    80: ("application", "corrupt data sent to the GPU"),
    92: ("memory_correctable", "many corrected single-bit memory errors"),
    93: ("information", "an infoROM that is written too often"),
    94: ("memory_contained", "a memory error that was contained to one application"),
    95: ("memory", "a memory error that could not be contained"),
    106: ("information", "a test message"),
    107: ("information", "a test message"),
    108: ("driver", "a failed translation at the other end of an NVLink"),
    109: ("hang", "a context switch that timed out"),
    110: ("hang", "a security fault"),
    119: ("firmware", "GPU firmware (GSP) that does not answer"),
    120: ("firmware", "GPU firmware (GSP) that crashed"),
    121: ("driver", "a corrected error on the chip-to-chip link"),
    136: ("nvlink", "an NVLink that did not train"),
    137: ("driver", "an NVLink access without privilege, often an application's on another GPU"),
    140: ("memory", "an unrecovered memory error"),
    141: ("application", "an error in a fast path of CUDA"),
    142: ("engine", "an error in a video engine"),
    143: ("hang", "a GPU that did not initialise"),
    151: ("vm", "a key rotation that failed"),
    152: ("driver", "an error in a memory unit of the DLA"),
    153: ("driver", "a DLA that timed out"),
    154: ("action", "a changed recovery action"),
    155: ("nvlink", "an NVLink error defined by software"),
    156: ("memory_remapped", "a resource of the GPU that was retired"),
    157: ("memory_failure", "a resource of the GPU that could not be retired"),
    158: ("hang", "a GPU that timed out for good"),
    159: ("driver", "a bus error outside of data"),
    160: ("memory_remapped", "a memory channel that was retired"),
    161: ("memory_failure", "a memory channel that could not be retired"),
    162: ("information", "power smoothing that works again"),
    163: ("information", "power smoothing that was switched off"),
    164: ("information", "power smoothing near the end of its life"),
    165: ("information", "power smoothing at the end of its life"),
    166: ("nvlink", "unencrypted traffic on an encrypted NVLink"),
    167: ("bus", "a PCIe transaction that timed out for good"),
    168: ("memory", "a GPU with less memory, after errors in its protected region"),
    169: ("hang", "a halted security controller"),
    170: ("nvlink", "an interrupt of NVLink in confidential mode"),
    171: ("memory", "an uncorrectable error in DRAM"),
    172: ("memory", "an uncorrectable error in SRAM"),
    **dict.fromkeys(range(144, 151), ("nvlink", "an NVLink error")),
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), ("engine", "an exception in a copy engine")),
    **dict.fromkeys((68, 83, 84, 86, 88, 89, 96, 97, 98, 139), ("engine", "an exception in a video or flow engine")),
    **dict.fromkeys((82, *range(99, 106)), ("engine", "an exception in a JPEG engine")),
}

#: The largest number of the catalogue; smaller ones that are missing in it are unused.
LAST = 172

#: Numbers whose text says how grave they are: NVLink of the fifth generation.
BY_TEXT = range(144, 151)

#: Numbers of which each line may say something new, however many came before it.
VARIES = frozenset({45, 154, *BY_TEXT})

#: Recovery actions of Xid 154 in small letters, and what to do. Source: as above, and nvidia-smi(1), "GPU Recovery Action".
ACTIONS: dict[str, str] = {
    "none": "",
    "gpu reset required": "Drain the node and reset the GPU (nvidia-smi --gpu-reset)",
    "node reboot required": "Drain the node and reboot it",
    "drain p2p": "Drain peer-to-peer traffic from the GPU, then reset it",
    "drain and reset": "Let the work on the GPU end, take no new work, then reset it",
}

#: What a number explains when it came first on the same GPU; the star stands for every other.
EXPLAINS: dict[int, frozenset[int] | None] = {
    79: None,
    167: None,
    48: frozenset({43, 45, 63, 64, 92, 94, 95, 154, 156, 171, 172}),
    94: frozenset({43, 45, 63, 154, 156}),
    95: frozenset({43, 45, 63, 94, 154, 156}),
    140: frozenset({43, 45, 48, 94, 95, 154}),
    171: frozenset({43, 45, 94, 95, 154}),
    172: frozenset({43, 45, 94, 95, 154}),
    120: frozenset({43, 45, 62, 109, 119, 154}),
    119: frozenset({43, 45, 62, 109, 154}),
    13: frozenset({43, 45, 109}),
    31: frozenset({43, 45, 109}),
}

_LINE = re.compile(
    r"\b(S?)Xid\s*\((?:PCI:)?\s*(?P<bus>[0-9A-Fa-f]{1,8}(?::[0-9A-Fa-f]{1,4}){1,2}(?:\.[0-7])?)(?P<more>[^)]{0,40})\)\s*:\s*"
    r"(?P<number>\d{1,6})\b\s*,?\s*(?P<text>.{0,400})"
)
_PROCESS = re.compile(r"\bpid='?(?P<pid>[^',\s]+)'?,\s*(?:name=(?P<name>[^,]*),)?")
_CAUSED = re.compile(r"caused by previous Xid (\d{1,4})")
_ACTION = re.compile(r"changed from [^(]{0,20}\((?P<old>[^)]{1,60})\) to [^(]{0,20}\((?P<new>[^)]{1,60})\)")


@dataclass(frozen=True)
class Event:
    """One Xid or SXid line. bus: as in /sys/bus/pci/devices; process: name and id where the line has them, else empty."""

    number: int
    bus: str
    text: str
    switch: bool = False
    process: str = ""
    caused_by: int | None = None
    action: str = ""


@lru_cache(maxsize=4096)
def bus_id(text: str) -> str | None:
    """The GPU's id as in /sys/bus/pci/devices: `0000:9b:00`, `PCI:000d:00:00`, `00000000:9B:00.0` and the old `0001:00`."""
    match = re.fullmatch(r"(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{1,4}):([0-9A-Fa-f]{1,2})(?:\.([0-7]))?", text.strip())
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16) & 0xFF:02x}:{int(device, 16):02x}.{function or 0}"


def key(line: str) -> tuple[bool, str, int] | None:
    """Whether a switch said it, whose id and which number, at the price of one search; None in a line without an event."""
    match = _LINE.search(line)
    bus = bus_id(match.group("bus")) if match else None
    return (bool(match.group(1)), bus, int(match.group("number"))) if match and bus else None


def parse(line: str) -> Event | None:
    """The event in a line of the kernel log; None in a line without one."""
    match = _LINE.search(line)
    if not match:
        return None
    bus = bus_id(match.group("bus"))
    if bus is None:
        return None
    text = " ".join(match.group("text").split())
    process = _PROCESS.search(text)
    who = ""
    if process and "unknown" not in process.group("pid"):
        name = (process.group("name") or "").strip()
        who = f"{name} (pid {process.group('pid')})" if name and "<unknown>" not in name else f"pid {process.group('pid')}"
    caused = _CAUSED.search(text)
    action = _ACTION.search(text)
    return Event(
        number=int(match.group("number")),
        bus=bus,
        text=text,
        switch=bool(match.group(1)),
        process=who,
        caused_by=int(caused.group(1)) if caused else None,
        action=action.group("new").strip() if action else "",
    )


def kind_of(number: int, text: str = "") -> tuple[str, str]:
    """Kind and what happened, by the number and, where it decides, by the text."""
    if number in BY_TEXT and re.search(r"\bnon-?fatal\b", text, re.IGNORECASE):
        return "nvlink_nonfatal", "an NVLink error that was not fatal"
    if number == 63 and re.search(r"fail|unable|error", text, re.IGNORECASE):
        return "memory_failure", "a memory row or page that could not be replaced"
    if number in CATALOGUE:
        return CATALOGUE[number]
    if 0 < number <= LAST:
        return "reserved", "a code that NVIDIA lists as unused"
    return "unknown", "a code that this catalogue does not have"


def worst_text(numbers: Iterable[str]) -> str:
    """Of several texts of one number the one that decides: a fatal one before others, else the first."""
    texts = list(numbers)
    grave = [text for text in texts if not re.search(r"\bnon-?fatal\b", text, re.IGNORECASE)]
    return (grave or texts or [""])[0]


def explained_by(events: Sequence[Event], at: int) -> int | None:
    """The number of an earlier event on the same GPU that explains the event at this place; None when none does.

    45 and 43 follow any other event; 154 says what the driver wants after another, whichever came first in the log.
    """
    event = events[at]
    if event.caused_by is not None:
        return event.caused_by
    others = [other for other in events if other.bus == event.bus and other.switch == event.switch]
    if event.number == 154:
        return next((other.number for other in others if other.number not in (43, 45, 154)), None)
    for other in events[:at]:
        if other.bus != event.bus or other.number == event.number or other.switch != event.switch:
            continue
        if event.number in (43, 45) and other.number not in (43, 45, 154):
            return other.number
        if other.number in EXPLAINS:
            known = EXPLAINS[other.number]
            if known is None or event.number in known:
                return other.number
    return None
