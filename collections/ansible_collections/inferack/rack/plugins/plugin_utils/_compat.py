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

#: In place of a branch or version: the newest one that is still supported and fits.
LATEST = "latest"


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
    """What a container image needs of the node.

    kind: `Triton`, `CUDA` or `NIM (…)`.
    cuda: its CUDA version; driver: lowest driver; compute: lowest compute capability; glibc: lowest one; None: any, or unknown.
    known: False for a release newer than the data, of which these are lower bounds only.
    """

    kind: str
    release: str
    cuda: str | None
    driver: str | None
    compute: str | None
    glibc: str | None
    known: bool = True


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


def knows(driver: str, gpu: Gpu, data: Data) -> bool:
    """Whether a branch, or an exact version of it, knows this GPU. Unknown GPUs pass: the node's plan warns of them."""
    if gpu.architecture is None:
        return True
    known = data["architectures"][gpu.architecture]["branches"]
    number = int(branch_of(driver))
    if known["first"] is not None and number < int(known["first"]):
        return False
    if known["last"] is not None and number > int(known["last"]):
        return False
    minimum = minimum_driver(gpu, data)
    return minimum is None or driver_at_least(driver, minimum)


def minimum_driver(gpu: Gpu, data: Data) -> str | None:
    """The lowest driver of a product that needs more than its architecture does, else None."""
    minimum = data["products"].get(gpu.device_id, {}).get("minimum")
    return str(minimum) if minimum else None


def flavours(driver: str, gpus: Sequence[Gpu], data: Data) -> list[str]:
    """Flavours in which a driver drives all these GPUs together, the preferred one first; empty when there is none.

    driver: a branch, which stands for its newest release, or an exact version.
    """
    row = data["branches"].get(branch_of(driver))
    if row is None or not all(knows(driver, gpu, data) for gpu in gpus):
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


def why_not(driver: str, flavour: str, gpus: Sequence[Gpu], data: Data) -> str:
    """Why a branch or version (in a flavour; empty: in any) does not drive these GPUs, naming the GPU; empty when it does."""
    branch = branch_of(driver)
    row = data["branches"].get(branch)
    if row is None:
        return f"R{branch} is no branch that this collection knows ({', '.join(data['branches'])})"
    if flavour and flavour not in row["flavours"]:
        return f"R{branch} has {' and '.join(row['flavours'])} modules only"
    for gpu in gpus:
        if not knows(driver, gpu, data):
            return _out_of_range(branch, gpu, data)
        usable = gpu_flavours(gpu, data)
        if flavour and flavour not in usable:
            return f"{gpu.name} ({gpu.architecture}) works with {' and '.join(sorted(usable))} modules only"
        if not usable & set(row["flavours"]):
            return (
                f"{gpu.name} ({gpu.architecture}) needs {' or '.join(sorted(usable))} modules, "
                f"R{branch} has {' and '.join(row['flavours'])} ones only"
            )
    if not flavours(driver, gpus, data):
        return f"no one flavour of R{branch} drives {describe(gpus)} together"
    return ""


def _out_of_range(branch: str, gpu: Gpu, data: Data) -> str:
    known = data["architectures"][gpu.architecture or ""]["branches"]
    last = known["last"]
    if last is not None and int(branch) > int(last):
        return f"{gpu.name} ({gpu.architecture}) was dropped after R{last}"
    floor = minimum_driver(gpu, data) or f"R{known['first']}"
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


def life(branch: str, data: Data) -> str | None:
    """The month (YYYY-MM) or year in which a branch's life ends or ended; None when none was announced."""
    until = data["branches"].get(branch, {}).get("end_of_life")
    return str(until) if until else None


def newest_first(today: date, data: Data) -> list[str]:
    """All branches as `latest` tries them: the supported ones before those whose life has ended, each newest first."""
    return sorted(data["branches"], key=lambda branch: (end_of_life(branch, today, data) is not None, -int(branch)))


def cuda_floor(cuda: str, data: Data) -> str | None:
    """The lowest driver that runs a CUDA version by minor-version compatibility; None for an unknown major."""
    floor = data["cuda_floors"].get(cuda.split(".")[0])
    return str(floor) if floor else None


def image_needs(image: str, data: Data) -> ImageNeeds | None:
    """What an image reference says about its needs; None when it names nothing that the data knows.

    The registry does not matter, so that a mirror's copy is judged like the original. Of a Triton release newer than the data
    at least the newest known one's needs hold, since none ever went back to an older CUDA.
    """
    name, _at, _digest = image.partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        path, tag = name, ""
    last, version = path.rsplit("/", 1)[-1], tag.split("-")[0]
    if last in data["triton"]["image_names"]:
        return _triton_needs(version, data)
    if last in data["cuda_images"]["image_names"]:
        floor = cuda_floor(version, data)
        return ImageNeeds("CUDA", version, version, floor, None, None) if floor else None
    for row in data["nim"]:
        if re.search(row["match"], f"/{path}"):
            return ImageNeeds(f"NIM ({row['kind']})", tag, None, row["driver"], None, row["glibc"])
    return None


def _triton_needs(version: str, data: Data) -> ImageNeeds | None:
    releases = data["triton"]["releases"]
    newest = max(releases, key=version_key)
    known = version in releases
    if not known and not (re.fullmatch(r"\d\d\.\d\d", version) and version_key(version) > version_key(newest)):
        return None
    release = releases[version if known else newest]
    return ImageNeeds(
        "Triton", version, release["cuda"], cuda_floor(release["cuda"], data), release["min_compute"], None, known
    )


def image_conflict(needs: ImageNeeds, gpus: Sequence[Gpu], data: Data) -> str:
    """Why these GPUs cannot run an image, whatever the driver: what it needs that they lack; empty when they can."""
    compute = lowest_compute(gpus, data)
    if needs.compute and compute and version_key(compute) < version_key(needs.compute):
        return f"compute capability {needs.compute} or later"
    for gpu in gpus:
        last = data["architectures"][gpu.architecture]["cuda"]["last"] if gpu.architecture else None
        if last and needs.cuda and version_key(needs.cuda)[0] > int(last):
            return f"a later architecture than {gpu.architecture}, whose last CUDA is {last}.x"
    return ""


def image_too_old(needs: ImageNeeds, gpus: Sequence[Gpu], data: Data) -> str:
    """The first CUDA version with code for these GPUs, when the image's is older; else empty."""
    firsts = [
        str(data["products"].get(gpu.device_id, {}).get("cuda") or data["architectures"][gpu.architecture]["cuda"]["first"])
        for gpu in gpus
        if gpu.architecture and data["architectures"][gpu.architecture]["cuda"]["first"]
    ]
    first = max(firsts, key=version_key, default="")
    return first if first and needs.cuda and version_key(needs.cuda) < version_key(first) else ""


def newest_triton(driver: str, data: Data, gpus: Sequence[Gpu] = ()) -> str | None:
    """The newest Triton release that a driver (a version or a branch) runs on these GPUs without a compatibility package."""
    for release in sorted(data["triton"]["releases"], key=version_key, reverse=True):
        needs = _triton_needs(release, data)
        if needs and needs.driver and driver_at_least(driver, needs.driver) and not image_conflict(needs, gpus, data):
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
