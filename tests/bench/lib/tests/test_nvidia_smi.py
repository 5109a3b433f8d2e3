"""The bench's nvidia-smi: answers, words and exit codes, in a mount namespace of its own with a simulated driver."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import nodes

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("gcc") or not shutil.which("unshare"),
    reason="needs root, gcc and unshare: the program reads fixed paths under /proc",
)
KERNEL = Path(__file__).resolve().parents[2] / "kernel"
GPUS = list(nodes.host("ubuntu-24.04").gpus)
VERSION = "580.126.09"


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("smi") / "nvidia-smi"
    subprocess.run(
        ["gcc", "-static", "-Wall", "-Wextra", "-Wno-format-truncation", "-Werror", "-o", path, KERNEL / "nvidia_smi.c"],
        check=True,
    )
    return path


@pytest.fixture
def smi(program, kernel, tmp_path, monkeypatch):
    """Runs nvidia-smi where module, library, GPUs and device nodes are as told."""

    def run(*words, module=VERSION, library=VERSION, gpus=GPUS, nodes_there=None, is_open=True):
        proc, libraries = tmp_path / "driver", tmp_path / "local/nvidia/lib64"
        proc.mkdir()
        libraries.mkdir(parents=True)
        monkeypatch.setattr(kernel, "PROC_NVIDIA", proc / "nvidia")
        monkeypatch.setattr(kernel, "node", lambda *_: None)
        if module:
            kernel.write_nvidia(module, is_open, gpus)
        if library:
            (libraries / f"libnvidia-ml.so.{library}").touch()
        shown = range(len(gpus)) if nodes_there is None else nodes_there
        touch = " ".join(f"/dev/nvidia{n}" for n in [*shown, "ctl"])
        script = (
            f"mount --bind {proc} /proc/driver && mount --bind {tmp_path / 'local'} /usr/local && mount -t tmpfs dev /dev"
            f' && touch {touch} && exec {program} "$@"'
        )
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False
        )

    return run


def test_list(smi):
    answer = smi("-L")
    assert answer.returncode == 0
    assert answer.stdout.splitlines() == [f"GPU {n}: NVIDIA L40S (UUID: {gpu['uuid']})" for n, gpu in enumerate(GPUS)]


@pytest.mark.parametrize("version", ["535.309.01", "580.126.09"])
def test_table_is_aligned(smi, version):
    answer = smi(module=version, library=version)
    body = answer.stdout.splitlines()[1:]
    assert answer.returncode == 0
    assert {len(line) for line in body if line.strip()} == {91 if version.startswith("580") else 89}
    assert f"Driver Version: {version}" in answer.stdout


def test_xml(smi):
    answer = smi("-q", "-x")
    log = ET.fromstring(answer.stdout)
    assert log.findtext("driver_version") == VERSION
    assert log.findtext("attached_gpus") == "4"
    assert [gpu.get("id") for gpu in log.findall("gpu")] == ["0000" + gpu["bus_id"].upper() for gpu in GPUS]
    assert {gpu.findtext("fb_memory_usage/total") for gpu in log.findall("gpu")} == {"46068 MiB"}
    assert {gpu.findtext("ecc_errors/volatile/dram_uncorrectable") for gpu in log.findall("gpu")} == {"0"}
    assert log.findtext("gpu/pci/pci_device_id") == "26B910DE"
    assert log.findtext("gpu/pci/pci_sub_system_id") == "185110DE"


def test_csv(smi):
    answer = smi("--query-gpu=index,name,memory.total,power.limit,uuid", "--format=csv")
    rows = list(csv.reader(io.StringIO(answer.stdout), skipinitialspace=True))
    assert rows[0] == ["index", "name", "memory.total [MiB]", "power.limit [W]", "uuid"]
    assert rows[4] == ["3", "NVIDIA L40S", "46068 MiB", "350.00 W", GPUS[3]["uuid"]]


def test_csv_bare(smi):
    answer = smi("--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "1,2")
    assert answer.stdout == "46068\n46068\n"


@pytest.mark.parametrize("chosen", ["2", GPUS[2]["uuid"], GPUS[2]["bus_id"], "0000" + GPUS[2]["bus_id"], "81:00.0"])
def test_one_gpu(smi, chosen):
    assert GPUS[2]["uuid"] in smi("-L", "-i", chosen).stdout


def test_a_container_sees_the_gpus_whose_nodes_it_has(smi):
    answer = smi("-L", nodes_there=[1])
    assert answer.stdout == f"GPU 0: NVIDIA L40S (UUID: {GPUS[1]['uuid']})\n"


def test_ecc(smi):
    answer = smi("-q", "-x", gpus=[{**GPUS[0], "state": "ecc"}, GPUS[1]])
    counts = [gpu.findtext("ecc_errors/volatile/dram_uncorrectable") for gpu in ET.fromstring(answer.stdout).findall("gpu")]
    assert counts == ["3", "0"]


@pytest.mark.parametrize(
    ("setting", "status", "words"),
    [
        ({"module": ""}, 9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        ({"library": ""}, 12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."),
        (
            {"library": "580.142.01"},
            18,
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.142\n",
        ),
        ({"gpus": []}, 6, "No devices were found"),
        (
            {"gpus": [GPUS[0], {**GPUS[1], "state": "lost"}]},
            15,
            "Unable to determine the device handle for GPU0000:21:00.0: GPU is lost.  Reboot the system to recover this GPU",
        ),
    ],
    ids=["no driver", "no library", "versions differ", "no GPU", "GPU lost"],
)
def test_refusals(smi, setting, status, words):
    answer = smi(**setting)
    assert answer.returncode == status
    assert words in answer.stdout


def test_unknown_field(smi):
    answer = smi("--query-gpu=index,colour")
    assert answer.returncode == 2
    assert 'Field "colour" is not a valid field to query.' in answer.stdout


@pytest.mark.parametrize(("is_open", "words"), [(True, "Open Kernel Module for"), (False, "NVIDIA UNIX x86_64 Kernel Module")])
def test_flavour_shows_in_the_version_file(smi, tmp_path, is_open, words):
    assert smi("-L", is_open=is_open).returncode == 0
    assert words in (tmp_path / "driver/nvidia/version").read_text()
