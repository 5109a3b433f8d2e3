"""The compatibility data and the functions over it; the last test walks the whole table."""

from __future__ import annotations

import itertools
from datetime import date

import pytest

from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat

DATA = compat.load()
BY_ARCHITECTURE = {architecture: next(iter(rows)) for architecture, rows in DATA["gpus"].items()}


def gpus(*devices: str) -> list[compat.Gpu]:
    return compat.identify([{"bus_id": f"0000:0{i}:00.0", "device_id": device} for i, device in enumerate(devices)], DATA)


@pytest.mark.parametrize(
    ("device", "architecture", "product"),
    [
        ("102d", "kepler", "Tesla K80"),
        ("17fd", "maxwell", "Tesla M40"),
        ("15f8", "pascal", "Tesla P100 PCIe 16GB"),
        ("1db5", "volta", "Tesla V100 SXM2 32GB"),
        ("1eb8", "turing", "Tesla T4"),
        ("20b2", "ampere", "A100 SXM4 80GB"),
        ("26b9", "ada", "L40S"),
        ("27b8", "ada", "L4"),
        ("2330", "hopper", "H100 SXM5 80GB"),
        ("2331", "hopper", "H100 PCIe"),
        ("2335", "hopper", "H200 SXM 141GB"),
        ("2901", "blackwell", "B200"),
        ("31c2", "blackwell", "GB300"),
        ("2BB5", "blackwell", "RTX PRO 6000 Blackwell Server Edition"),
        ("ffff", None, None),
    ],
)
def test_identify(device: str, architecture: str | None, product: str | None) -> None:
    (gpu,) = gpus(device)
    assert (gpu.architecture, gpu.product) == (architecture, product)
    assert gpu.name == (product or "10de:ffff")


@pytest.mark.parametrize(
    ("branch", "devices", "expected"),
    [
        ("535", ("2330",), ["proprietary", "open"]),
        ("580", ("2330",), ["open", "proprietary"]),
        ("580", ("1db5",), ["proprietary"]),
        ("590", ("1db5",), []),
        ("580", ("2901",), ["open"]),
        ("550", ("2901",), []),
        ("570", ("2901",), ["open"]),
        ("615", ("2330",), ["open"]),
        ("580", ("1db5", "2330"), ["proprietary"]),
        ("580", ("1db5", "2901"), []),
        ("580", ("2342",), ["open"]),
        ("470", ("102d",), ["proprietary"]),
        ("470", ("2330",), []),
        ("580", ("ffff",), ["open", "proprietary"]),
        ("999", ("2330",), []),
    ],
)
def test_flavours(branch: str, devices: tuple[str, ...], expected: list[str]) -> None:
    assert compat.flavours(branch, gpus(*devices), DATA) == expected


@pytest.mark.parametrize(
    ("branch", "flavour", "devices", "reason"),
    [
        ("590", "", ("1db5",), "Tesla V100 SXM2 32GB (volta) was dropped after R580"),
        ("580", "proprietary", ("2901",), "B200 (blackwell) works with open modules only"),
        ("615", "proprietary", ("2330",), "R615 has open modules only"),
        ("550", "", ("2901",), "B200 (blackwell) needs driver 570.133.20 or later"),
        ("550", "", ("2b85",), "GeForce RTX 5090 (blackwell) needs driver R570 or later"),
        ("580", "", ("1db5", "2901"), "no one flavour of R580 drives Tesla V100 SXM2 32GB (volta), B200 (blackwell) together"),
        ("999", "", ("2330",), "R999 is no branch that this collection knows"),
        ("580", "open", ("2330",), ""),
    ],
)
def test_why_not(branch: str, flavour: str, devices: tuple[str, ...], reason: str) -> None:
    answer = compat.why_not(branch, flavour, gpus(*devices), DATA)
    assert answer.startswith(reason) if reason else answer == ""


@pytest.mark.parametrize(
    ("driver", "floor", "expected"),
    [
        ("580.65.06", "580", True),
        ("575.51.03", "580", False),
        ("570", "570.133.20", True),
        ("570.86.10", "570.133.20", False),
        ("580", "525", True),
        ("450.80.02", "450.80.02", True),
    ],
)
def test_driver_at_least(driver: str, floor: str, expected: bool) -> None:
    assert compat.driver_at_least(driver, floor) is expected


@pytest.mark.parametrize(
    ("image", "kind", "release", "driver"),
    [
        ("nvcr.io/nvidia/tritonserver:26.07-py3", "Triton", "26.07", "580"),
        ("mirror.example:5000/nvidia/tritonserver:24.10-py3", "Triton", "24.10", "525"),
        ("mirror.example:5000/nvidia/tritonserver:25.07-py3@sha256:ab", "Triton", "25.07", "525"),
        ("mirror.example/nvidia/cuda:13.0.1-base-ubuntu24.04", "CUDA", "13.0.1", "580"),
        ("nvidia/cuda:12.8.1-devel", "CUDA", "12.8.1", "525"),
        ("nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8.4", "NIM (large language model)", "1.8.4", "580"),
        ("nvcr.io/nim/nvidia/nv-embedqa-e5-v5:1.0", "NIM (embedding and reranking)", "1.0", None),
    ],
)
def test_image_needs(image: str, kind: str, release: str, driver: str | None) -> None:
    needs = compat.image_needs(image, DATA)
    assert needs is not None
    assert (needs.kind, needs.release, needs.driver) == (kind, release, driver)


@pytest.mark.parametrize(
    "image",
    [
        "busybox:1.36",
        "mirror.example:5000/tritonserver",
        "nvidia/tritonserver:23.01-py3",
        "nvidia/tritonserver:main",
        "tritonserver-like:1",
        "nvidia/cuda:latest",
        "nvidia/cuda:99.1-base",
    ],
)
def test_unknown_images_are_not_judged(image: str) -> None:
    assert compat.image_needs(image, DATA) is None


def test_a_release_newer_than_the_data_needs_at_least_what_the_newest_known_one_does() -> None:
    needs = compat.image_needs("nvidia/tritonserver:99.01-py3", DATA)
    assert needs is not None
    assert (needs.release, needs.driver, needs.compute, needs.known) == ("99.01", "580", "7.5", False)


@pytest.mark.parametrize(
    ("image", "devices", "conflict"),
    [
        ("nvidia/tritonserver:25.01-py3", ("1db5",), "compute capability 7.5 or later"),
        ("nvidia/tritonserver:24.12-py3", ("1db5",), ""),
        ("nvidia/cuda:13.0.1-base-ubuntu24.04", ("2330", "1db5"), "a later architecture than volta, whose last CUDA is 12.x"),
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", ("102d",), "a later architecture than kepler, whose last CUDA is 11.x"),
        ("nvidia/cuda:13.0.1-base-ubuntu24.04", ("2330", "ffff"), ""),
    ],
)
def test_images_that_no_driver_makes_run(image: str, devices: tuple[str, ...], conflict: str) -> None:
    needs = compat.image_needs(image, DATA)
    assert needs is not None
    assert compat.image_conflict(needs, gpus(*devices), DATA) == conflict


@pytest.mark.parametrize(
    ("image", "devices", "first"),
    [
        ("nvidia/tritonserver:24.12-py3", ("2901",), "12.8"),
        ("nvidia/tritonserver:25.01-py3", ("2901",), ""),
        ("nvidia/tritonserver:25.03-py3", ("2901", "3182"), "12.9"),
        ("nvidia/tritonserver:24.12-py3", ("2330", "1eb8"), ""),
        ("nvidia/tritonserver:24.12-py3", ("ffff",), ""),
    ],
)
def test_images_from_before_the_gpus(image: str, devices: tuple[str, ...], first: str) -> None:
    needs = compat.image_needs(image, DATA)
    assert needs is not None
    assert compat.image_too_old(needs, gpus(*devices), DATA) == first


@pytest.mark.parametrize(
    ("driver", "devices", "expected"),
    [
        ("570.133.20", ("2901",), ["open"]),
        ("570.124.06", ("2901",), []),
        ("575.51.03", ("3182",), []),  # no branch of the table, although new enough
        ("580.65.06", ("3182",), ["open"]),
        ("580.65.06", ("1db5",), ["proprietary"]),
    ],
)
def test_flavours_of_an_exact_version(driver: str, devices: tuple[str, ...], expected: list[str]) -> None:
    assert compat.flavours(driver, gpus(*devices), DATA) == expected


def test_latest_tries_the_supported_branches_first() -> None:
    order = compat.newest_first(date(2026, 11, 30), DATA)
    assert order[:5] == ["620", "615", "595", "590", "580"]
    assert order[5:7] == ["610", "570"]
    assert set(order) == set(DATA["branches"])


@pytest.mark.parametrize(("driver", "release"), [("580", "24.12"), ("535", "24.12"), ("470", None)])
def test_newest_triton_for_old_gpus(driver: str, release: str | None) -> None:
    assert compat.newest_triton(driver, DATA, gpus("1db5")) == release


@pytest.mark.parametrize(("driver", "release"), [("535", "25.07"), ("570.211.01", "25.07"), ("580", "26.07"), ("470", None)])
def test_newest_triton(driver: str, release: str | None) -> None:
    assert compat.newest_triton(driver, DATA) == release


@pytest.mark.parametrize(
    ("branch", "today", "ended"),
    [
        ("535", date(2026, 6, 30), None),
        ("535", date(2026, 7, 1), "2026-06"),
        ("550", date(2025, 12, 31), None),
        ("550", date(2026, 1, 1), "2025"),
        ("590", date(2030, 1, 1), None),
    ],
)
def test_end_of_life(branch: str, today: date, ended: str | None) -> None:
    assert compat.end_of_life(branch, today, DATA) == ended


def test_offers_expand_branches() -> None:
    table = compat.offers(DATA["distributions"]["ubuntu-24"])
    assert table["580", "open"]["packages"][0] == "nvidia-dkms-580-server-open"
    assert table["570", "proprietary"]["packages"][0] == "nvidia-dkms-570-server"
    assert compat.offers(DATA["distributions"]["openeuler-24"]) == {}


def test_every_row_has_a_source_and_every_id_one_architecture() -> None:
    for table in ("branches", "architectures", "products"):
        assert all(row["source"] for row in DATA[table].values()), table
    assert all(row["source"] for row in DATA["nim"])
    assert all(row["source"] for row in DATA["runfile"]["versions"].values())
    assert set(DATA["gpus"]) == set(DATA["architectures"])
    ids = [device for rows in DATA["gpus"].values() for device in rows]
    assert len(ids) == len(set(ids)) > 200
    assert all(len(device) == 4 and device == device.lower() for device in ids)
    assert set(DATA["recommended"]) <= set(DATA["branches"])
    assert set(DATA["runfile"]["versions"]) <= set(DATA["branches"])
    assert all(compat.branch_of(row["version"]) == branch for branch, row in DATA["runfile"]["versions"].items())
    assert set(DATA["products"]) <= set(ids)
    for row in DATA["branches"].values():
        assert row["prefers"] in row["flavours"]
        assert row["end_of_life"] is None or compat.version_key(str(row["end_of_life"]).replace("-", "."))
    for row in DATA["triton"]["releases"].values():
        assert compat.cuda_floor(row["cuda"], DATA)
    for name, row in DATA["distributions"].items():
        for (branch, flavour), _offer in compat.offers(row).items():
            assert flavour in DATA["branches"][branch]["flavours"], (name, branch, flavour)


def test_no_impossible_pair_in_the_whole_table() -> None:
    """Every branch with every pair of architectures, against the rules written out a second time (FACTS of the project)."""
    open_only = {"blackwell"}
    proprietary_only = {"kepler", "maxwell", "pascal", "volta"}
    last = {"kepler": 470, "maxwell": 580, "pascal": 580, "volta": 580}
    first = {"ada": 535, "hopper": 535, "blackwell": 570}
    walked = 0
    for branch, (one, other) in itertools.product(
        DATA["branches"], itertools.combinations_with_replacement(BY_ARCHITECTURE, 2)
    ):
        usable = compat.flavours(branch, gpus(BY_ARCHITECTURE[one], BY_ARCHITECTURE[other]), DATA)
        for flavour in ("open", "proprietary"):
            possible = all(
                int(branch) <= last.get(name, 9999)
                and int(branch) >= first.get(name, 0)
                and not (flavour == "open" and name in proprietary_only)
                and not (flavour == "proprietary" and name in open_only)
                for name in (one, other)
            )
            possible = possible and not (flavour == "proprietary" and int(branch) >= 615)
            possible = possible and not (flavour == "open" and int(branch) < 515)
            assert (flavour in usable) == possible, (branch, one, other, flavour)
            walked += 1
    print(f"walked {walked} combinations of branch, architectures and flavour")
    assert walked == len(DATA["branches"]) * 45 * 2


def test_no_impossible_pair_for_any_device_id() -> None:
    """Every device id with every branch and flavour: products that need more than their architecture are among them."""
    floors = {"2901": (570, "570.133.20"), "3182": (575, "575.51.03"), "31c2": (575, "575.51.03")}
    open_only = {"2342", "2348", *DATA["gpus"]["blackwell"]}
    no_open = {device for name in ("kepler", "maxwell", "pascal", "volta") for device in DATA["gpus"][name]}
    walked = 0
    for device, branch in itertools.product(DATA["by_device"], DATA["branches"]):
        usable = compat.flavours(branch, gpus(device), DATA)
        assert not (device in open_only and "proprietary" in usable), (device, branch)
        assert not (device in no_open and usable and ("open" in usable or int(branch) > 580)), (device, branch)
        assert not (int(branch) >= 615 and "proprietary" in usable), (device, branch)
        number, _floor = floors.get(device, (0, ""))
        assert not (usable and int(branch) < number), (device, branch)
        if not usable:
            assert compat.why_not(branch, "", gpus(device), DATA), (device, branch)
        walked += 1
    for device, (number, floor) in floors.items():
        below = f"{number}.1.1"
        assert compat.flavours(below, gpus(device), DATA) == []
        assert not compat.driver_at_least(below, floor)
    print(f"walked {walked} pairs of device id and branch")
    assert walked == len(DATA["by_device"]) * len(DATA["branches"]) > 2000
