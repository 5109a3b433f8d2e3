# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""What works with what: pure functions over the data files in `data/`.

Nothing here knows a version number; the numbers and their sources are in `data/compatibility.yml`, `data/gpus.yml` and
`data/distributions/*.yml`. Runs on the control node only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

Data = Mapping[str, Any]

#: The data folder of this collection.
DATA = Path(__file__).resolve().parents[2] / "data"

OPEN = "open"
PROPRIETARY = "proprietary"


@dataclass(frozen=True)
class Gpu:
    """A GPU on the bus. product and architecture are None for a device id that the data does not know."""

    bus_id: str
    device_id: str
    product: str | None
    architecture: str | None

    @property
    def name(self) -> str:
        """Its product as people say it, or its PCI id."""
        return self.product or f"10de:{self.device_id}"


@dataclass(frozen=True)
class ImageNeeds:
    """What a container image needs of the node. driver: lowest driver; compute: lowest compute capability; None: any."""

    kind: str
    release: str
    cuda: str | None
    driver: str | None
    compute: str | None
    glibc: str | None


@lru_cache(maxsize=4)
def load(directory: str | Path = DATA) -> Data:
    """The data files as one dictionary; `distributions` is keyed `<distribution>-<major>`.

    Raises FileNotFoundError when a file is missing, yaml.YAMLError when one is broken.
    """
    root = Path(directory)
    data: dict[str, Any] = {}
    for name in ("compatibility.yml", "gpus.yml"):
        data.update(yaml.safe_load((root / name).read_text(encoding="utf-8")))
    data["distributions"] = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((root / "distributions").glob("*.yml"))
    }
    data["by_device"] = {
        device: (product, architecture) for architecture, rows in data["gpus"].items() for device, product in rows.items()
    }
    return data


def version_key(text: str) -> tuple[int, ...]:
    """The numbers of a version, to compare by: `570.133.20` → (570, 133, 20). Trailing text is left out."""
    match = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def branch_of(version: str | None) -> str:
    """The driver branch of a version (`580.95.05` → `580`); empty for None or text without a number."""
    key = version_key(version or "")
    return str(key[0]) if key else ""


def driver_at_least(driver: str, floor: str) -> bool:
    """Whether a driver reaches a floor. A bare branch stands for its newest release: `570` reaches `570.133.20`."""
    have, need = version_key(driver), version_key(floor)
    if len(have) == 1:
        return have[0] >= need[0]
    return have >= need


def identify(gpus: Iterable[Mapping[str, Any]], data: Data) -> list[Gpu]:
    """Product and architecture of what `node_info` found on the bus."""
    found = []
    for gpu in gpus:
        device = str(gpu.get("device_id", "")).lower()
        product, architecture = data["by_device"].get(device, (None, None))
        found.append(Gpu(str(gpu.get("bus_id", "")), device, product, architecture))
    return found


def gpu_flavours(gpu: Gpu, data: Data) -> frozenset[str]:
    """Kernel-module flavours that can drive a GPU; both for an unknown one, since nothing is known against either."""
    exception = data["products"].get(gpu.device_id, {}).get("flavours")
    if exception:
        return frozenset(exception)
    if gpu.architecture is None:
        return frozenset((OPEN, PROPRIETARY))
    return frozenset(data["architectures"][gpu.architecture]["flavours"])


def knows(branch: str, gpu: Gpu, data: Data) -> bool:
    """Whether a branch has releases that know this GPU. Unknown GPUs pass: the node's plan warns of them."""
    if gpu.architecture is None:
        return True
    row = data["architectures"][gpu.architecture]
    number = int(branch)
    if row["first_branch"] is not None and number < int(row["first_branch"]):
        return False
    if row["last_branch"] is not None and number > int(row["last_branch"]):
        return False
    minimum = minimum_driver(gpu, data)
    return minimum is None or driver_at_least(branch, minimum)


def minimum_driver(gpu: Gpu, data: Data) -> str | None:
    """The lowest driver of a product that needs more than its architecture does, else None."""
    minimum = data["products"].get(gpu.device_id, {}).get("minimum")
    return str(minimum) if minimum else None


def flavours(branch: str, gpus: Sequence[Gpu], data: Data) -> list[str]:
    """Flavours in which a branch drives all these GPUs together, the preferred one first; empty when there is none."""
    row = data["branches"].get(branch)
    if row is None or not all(knows(branch, gpu, data) for gpu in gpus):
        return []
    possible = set(row["flavours"])
    for gpu in gpus:
        possible &= gpu_flavours(gpu, data)
    return sorted(possible, key=lambda flavour: (flavour != row["prefers"], flavour))


def describe(gpus: Sequence[Gpu]) -> str:
    """GPUs in words, each product once: `2 × H100 SXM5 80GB (hopper), V100 (volta)`."""
    words = []
    for name in dict.fromkeys(gpu.name for gpu in gpus):
        same = [gpu for gpu in gpus if gpu.name == name]
        count = f"{len(same)} × " if len(same) > 1 else ""
        words.append(f"{count}{name} ({same[0].architecture or 'unknown architecture'})")
    return ", ".join(words)


def why_not(branch: str, flavour: str, gpus: Sequence[Gpu], data: Data) -> str:
    """Why a branch (in a flavour; empty: in any) does not drive these GPUs, naming the GPU; empty when it does."""
    row = data["branches"].get(branch)
    if row is None:
        return f"R{branch} is no branch that this collection knows ({', '.join(data['branches'])})"
    if flavour and flavour not in row["flavours"]:
        return f"R{branch} has {' and '.join(row['flavours'])} modules only"
    for gpu in gpus:
        if not knows(branch, gpu, data):
            return _out_of_range(branch, gpu, data)
        usable = gpu_flavours(gpu, data)
        if flavour and flavour not in usable:
            return f"{gpu.name} ({gpu.architecture}) works with {' and '.join(sorted(usable))} modules only"
        if not usable & set(row["flavours"]):
            return (
                f"{gpu.name} ({gpu.architecture}) needs {' or '.join(sorted(usable))} modules, "
                f"R{branch} has {' and '.join(row['flavours'])} ones only"
            )
    if not flavours(branch, gpus, data):
        return f"no one flavour of R{branch} drives {describe(gpus)} together"
    return ""


def _out_of_range(branch: str, gpu: Gpu, data: Data) -> str:
    row = data["architectures"][gpu.architecture or ""]
    last = row["last_branch"]
    if last is not None and int(branch) > int(last):
        return f"{gpu.name} ({gpu.architecture}) was dropped after R{last}"
    floor = minimum_driver(gpu, data) or f"R{row['first_branch']}"
    return f"{gpu.name} ({gpu.architecture}) needs driver {floor} or later"


def working_branches(gpus: Sequence[Gpu], data: Data) -> list[tuple[str, str]]:
    """(branch, preferred flavour) pairs that drive all these GPUs, the recommended ones first."""
    order = [*data["recommended"], *sorted(set(data["branches"]) - set(data["recommended"]), key=int, reverse=True)]
    return [(branch, usable[0]) for branch in order if (usable := flavours(branch, gpus, data))]


def end_of_life(branch: str, today: date, data: Data) -> str | None:
    """The month in which a branch's life ended, when that is past; None while it is supported.

    A row with a year alone counts from the end of that year.
    """
    until = data["branches"].get(branch, {}).get("end_of_life")
    if not until:
        return None
    year, _dash, month = str(until).partition("-")
    return str(until) if (today.year, today.month) > (int(year), int(month or 12)) else None


def cuda_floor(cuda: str, data: Data) -> str | None:
    """The lowest driver that runs a CUDA version by minor-version compatibility; None for an unknown major."""
    floor = data["cuda_floors"].get(cuda.split(".")[0])
    return str(floor) if floor else None


def image_needs(image: str, data: Data) -> ImageNeeds | None:
    """What an image reference says about its needs; None when it names nothing that the data knows.

    The registry does not matter, so that a mirror's copy is judged like the original.
    """
    name, _at, _digest = image.partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        path, tag = name, ""
    if path.rsplit("/", 1)[-1] in data["triton"]["image_names"]:
        release = data["triton"]["releases"].get(tag.split("-")[0])
        if release is None:
            return None
        floor = cuda_floor(release["cuda"], data)
        return ImageNeeds("Triton", tag.split("-")[0], release["cuda"], floor, release["min_compute"], None)
    for row in data["nim"]:
        if re.search(row["match"], f"/{path}"):
            return ImageNeeds(f"NIM ({row['kind']})", tag, None, row["driver"], None, row["glibc"])
    return None


def newest_triton(driver: str, data: Data) -> str | None:
    """The newest Triton release that a driver (a version or a branch) runs without a compatibility package."""
    for release in sorted(data["triton"]["releases"], key=version_key, reverse=True):
        floor = cuda_floor(data["triton"]["releases"][release]["cuda"], data)
        if floor and driver_at_least(driver, floor):
            return str(release)
    return None


def lowest_compute(gpus: Sequence[Gpu], data: Data) -> str | None:
    """The lowest compute capability that the architectures present may have; None when none is known."""
    values = [value for gpu in gpus if gpu.architecture for value in data["architectures"][gpu.architecture]["compute"]]
    return min(values, key=version_key, default=None)


def distribution(name: str, major: str, data: Data) -> Mapping[str, Any] | None:
    """The row of a distribution and major version, None when this collection does not support it."""
    row: Mapping[str, Any] | None = data["distributions"].get(f"{name.lower()}-{major}")
    return row


def offers(row: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """What a distribution packages: (branch, flavour) → packages, module_name, dkms_name, persistenced.

    A row keyed `{branch}` stands for each branch in its `for`, with `{branch}` replaced in its packages.
    """
    table: dict[tuple[str, str], dict[str, Any]] = {}
    source = (row.get("driver") or {}).get("distribution")
    for key, entry in ((source or {}).get("branches") or {}).items():
        for branch in entry.get("for") or [key]:
            for flavour in (OPEN, PROPRIETARY):
                if flavour not in entry:
                    continue
                offer = dict(entry[flavour])
                offer["packages"] = [package.replace("{branch}", branch) for package in offer["packages"]]
                table[branch, flavour] = offer
    return table
