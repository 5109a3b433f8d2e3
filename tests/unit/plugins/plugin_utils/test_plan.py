"""The plan for a node, and the refusals."""

from __future__ import annotations

import itertools
from datetime import date
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils._checks import from_dict, sentence
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat
from ansible_collections.inferack.rack.plugins.plugin_utils import _plan

from .nodes import SYSTEMS, bare, finished

DATA = compat.load()
SHA = "a" * 64
RUNFILE = {"url": "http://mirror.example/NVIDIA-{architecture}-{version}.run", "sha256": SHA, "version": "580.95.05"}


def make(node: dict[str, Any], **request: Any) -> dict[str, Any]:
    return _plan.plan(node, {"today": "2026-11-30", **request}, DATA)


def failing(plan: dict[str, Any]) -> list[str]:
    return [sentence(from_dict(check)) for check in plan["checks"] if check["status"] == "fail"]


@pytest.mark.parametrize(
    ("system", "devices", "request_", "expected"),
    [
        ("debian-12", ("2330",), {}, ("distribution", "535", "proprietary", "nvidia-kernel-dkms", "nvidia-current")),
        (
            "debian-13",
            ("2330",),
            {},
            ("distribution", "535", "proprietary", "nvidia-tesla-535-kernel-dkms", "nvidia-tesla-535"),
        ),
        (
            "debian-13",
            ("2330",),
            {"branch": "550"},
            ("distribution", "550", "proprietary", "nvidia-kernel-dkms", "nvidia-current"),
        ),
        ("ubuntu-24", ("26b9",), {}, ("distribution", "580", "open", "nvidia-dkms-580-server-open", "nvidia")),
        ("ubuntu-24", ("1db5",), {}, ("distribution", "580", "proprietary", "nvidia-dkms-580-server", "nvidia")),
        ("ubuntu-24", ("1db5", "2330"), {}, ("distribution", "580", "proprietary", "nvidia-dkms-580-server", "nvidia")),
        ("ubuntu-22", ("2330",), {"branch": "535"}, ("distribution", "535", "proprietary", "nvidia-dkms-535-server", "nvidia")),
        ("openeuler-24", ("20b2",), {"runfile": RUNFILE}, ("runfile", "580", "open", None, "nvidia")),
        ("debian-12", ("2901",), {"runfile": RUNFILE}, ("runfile", "580", "open", None, "nvidia")),
        ("debian-12", ("2330",), {"branch": "580", "runfile": RUNFILE}, ("runfile", "580", "open", None, "nvidia")),
        (
            "debian-12",
            ("2330",),
            {"runfile": RUNFILE},
            ("distribution", "535", "proprietary", "nvidia-kernel-dkms", "nvidia-current"),
        ),
    ],
)
def test_plans(system: str, devices: tuple[str, ...], request_: dict[str, Any], expected: tuple[Any, ...]) -> None:
    plan = make(bare(system, devices), **request_)
    assert failing(plan) == []
    driver = plan["driver"]
    first = driver["packages"][0] if driver["packages"] else None
    assert (driver["source"], driver["branch"], driver["flavour"], first, driver["module_name"]) == expected


@pytest.mark.parametrize(
    ("system", "devices", "request_", "words"),
    [
        (
            "ubuntu-24",
            ("1db5",),
            {"branch": "590"},
            [
                "R590 for Tesla V100",
                "dropped after R580",
                "inferack_driver_branch to 580 and inferack_driver_flavour to proprietary",
            ],
        ),
        (
            "ubuntu-24",
            ("2901",),
            {"flavour": "proprietary"},
            ["B200 (blackwell)", "open modules only", "inferack_driver_flavour to open"],
        ),
        (
            "ubuntu-24",
            ("2330",),
            {"branch": "615", "flavour": "proprietary"},
            ["R615 has open modules only", "inferack_driver_branch to 580"],
        ),
        ("ubuntu-24", ("1db5", "2901"), {}, ["no one flavour", "put these GPUs into different nodes"]),
        (
            "debian-12",
            ("2330",),
            {"flavour": "open", "source": "distribution"},
            ["cannot be installed beside them", "to proprietary"],
        ),
        (
            "debian-12",
            ("2330",),
            {"branch": "580", "source": "distribution"},
            ["packages R535 proprietary", "inferack_driver_branch to 535"],
        ),
        (
            "openeuler-24",
            ("20b2",),
            {"source": "distribution"},
            ["packages no NVIDIA driver", "inferack_driver_source to runfile"],
        ),
        ("openeuler-24", ("20b2",), {}, ["no sha256", "580.95.05", "sha256sum"]),
        ("openeuler-24", ("20b2",), {"runfile": {"sha256": "abc"}}, ["no valid sha256"]),
        (
            "openeuler-24",
            ("20b2",),
            {"branch": "595", "runfile": RUNFILE},
            ["inferack_driver_runfile of version 580.95.05", "a version of R595"],
        ),
        ("openeuler-24", ("20b2",), {"version": "580.1", "runfile": RUNFILE}, ["of version 580.95.05", "version 580.1"]),
        ("ubuntu-24", ("2330",), {"branch": "570", "version": "580.95.05"}, ["a version of that branch", "begins with 570"]),
        ("ubuntu-24", ("2330",), {"branch": "latest", "version": "580.95.05"}, ["latest and", "leave one of the two out"]),
        ("ubuntu-24", ("2330",), {"branch": "999"}, ["R999 is no branch"]),
        ("ubuntu-24", ("2330",), {"branch": "production"}, ["found inferack_driver_branch production", "580, or latest"]),
        ("ubuntu-24", ("2330",), {"version": "580"}, ["found inferack_driver_version 580,", "exact version such as 580.95.05"]),
        (
            "ubuntu-24",
            ("2901",),
            {"version": "570.124.06"},
            ["570.124.06 for B200", "needs driver 570.133.20 or later", "inferack_driver_version to a later release of R570"],
        ),
        (
            "openeuler-24",
            ("2901",),
            {"runfile": {**RUNFILE, "version": "570.124.06"}},
            ["B200", "needs driver 570.133.20 or later", "inferack_driver_branch to 580"],
        ),
        (
            "ubuntu-24",
            ("1db5", "2330"),
            {"flavour": "open"},
            ["Tesla V100 SXM2 32GB (volta) works with proprietary modules only", "inferack_driver_flavour to proprietary"],
        ),
        ("ubuntu-24", ("1db5",), {"branch": "R590"}, ["R590 for Tesla V100", "dropped after R580"]),
        ("ubuntu-24", ("102d",), {}, ["no version of R470"]),
    ],
)
def test_refusals_name_both_sides_and_the_way_out(
    system: str, devices: tuple[str, ...], request_: dict[str, Any], words: list[str]
) -> None:
    plan = make(bare(system, devices), **request_)
    (text,) = failing(plan)
    assert text.startswith("driver.plan")
    for word in words:
        assert word in text, text


@pytest.mark.parametrize(
    ("system", "devices", "request_", "branch", "until"),
    [
        ("ubuntu-24", ("2330",), {"branch": "latest"}, "580", "life ends 2028-06"),
        ("ubuntu-24", ("1db5", "2330"), {"branch": "latest"}, "580", "life ends 2028-06"),
        ("ubuntu-24", ("2330",), {"version": "latest"}, "580", "life ends 2028-06"),
        ("openeuler-24", ("20b2",), {"branch": "latest", "runfile": {"sha256": SHA}}, "595", "life ends 2027-03"),
        ("openeuler-24", ("1db5",), {"branch": "latest", "runfile": {"sha256": SHA}}, "580", "life ends 2028-06"),
        ("openeuler-24", ("20b2",), {"branch": "latest", "runfile": RUNFILE}, "580", "life ends 2028-06"),
        ("debian-13", ("2330",), {"branch": "latest"}, "550", "life ends 2025"),
    ],
)
def test_latest_warns_with_the_date(
    system: str, devices: tuple[str, ...], request_: dict[str, Any], branch: str, until: str
) -> None:
    plan = make(bare(system, devices), **request_)
    assert failing(plan) == []
    assert plan["driver"]["branch"] == branch
    (warning,) = (text for text in plan["warnings"] if "latest, which is" in text)
    assert f"R{branch} on 2026-11-30 ({until})" in warning
    assert f"Set inferack_driver_branch to {branch}" in warning


def test_the_newest_release_of_a_named_branch_is_no_moving_target() -> None:
    plan = make(bare("ubuntu-24"), branch="580", version="latest")
    assert (plan["driver"]["branch"], plan["driver"]["version"]) == ("580", "")
    assert not any("latest" in warning for warning in plan["warnings"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "no"),
        ({"nouveau": {"loaded": True}}, "yes"),
        ({"driver": {"loaded_version": "525.147.05"}}, "in use"),
        ({"driver": {"module_version": "535.247.01"}, "kernel": {"headers": False}}, "in use"),
        ({"driver": {"loaded_version": None}}, "no"),
    ],
)
def test_the_plan_says_whether_a_reboot_is_needed(changes: dict[str, Any], expected: str) -> None:
    assert make(finished(**changes))["driver"]["reboot"] == expected


@pytest.mark.parametrize(
    ("system", "devices", "image", "request_", "words"),
    [
        (
            "debian-12",
            ("2330",),
            "nvidia/tritonserver:26.07-py3",
            {},
            ["Triton 25.07, or set inferack_driver_branch to 580 (from the runfile)"],
        ),
        (
            "ubuntu-24",
            ("2330",),
            "nvidia/tritonserver:25.10-py3",
            {"branch": "570"},
            ["found driver R570, expected 580 or later for CUDA 13.0.2", "set inferack_driver_branch to 580."],
        ),
        ("ubuntu-24", ("1db5",), "nvidia/tritonserver:25.10-py3", {}, ["expected compute capability 7.5", "Triton 24.12"]),
        ("ubuntu-24", ("1db5",), "nvidia/cuda:13.0.1-base", {}, ["whose last CUDA is 12.x", "use an older image"]),
        ("ubuntu-24", ("2330",), "nvidia/cuda:13.0.1-base", {"branch": "535"}, ["R535", "580 or later for CUDA 13.0.1"]),
        ("debian-12", ("2330",), "nvidia/tritonserver:99.01-py3", {}, ["Triton 99.01 (CUDA 13.3.0 or later)"]),
        (
            "openeuler-24",
            ("102d",),
            "nim/meta/llama:1",
            {"branch": "470", "runfile": {**RUNFILE, "version": "470.256.02"}},
            ["no later driver drives Tesla K80"],
        ),
    ],
)
def test_images_that_do_not_fit_name_the_nearest_way_out(
    system: str, devices: tuple[str, ...], image: str, request_: dict[str, Any], words: list[str]
) -> None:
    (text,) = failing(make(bare(system, devices, glibc="2.39"), images=[f"mirror.example/{image}"], **request_))
    assert text.startswith("engine.image, image mirror.example/")
    for word in words:
        assert word in text, text


@pytest.mark.parametrize(
    ("devices", "image", "words"),
    [
        (("2901",), "nvidia/tritonserver:24.12-py3", "CUDA 12.6.3, older than B200"),
        (("2330",), "nvidia/tritonserver:99.01-py3", "Triton 99.01, a release that this collection does not know"),
    ],
)
def test_images_that_may_not_fit_warn(devices: tuple[str, ...], image: str, words: str) -> None:
    plan = make(bare("ubuntu-24", devices), images=[image])
    assert failing(plan) == []
    assert any(words in warning for warning in plan["warnings"])


@pytest.mark.parametrize(
    ("image", "devices", "status"),
    [
        ("nvcr.io/nvidia/tritonserver:26.07-py3", ("2330",), "fail"),
        ("nvcr.io/nvidia/tritonserver:25.07-py3", ("2330",), "pass"),
        ("nvcr.io/nvidia/tritonserver:25.07-py3", ("1db5",), "fail"),
        ("nvcr.io/nvidia/tritonserver:24.10-py3", ("1db5",), "pass"),
        ("nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8.4", ("2330",), "fail"),
        ("busybox:1", ("2330",), None),
    ],
)
def test_images_against_the_driver(image: str, devices: tuple[str, ...], status: str | None) -> None:
    plan = make(bare("debian-12", devices), images=[image])
    found = [check["status"] for check in plan["checks"] if check["id"] == "engine.image"]
    assert found == ([] if status is None else [status])


def test_an_image_that_is_too_new_is_answered_with_one_that_works() -> None:
    (text,) = failing(make(bare(), images=["nvcr.io/nvidia/tritonserver:26.07-py3"]))
    assert "driver R535" in text
    assert "580 or later for CUDA 13.3.0" in text
    assert "Triton 25.07" in text


@pytest.mark.parametrize(("found", "expected", "status"), [(2, 4, "fail"), (2, 2, "pass"), (2, 1, "warn"), (2, None, None)])
def test_gpu_count(found: int, expected: int | None, status: str | None) -> None:
    plan = make(bare(device_ids=("2330",) * found), gpu_expected={} if expected is None else {"count": expected})
    statuses = [check["status"] for check in plan["checks"] if check["id"] == "gpu.count"]
    assert statuses == ([] if status is None else [status])


def test_missing_gpus_are_named() -> None:
    (text,) = failing(make(bare(device_ids=("2330",)), gpu_expected={"count": 2}))
    assert text.startswith("gpu.count: found 1, expected 2 GPUs; ")
    assert "0000:07:00.0" in text


def test_no_gpu_at_all() -> None:
    node = bare(device_ids=())
    assert make(node)["driver"] is None
    assert failing(make(node)) == []
    (text,) = failing(make(node, gpu_node=True))
    assert text.startswith("gpu.present: found no NVIDIA GPU on the PCI bus")


def test_an_unknown_gpu_warns() -> None:
    plan = make(bare("ubuntu-24", ("ffff",)))
    assert failing(plan) == []
    assert any("10de:ffff" in warning for warning in plan["warnings"])


def test_end_of_life_warns_with_the_date() -> None:
    assert any("life ended 2026-06" in warning for warning in make(bare())["warnings"])
    assert not any("life ended" in warning for warning in _plan.plan(bare(), {"today": "2026-01-01"}, DATA)["warnings"])


def test_unsupported_distribution() -> None:
    node = bare()
    node["os"].update(distribution="Rocky", version="9.4", major="9")
    (text,) = failing(make(node))
    assert text.startswith("node.os: found Rocky 9.4 on x86_64, expected Debian 12, ")
    node = bare()
    node["os"]["architecture"] = "aarch64"
    assert failing(make(node))[0].startswith("node.os: found Debian 12 on aarch64")


def test_headers_of_exactly_the_running_kernel() -> None:
    assert make(bare())["driver"]["headers"] == ["linux-headers-6.1.0-42-amd64"]
    release = SYSTEMS["openeuler-24"][4]
    headers = make(bare("openeuler-24", ("20b2",)), runfile=RUNFILE)["driver"]["headers"]
    assert headers == [f"kernel-devel-{release}", f"kernel-headers-{release}"]


def test_a_self_built_kernel_needs_no_header_package() -> None:
    node = bare()
    node["kernel"]["headers"] = True
    assert make(node)["driver"]["headers"] == []
    node["packages"] = {"linux-headers-6.1.0-42-amd64": "6.1"}
    assert make(node)["driver"]["headers"] == ["linux-headers-6.1.0-42-amd64"]


def test_components_reuse_uris_and_keys() -> None:
    sources = make(bare())["driver"]["apt_sources"]
    assert sources == [
        {
            "uris": ["http://mirror.example/debian"],
            "suites": ["bookworm", "bookworm-updates"],
            "components": ["contrib", "non-free", "non-free-firmware"],
            "signed_by": "/usr/share/keyrings/debian-archive-keyring.gpg",
        },
        {
            "uris": ["http://mirror.example/debian-security"],
            "suites": ["bookworm-security"],
            "components": ["contrib", "non-free"],
            "signed_by": None,
        },
    ]


def test_our_own_components_file_changes_nothing() -> None:
    node = bare()
    before = make(node)["driver"]["apt_sources"]
    node["sources"] += [{**entry, "file": "/etc/apt/sources.list.d/inferack-driver.sources", "type": "deb"} for entry in before]
    assert make(node)["driver"]["apt_sources"] == before


def test_other_peoples_sources_are_left_alone() -> None:
    node = bare()
    node["sources"] = [{**node["sources"][0], "suites": ["bookworm-backports"]}, {**node["sources"][0], "type": "deb-src"}]
    assert make(node)["driver"]["apt_sources"] == []


def test_a_key_inside_the_source_is_refused() -> None:
    node = bare()
    node["sources"][0]["signed_by"] = "inline"
    (text,) = failing(make(node))
    assert text.startswith("driver.plan, apt components")


def test_an_exact_version_pins_what_carries_the_drivers_version() -> None:
    driver = make(bare(), version="535.309.01")["driver"]
    assert "nvidia-kernel-dkms=535.309.01*" in driver["packages"]
    assert "nvidia-persistenced" in driver["packages"]
    assert (driver["branch"], driver["version"]) == ("535", "535.309.01")


@pytest.mark.parametrize(
    ("branch", "version", "option"),
    [
        ("580", "580.95.05", "--kernel-module-type=open"),
        ("535", "535.288.01", "--kernel-module-build-directory=kernel"),
    ],
)
def test_the_installer(branch: str, version: str, option: str) -> None:
    plan = make(bare("openeuler-24", ("20b2",)), runfile={**RUNFILE, "version": version}, branch=branch)
    runfile = plan["driver"]["runfile"]
    assert runfile["url"] == f"http://mirror.example/NVIDIA-x86_64-{version}.run"
    assert runfile["sha256"] == SHA
    assert {"--dkms", "--silent", "--no-opengl-files", option} <= set(runfile["arguments"])


def test_an_unchecked_installer_only_warns() -> None:
    plan = make(bare("openeuler-24", ("20b2",)), runfile={"sha256": "unverified"})
    assert failing(plan) == []
    assert plan["driver"]["runfile"]["sha256"] == ""
    assert plan["driver"]["runfile"]["url"].startswith("https://us.download.nvidia.com/tesla/580.95.05/")
    assert any("nobody checked" in warning for warning in plan["warnings"])


def test_a_finished_node_is_ready() -> None:
    assert make(finished())["driver"]["ready"] is True
    assert make(bare())["driver"]["ready"] is False
    assert make(finished(kernel={"headers": False}))["driver"]["ready"] is False
    assert make(finished("550.163.01"))["driver"]["ready"] is False


def test_facts_that_could_not_be_read_stop_the_plan() -> None:
    with pytest.raises(ValueError, match="kernel could not be read"):
        make(bare(kernel=None))
    with pytest.raises(ValueError, match="unknown keys in the request: brunch"):
        make(bare(), brunch="580")
    with pytest.raises(ValueError, match="reboot_ok must be true or false, found 'false'"):
        make(bare(), reboot_ok="false")


def possible(devices: tuple[str, ...], branch: str, flavour: str) -> bool:
    """Whether a driver exists that drives these GPUs, by the rules written out a second time."""
    kinds = {DATA["by_device"][device][1] for device in devices}
    number = int(branch)
    old, open_only = {"kepler", "maxwell", "pascal", "volta"}, {"blackwell"}
    return not (
        (kinds & old and (flavour == "open" or number > 580))
        or ("kepler" in kinds and number > 470)
        or (kinds & open_only and (flavour == "proprietary" or number < 570))
        or (kinds & {"ada", "hopper"} and number < 535)
        or (number >= 615 and flavour == "proprietary")
        or (number < 515 and flavour == "open")
    )


def test_every_request_ends_in_a_fitting_plan_or_a_refusal() -> None:
    """Every GPU generation (pairs too) × branch × flavour × source, on one system of each kind."""
    one_of_each = [next(iter(rows)) for rows in DATA["gpus"].values()]
    sets = [(device,) for device in one_of_each] + list(itertools.combinations(one_of_each, 2))
    walked = planned = 0
    for system, devices, branch, flavour, source in itertools.product(
        ("debian-12", "ubuntu-24", "openeuler-24"),
        sets,
        ("", "latest", *DATA["branches"]),
        ("", "open", "proprietary"),
        ("", "distribution", "runfile"),
    ):
        plan = make(bare(system, devices), branch=branch, flavour=flavour, source=source, runfile={"sha256": SHA})
        walked += 1
        driver = plan["driver"]
        asked = (system, devices, branch, flavour, source)
        if driver is None:
            assert failing(plan), asked
            assert all(check["remedy"] and check["expected"] for check in plan["checks"] if check["status"] == "fail"), asked
            continue
        planned += 1
        assert possible(devices, driver["branch"], driver["flavour"]), asked
        assert branch in ("", "latest", driver["branch"])
        assert flavour in ("", driver["flavour"])
        assert source in ("", driver["source"])
        assert ("latest, which is" in " ".join(plan["warnings"])) == (branch == "latest"), asked
        ended = compat.end_of_life(driver["branch"], date(2026, 11, 30), DATA)
        assert not ended or any(f"life ended {ended}" in warning for warning in plan["warnings"]), asked
    print(f"walked {walked} requests, {planned} planned")
    assert 0 < planned < walked


def test_no_image_is_planned_on_a_driver_or_gpu_that_cannot_run_it() -> None:
    """Every Triton release × GPU generation × branch, against the two rules written out a second time."""
    walked = passed = 0
    for (release, row), (architecture, rows), branch in itertools.product(
        DATA["triton"]["releases"].items(), DATA["gpus"].items(), ("470", "535", "570", "580", "620")
    ):
        device = next(iter(rows))
        runfile = {"sha256": SHA, "version": f"{branch}.999.99"}
        plan = make(bare("openeuler-24", (device,)), branch=branch, runfile=runfile, images=[f"tritonserver:{release}-py3"])
        if plan["driver"] is None:
            continue
        (check,) = (check for check in plan["checks"] if check["id"] == "engine.image")
        major = int(row["cuda"].split(".")[0])
        fits = int(branch) >= {12: 525, 13: 580}[major]
        fits = fits and not (architecture in ("maxwell", "pascal", "volta") and release >= "25.01") and architecture != "kepler"
        assert (check["status"] != "fail") == fits, (release, architecture, branch, check)
        walked += 1
        passed += fits
    print(f"walked {walked} images, {passed} fit")
    assert 0 < passed < walked
