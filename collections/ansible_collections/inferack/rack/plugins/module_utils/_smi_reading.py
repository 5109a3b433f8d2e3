# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read what nvidia-smi prints: `-q -x`, `-q`, the table, `--query-gpu` CSV and `-L`, of every version since 384.

All forms become the same `Reading`. Tags were renamed with the document type's versions (10 to 13 so far), so that each field
is looked up under all its names. What is `N/A`, deprecated, forbidden or absent is None, never zero.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Fields of one GPU as text, by their tag path without the outermost element: `fb_memory_usage/total`.
Fields = dict[str, str]

BUS_ID = re.compile(r"\b([0-9A-Fa-f]{4}(?:[0-9A-Fa-f]{4})?):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])\b")
_NUMBER = re.compile(r"^\[?(-?\d+(?:\.\d+)?)(?:\s*(?:MiB|%|C|W|MHz|us|KB/s|bank\(s\)|x))?\]?$")
_NOTHING = re.compile(
    r"^\[?(?:|N/?A|None|Not Supported|Not Available|Unknown|.*deprecated|Insufficient Permissions)\]?$", re.IGNORECASE
)

#: Words in the place of a value that say that the GPU itself is in trouble.
TROUBLE = re.compile(
    r"ERR!|Unknown Error|GPU is lost|requires? reset|fallen off the bus|GPU access blocked|Timeout", re.IGNORECASE
)

#: A warning behind a good answer; nvidia-smi names the GPU with four or eight digits of domain, or `000X`-like.
INFOROM = re.compile(r"WARNING:\s*infoROM is corrupted at gpu\s+(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory in MiB, temperature in degrees Celsius, power in watts, utilisation in percent.

    bus_id: as in /sys/bus/pci/devices, lower case.
    ecc: mode and pending mode as booleans; volatile and aggregate counts of correctable and uncorrectable errors.
    retired: pages by cause, and whether a retirement waits for a reset; remapped: the same for rows.
    mig: enabled, and the memory of each device in MiB.
    fabric: state, status and health as nvidia-smi words them.
    throttle: names of the reasons that slow the clocks now.
    recovery: the action that the driver recommends, None for none.
    troubles: fields in whose place nvidia-smi printed a word of trouble.
    """

    bus_id: str | None = None
    index: int | None = None
    minor: int | None = None
    product: str | None = None
    architecture: str | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    utilization_percent: float | None = None
    persistence: bool | None = None
    performance_state: str | None = None
    virtualization: str | None = None
    ecc: dict[str, Any] = field(default_factory=dict)
    retired: dict[str, Any] = field(default_factory=dict)
    remapped: dict[str, Any] = field(default_factory=dict)
    repairs: dict[str, bool | None] = field(default_factory=dict)
    mig: dict[str, Any] = field(default_factory=dict)
    fabric: dict[str, str | None] = field(default_factory=dict)
    link: dict[str, int | None] = field(default_factory=dict)
    throttle: list[str] = field(default_factory=list)
    recovery: str | None = None
    troubles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """What nvidia-smi said about the whole node.

    form: `xml`, `query`, `table`, `csv`, `list`, or `none` when nothing of that kind was found.
    attached: how many GPUs the driver says are attached; None when it does not say.
    partial: the output ends in the middle, or is a piece of a longer one.
    corrupted: bus ids with a corrupted infoROM, as nvidia-smi names them.
    """

    form: str = "none"
    driver_version: str | None = None
    cuda_version: str | None = None
    attached: int | None = None
    gpus: list[Gpu] = field(default_factory=list)
    partial: bool = False
    corrupted: list[str] = field(default_factory=list)


def as_dict(reading: Reading) -> dict[str, Any]:
    """The reading as the dictionary that the modules return."""
    return asdict(reading)


def clean(value: str | None) -> str | None:
    """The text of a value; None for the many ways to say that there is none, and for words of trouble."""
    if value is None:
        return None
    text = " ".join(value.split())
    return None if _NOTHING.match(text) or TROUBLE.search(text) else text


def number(value: str | None) -> float | None:
    """The number in `81559 MiB`, `26.16 W`, `16x`; None where there is none."""
    text = clean(value)
    match = _NUMBER.match(text) if text else None
    return float(match.group(1)) if match else None


def whole(value: str | None) -> int | None:
    """As `number`, without a fraction."""
    found = number(value)
    return None if found is None else int(found)


def yes(value: str | None) -> bool | None:
    """True for Yes, Enabled, On, Active; False for their opposites; else None."""
    text = (clean(value) or "").lower()
    if text in ("yes", "enabled", "on", "active", "true"):
        return True
    return False if text in ("no", "disabled", "off", "not active", "false") else None


def version(*values: str | None) -> str | None:
    """The first version number in the values. From 610 on the old keys carry a remark behind it, and new keys say the same."""
    for value in values:
        match = re.match(r"^\D{0,8}?(\d+(?:\.\d+)+)", clean(value) or "")
        if match:
            return match.group(1)
    return None


def bus_id(text: str | None) -> str | None:
    """A bus id as the kernel writes it: `00000000:07:00.0` and `0000:07:00.0` are `0000:07:00.0`."""
    match = BUS_ID.search(text or "")
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def first(fields: Mapping[str, str], *names: str) -> str | None:
    """The first of the named fields that is there and says something; else the first that is there."""
    present = [fields[name] for name in names if name in fields]
    return next((value for value in present if clean(value) is not None), present[0] if present else None)


def _total(fields: Mapping[str, str], *names: str) -> int | None:
    """The sum of the named counters that are known; None when none is."""
    known = [count for name in names if (count := whole(fields.get(name))) is not None]
    return sum(known) if known else None


def _errors(fields: Mapping[str, str], period: str, kind: str) -> int | None:
    """Count of ECC errors: kind `correctable` or `uncorrectable` in the period `volatile` or `aggregate`."""
    base = f"ecc_errors/{period}/"
    bits = {"correctable": "single_bit", "uncorrectable": "double_bit"}[kind]
    old = _total(fields, f"{base}{bits}/total")
    if old is None:
        places = (
            "device_memory",
            "register_file",
            "l1_cache",
            "l2_cache",
            "texture_memory",
            "texture_shared",
            "texture_shm",
            "cbu",
        )
        old = _total(fields, *(f"{base}{bits}/{place}" for place in places))
    new = _total(
        fields,
        *(f"{base}{memory}_{kind}{suffix}" for memory in ("sram", "dram") for suffix in ("", "_parity", "_secded", "_sec_ded")),
    )
    return old if new is None else new


def _mig(fields: Mapping[str, str]) -> dict[str, Any]:
    devices: dict[str, int | None] = {}
    for name in fields:
        match = re.match(r"^mig_devices?/(?:mig_device)?(#\d+)?/?(?:shared_)?fb_memory_usage/total$", name)
        if match:
            devices[match.group(1) or "#1"] = whole(fields[name])
    return {"enabled": yes(first(fields, "mig_mode/current_mig", "mig_mode/current")), "devices_mib": list(devices.values())}


def _throttle(fields: Mapping[str, str]) -> list[str]:
    found = []
    for name, value in fields.items():
        match = re.match(r"^clocks_(?:throttle|event)_reasons/(?:.*/)?(?:clocks_(?:throttle|event)_reason_)?(\w+)$", name)
        if match and yes(value) and match.group(1) not in ("gpu_idle", "idle"):
            found.append(match.group(1))
    return sorted(found)


def gpu(fields: Fields, index: int | None = None, bus: str | None = None) -> Gpu:
    """A GPU from its fields, whatever their version calls them."""
    virtualization = clean(
        first(
            fields,
            "gpu_virtualization_mode/virtualization_mode",
            "gpu_virtualization_mode/virtualization",
            "virtualization_mode",
        )
    )
    temperature = number(first(fields, "temperature/gpu_temp", "temperature/gpu_current_temp"))
    if (virtualization or "").upper() == "VGPU":
        temperature = None  # a guest of a virtual GPU reads 0, which is not its temperature
    recovery = clean(fields.get("gpu_recovery_action"))
    for name in ("gpu_reset_status/reset_required", "gpu_reset_status/drain_and_reset_recommended"):
        if recovery is None and yes(fields.get(name)):
            recovery = name.rsplit("/", 1)[1].replace("_", " ")
    power = ("gpu_power_readings", "power_readings", "module_power_readings")
    draws = ("average_power_draw", "power_draw", "instant_power_draw", "instantaneous_power_draw")
    limits = ("current_power_limit", "power_limit", "gpu_ceiling_power_limit/current_power_limit")
    return Gpu(
        bus_id=bus_id(first(fields, "pci/pci_bus_id", "pci/bus_id")) or bus_id(bus),
        index=index,
        minor=whole(fields.get("minor_number")),
        product=clean(fields.get("product_name")),
        architecture=clean(fields.get("product_architecture")),
        uuid=clean(first(fields, "uuid", "gpu_uuid")),
        serial=clean(first(fields, "serial", "serial_number")),
        vbios=clean(fields.get("vbios_version")),
        memory_mib=whole(fields.get("fb_memory_usage/total")),
        memory_used_mib=whole(fields.get("fb_memory_usage/used")),
        memory_free_mib=whole(fields.get("fb_memory_usage/free")),
        temperature_c=temperature,
        power_w=number(first(fields, *(f"{place}/{draw}" for place in power for draw in draws))),
        power_limit_w=number(first(fields, *(f"{place}/{limit}" for place in power for limit in limits))),
        utilization_percent=number(first(fields, "utilization/gpu_util", "utilization/gpu")),
        persistence=yes(fields.get("persistence_mode")),
        performance_state=clean(fields.get("performance_state")),
        virtualization=virtualization,
        ecc={
            "enabled": yes(first(fields, "ecc_mode/current_ecc", "ecc_mode/current")),
            "pending": yes(first(fields, "ecc_mode/pending_ecc", "ecc_mode/pending")),
            "volatile": {kind: _errors(fields, "volatile", kind) for kind in ("correctable", "uncorrectable")},
            "aggregate": {kind: _errors(fields, "aggregate", kind) for kind in ("correctable", "uncorrectable")},
            "threshold_exceeded": yes(fields.get("ecc_errors/aggregate/sram_threshold_exceeded")),
        },
        retired={
            "single_bit": whole(
                first(fields, "retired_pages/multiple_single_bit_retirement/retired_count", "retired_pages/single_bit_ecc")
            ),
            "double_bit": whole(
                first(fields, "retired_pages/double_bit_retirement/retired_count", "retired_pages/double_bit_ecc")
            ),
            "pending": yes(
                first(
                    fields,
                    "retired_pages/pending_retirement",
                    "retired_pages/pending_blacklist",
                    "retired_pages/pending_page_blacklist",
                )
            ),
        },
        remapped={
            "correctable": whole(first(fields, "remapped_rows/remapped_row_corr", "remapped_rows/correctable_error")),
            "uncorrectable": whole(first(fields, "remapped_rows/remapped_row_unc", "remapped_rows/uncorrectable_error")),
            "pending": yes(first(fields, "remapped_rows/remapped_row_pending", "remapped_rows/pending")),
            "failure": yes(first(fields, "remapped_rows/remapped_row_failure", "remapped_rows/remapping_failure_occurred")),
        },
        repairs={
            name: yes(first(fields, f"ecc_errors/{name}", name))
            for name in ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory")
        },
        mig=_mig(fields),
        fabric={
            "state": clean(fields.get("fabric/state")),
            "status": clean(fields.get("fabric/status")),
            "health": clean(fields.get("fabric/health/summary")),
            "route_unhealthy": clean(fields.get("fabric/health/route_unhealthy")),
        },
        link={
            "generation": whole(
                first(fields, "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "pci/gpu_link_info/pcie_generation/current")
            ),
            "generation_max": whole(
                first(fields, "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pci/gpu_link_info/pcie_generation/max")
            ),
            "width": whole(
                first(fields, "pci/pci_gpu_link_info/link_widths/current_link_width", "pci/gpu_link_info/link_width/current")
            ),
            "width_max": whole(
                first(fields, "pci/pci_gpu_link_info/link_widths/max_link_width", "pci/gpu_link_info/link_width/max")
            ),
        },
        throttle=_throttle(fields),
        recovery=recovery,
        troubles={
            name: " ".join(value.split())
            for name, value in fields.items()
            if TROUBLE.search(value) and not name.startswith("processes/")
        },
    )


def _flatten(element: ElementTree.Element, path: str, fields: Fields) -> None:
    counts: dict[str, int] = {}
    repeated = {child.tag for child in element if sum(other.tag == child.tag for other in element) > 1}
    for child in element:
        if not isinstance(child.tag, str):
            continue
        counts[child.tag] = counts.get(child.tag, 0) + 1
        name = f"{path}{child.tag}" + (f"#{counts[child.tag]}" if child.tag in repeated and len(child) else "")
        if len(child):
            _flatten(child, name + "/", fields)
        else:
            fields.setdefault(name, child.text or "")


def read_xml(text: str) -> Reading:
    """Read `nvidia-smi -q -x`. Of a text that ends in the middle the GPUs before the break are kept and `partial` is set.

    The document type is cut away before parsing: nothing in it is needed, and an entity declared there could do harm.
    """
    start = text.find("<nvidia_smi_log")
    if start < 0:
        return Reading()
    end = text.find("</nvidia_smi_log>", start)
    body = text[start : end + len("</nvidia_smi_log>")] if end >= 0 else text[start:]
    parser: ElementTree.XMLPullParser[Any] = ElementTree.XMLPullParser(["start", "end"])
    root: ElementTree.Element | None = None
    gpus: list[Gpu] = []
    partial = end < 0
    events: list[Any] = []
    parser.feed(re.sub(r"<!(?:DOCTYPE|ENTITY)[^>]*>", "", body))
    try:
        for found in parser.read_events():
            events.append(found)  # one by one, so that what came before the break is kept
    except ElementTree.ParseError:
        partial = True
    for event, element in events:
        if event == "start" and root is None:
            root = element
        if event == "end" and element.tag == "gpu":
            fields: Fields = {}
            for noisy in [child for child in element if child.tag in ("supported_clocks", "processes", "accounted_processes")]:
                element.remove(noisy)
            _flatten(element, "", fields)
            gpus.append(gpu(fields, len(gpus), element.get("id")))
    top = {} if root is None else {child.tag: child.text for child in root if len(child) == 0}
    return Reading(
        form="xml",
        driver_version=version(top.get("kmd_version"), top.get("driver_version")),
        cuda_version=version(top.get("cuda_umd_version"), top.get("cuda_version")),
        attached=whole(top.get("attached_gpus")),
        gpus=gpus,
        partial=partial,
    )


def _tag(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", label.strip().lower()).strip("_")


def read_query(text: str) -> Reading:
    """Read `nvidia-smi -q`, or a piece of it: sections are indented by four, keys and values divided by ` : `.

    A piece that names no GPU gives one without bus id.
    """
    heading = re.search(r"^=+\s*NVSMI LOG\s*=+\s*$", text, re.MULTILINE)
    body = text[heading.end() :] if heading else text
    top: Fields = {}
    blocks: list[tuple[str | None, Fields]] = []
    stack: list[tuple[int, str]] = []
    mig = 0
    for line in body.splitlines():
        if line.startswith(("####", "=====")):
            break
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        opening = re.match(r"^GPU ([0-9A-Fa-f]{4,8}:\S+)\s*$", line)
        if opening:
            blocks.append((opening.group(1), {}))
            stack, mig = [], 0
            continue
        match = re.match(r"^\s*(\S.*?)\s*:\s(.*)$", line) or re.match(r"^\s*(\S.*?)\s+:()$", line)
        while stack and stack[-1][0] >= indent:
            stack.pop()
        if not match:
            name = _tag(line)
            if name == "mig_device":
                mig += 1
                name = f"mig_device/#{mig}"
            stack.append((indent, name))
            continue
        if not blocks:
            if indent == 0:
                top[_tag(match.group(1))] = match.group(2)
                continue
            blocks.append((None, {}))
        key = "/".join([*(name for _indent, name in stack), _tag(match.group(1))])
        if not key.startswith("processes/"):
            blocks[-1][1].setdefault(key, match.group(2))
        stack.append((indent, _tag(match.group(1))))
    attached = whole(top.get("attached_gpus"))
    return Reading(
        form="query",
        driver_version=version(top.get("kmd_version"), top.get("driver_version")),
        cuda_version=version(top.get("cuda_umd_version"), top.get("cuda_version")),
        attached=attached,
        gpus=[gpu(fields, number_, bus) for number_, (bus, fields) in enumerate(blocks)],
        partial=not heading,
    )


_ROW_1 = re.compile(
    r"^\s*\|\s*(\d+)\s+(\S.*?)\s+(On|Off|N/A|ERR!)\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+"
    r"(On|Off|N/A|ERR!)\s*\|\s*(\S.*?)\s*\|\s*$"
)
_ROW_2 = re.compile(
    r"^\s*\|\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)\s+(\S.*?)\s*\|\s*$"
)
_ROW_3 = re.compile(r"^\s*\|\s*\|\s*\|\s*(\S+)\s*\|\s*$")


def read_table(text: str) -> Reading:
    """Read the table that nvidia-smi prints by itself. Names longer than their column end in three dots."""
    gpus: list[Gpu] = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        head = _ROW_1.match(line)
        if not head:
            continue
        index, name, persistence, bus, _display, errors = head.groups()
        fields: Fields = {"product_name": name, "persistence_mode": persistence, "ecc_errors/volatile/double_bit/total": errors}
        second = _ROW_2.match(lines[at + 1]) if at + 1 < len(lines) else None
        if second:
            fan, temperature, state, power, limit, used, total, load, _mode = second.groups()
            fields.update(
                {
                    "fan_speed": fan,
                    "temperature/gpu_temp": re.sub(r"C$", " C", temperature),
                    "performance_state": state,
                    "power_readings/power_draw": re.sub(r"W$", " W", power),
                    "power_readings/power_limit": re.sub(r"W$", " W", limit),
                    "fb_memory_usage/used": re.sub(r"MiB$", " MiB", used),
                    "fb_memory_usage/total": re.sub(r"MiB$", " MiB", total),
                    "utilization/gpu_util": re.sub(r"%$", " %", load),
                }
            )
        third = _ROW_3.match(lines[at + 2]) if at + 2 < len(lines) else None
        if third:
            fields["mig_mode/current_mig"] = third.group(1)
        gpus.append(gpu(fields, int(index), bus))
    driver = re.search(r"(?:Driver|KMD) Version:\s*(\S+)", text)
    cuda = re.search(r"CUDA(?: UMD)? Version:\s*(\S+)", text)
    header = re.search(r"\|\s*NVIDIA-SMI\s", text)
    return Reading(
        form="table" if gpus or header else "none",
        driver_version=version(driver.group(1)) if driver and header else None,
        cuda_version=version(cuda.group(1)) if cuda and header else None,
        gpus=gpus,
        partial=not header,
    )


#: Columns of `--query-gpu` and the tags they stand for.
COLUMNS = {
    "name": "product_name",
    "gpu_name": "product_name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "serial": "serial",
    "gpu_serial": "serial",
    "vbios_version": "vbios_version",
    "pci.bus_id": "pci/pci_bus_id",
    "gpu_bus_id": "pci/pci_bus_id",
    "memory.total": "fb_memory_usage/total",
    "memory.used": "fb_memory_usage/used",
    "memory.free": "fb_memory_usage/free",
    "temperature.gpu": "temperature/gpu_temp",
    "power.draw": "power_readings/power_draw",
    "power.draw.average": "gpu_power_readings/average_power_draw",
    "power.limit": "power_readings/power_limit",
    "utilization.gpu": "utilization/gpu_util",
    "persistence_mode": "persistence_mode",
    "pstate": "performance_state",
    "fan.speed": "fan_speed",
    "mig.mode.current": "mig_mode/current_mig",
    "ecc.mode.current": "ecc_mode/current_ecc",
    "ecc.mode.pending": "ecc_mode/pending_ecc",
    "ecc.errors.corrected.volatile.total": "ecc_errors/volatile/single_bit/total",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors/volatile/double_bit/total",
    "ecc.errors.corrected.aggregate.total": "ecc_errors/aggregate/single_bit/total",
    "ecc.errors.uncorrected.aggregate.total": "ecc_errors/aggregate/double_bit/total",
    "retired_pages.sbe": "retired_pages/single_bit_ecc",
    "retired_pages.dbe": "retired_pages/double_bit_ecc",
    "retired_pages.pending": "retired_pages/pending_retirement",
    "remapped_rows.correctable": "remapped_rows/remapped_row_corr",
    "remapped_rows.uncorrectable": "remapped_rows/remapped_row_unc",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending",
    "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "pcie.link.gen.current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie.link.gen.max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie.link.width.current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie.link.width.max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "fabric.state": "fabric/state",
    "fabric.status": "fabric/status",
    "gpu_recovery_action": "gpu_recovery_action",
}


def read_csv(text: str) -> Reading:
    """Read `nvidia-smi --query-gpu=… --format=csv`, with or without units in its heading."""
    rows = list(csv.reader(text.strip().splitlines(), skipinitialspace=True))
    if len(rows) < 2:
        return Reading()
    names = [re.sub(r"\s*\[.*\]$", "", name.strip()) for name in rows[0]]
    if not {"pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "name", "gpu_name"} & set(names):
        return Reading()
    gpus: list[Gpu] = []
    driver: str | None = None
    partial = False
    for row in rows[1:]:
        if len(row) != len(names):
            partial = True
            continue
        values = dict(zip(names, row))
        driver = driver or version(values.get("kmd_version"), values.get("driver_version"))
        fields = {COLUMNS[name]: value for name, value in values.items() if name in COLUMNS}
        gpus.append(gpu(fields, whole(values.get("index")), None))
    return Reading(form="csv", driver_version=driver, gpus=gpus, partial=partial)


def read_list(text: str) -> Reading:
    """Read `nvidia-smi -L`, and the like headings of `nvlink -s` and `c2c -s`; MIG devices are indented lines."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        match = re.match(r"^GPU (\d+): (.+?) \(UUID: (GPU-[0-9a-fA-F-]+)\)\s*$", line)
        if match:
            gpus.append(gpu({"product_name": match.group(2), "uuid": match.group(3)}, int(match.group(1))))
    return Reading(form="list", gpus=gpus) if gpus else Reading()


def read(text: str) -> Reading:
    """Read whatever form of output a text holds; the fullest one wins when a text holds several."""
    corrupted = [bus_id(name) or name for name in INFOROM.findall(text)]
    if "<nvidia_smi_log" in text:
        reading = read_xml(text)
    elif re.search(r"^=+\s*NVSMI LOG\s*=+\s*$", text, re.MULTILINE):
        reading = read_query(text)
    else:
        reading = next(
            (found for found in (read_table(text), read_csv(text), read_list(text)) if found.form != "none"), Reading()
        )
        if reading.form == "none" and len(re.findall(r"^\s{4,}\S.*\s:\s", text, re.MULTILINE)) >= 2:
            fragment = read_query(text)
            known = any(found.fabric["state"] or found.memory_mib or found.product for found in fragment.gpus)
            reading = fragment if known else Reading()
    return Reading(**{**reading.__dict__, "corrupted": corrupted})
