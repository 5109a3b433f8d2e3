"""The readers over real outputs and files that people sent, each with what was found out about it.

The collection of cases lies beside the checkout, in ../shared/cases, and is no part of it; where it is missing these tests are
skipped. MANIFEST.tsv has one line a case: file, kind, source, expected in words. The tables below say the same for machines; a
case without an entry is an error, so that none is forgotten.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import (
    _checks,
    _container_gpu,
    _daemon_json,
    _dkms_log,
    _nvidia_smi,
    _smi_reading,
)
from ansible_collections.inferack.rack.plugins.module_utils._smi_reading import Reading

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
NVIDIA = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}


def cases(kind: str) -> list[Any]:
    """The cases of a kind as parameters; a single skipped one where the collection is missing."""
    manifest = CASES / "MANIFEST.tsv"
    if not manifest.exists():
        return [pytest.param("", "", marks=pytest.mark.skip(reason=f"no case collection at {CASES}"))]
    with manifest.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if len(row) == 4 and row[1] == kind]
    assert rows, f"no case of the kind {kind} in {manifest}"
    return [pytest.param(CASES / row[0], row[3], id=Path(row[0]).name) for row in rows]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def judged(reading: Reading, text: str) -> dict[tuple[str, str], _checks.Check]:
    checks = _nvidia_smi.judge(reading, _nvidia_smi.Outcome(None, "", text), _nvidia_smi.Expected())
    for check in checks:
        assert "\n" not in _checks.sentence(check)
    return {check.key: check for check in checks}


# --- nvidia-smi -q -x -------------------------------------------------------------------------------------------------------

#: Cases that are not healthy: the check that must say so, with its subject, and a word of it.
SICK_XML: dict[str, tuple[str, str, str]] = {
    "k8stestinfra_mocknvml_qx-gb200-ecc-injected.xml": ("gpu.ecc.uncorrectable", "GPU 0000:0a:00.0", "remapping"),
    "k8stestinfra_mocknvml_qx-gb200-fabric-degraded.xml": ("gpu.state", "GPU 0000:0b:00.0", "fabric"),
    "datakit_iluvatar_ixsmi_NOT_NVIDIA.xml": ("driver.smi", "", "not nvidia-smi's"),
}


def stated(expected: str, key: str) -> str | None:
    match = re.search(rf"\b{key}=(\S+)", expected)
    return None if match is None or match.group(1) == "None" else match.group(1)


@pytest.mark.parametrize(("path", "expected"), cases("smi_xml"))
def test_smi_xml(path: Path, expected: str) -> None:
    text = read(path)
    reading = _smi_reading.read(text)
    checks = judged(reading, text)
    wrong = {key for key, check in checks.items() if check.status == "fail"}
    if path.name in SICK_XML:
        name, subject, word = SICK_XML[path.name]
        assert wrong == {(name, subject)}
        assert word in _checks.sentence(checks[(name, subject)])
    else:
        assert wrong == set()
        assert checks[("driver.smi", "")].status == "pass"
    if "XML PARSE ERROR" in expected:
        assert (reading.form, reading.gpus) == ("none", [])
        return
    assert reading.form == "xml"
    assert not reading.partial
    assert reading.driver_version == stated(expected, "driver")
    assert reading.cuda_version == stated(expected, "cuda")
    assert str(reading.attached) == str(stated(expected, "attached"))
    assert str(len(reading.gpus)) == stated(expected, "gpus")
    products = re.search(r"\| (\d+)x ([^|]+?) \|", expected)
    assert products is not None
    assert [gpu.product for gpu in reading.gpus] == [products.group(2)] * int(products.group(1))
    mode = {"Enabled": True, "Disabled": False, "N/A": None, None: None}[stated(expected, "mig_mode")]
    assert {gpu.mig["enabled"] for gpu in reading.gpus} == {mode}
    devices = re.search(r"MIG devices=\[(\d+)\]", expected)
    assert len(reading.gpus[0].mig["devices_mib"]) == (int(devices.group(1)) if devices else 0)
    degrees = re.search(r"temp=([^|]+)$", expected)
    assert degrees is not None
    listed = {float(part.strip().split()[0]) for part in degrees.group(1).split(",")}
    if reading.gpus[0].virtualization == "VGPU":
        assert {gpu.temperature_c for gpu in reading.gpus} == {None}
    else:
        found = {gpu.temperature_c for gpu in reading.gpus}
        assert listed == found if len(found) < 4 else listed <= found  # at most four are listed
    if "power tags" in expected:
        assert all(gpu.power_w != 0 for gpu in reading.gpus)
    active = stated(expected, "active")
    if active:
        assert {reason for gpu in reading.gpus for reason in gpu.throttle} == set(active.split(",")) - {"gpu_idle"}
    for gpu in reading.gpus:
        assert gpu.troubles == {}
        assert gpu.bus_id
        assert gpu.uuid
        assert gpu.memory_mib


def test_order_of_gpus_is_not_the_order_of_minors() -> None:
    path = CASES / "smi_xml" / "telegraf_dual_a5000-v13.xml"
    if not path.exists():
        pytest.skip(f"no case collection at {CASES}")
    assert [gpu.minor for gpu in _smi_reading.read(read(path)).gpus] == [1, 0]


# --- other output of nvidia-smi ---------------------------------------------------------------------------------------------

#: file: form, GPUs, driver version, and the checks that do not pass as {(id, subject): (status, word)}; "skip" is not listed.
Row = tuple[str, int, str | None, dict[tuple[str, str], tuple[str, str]]]
SMI = ("driver.smi", "")


def fails(word: str) -> dict[tuple[str, str], tuple[str, str]]:
    return {SMI: ("fail", word)}


def lost(bus: str) -> dict[tuple[str, str], tuple[str, str]]:
    return {SMI: ("fail", bus), ("gpu.state", f"GPU {bus}"): ("fail", bus)}


NOT_OURS: Row = ("none", 0, None, fails("not nvidia-smi's"))
MISMATCH = "different versions"
SMI_TEXT: dict[str, Row] = {
    "azhpc_nvidia-smi-inforom.txt": ("table", 8, "460.32.03", {("gpu.state", "GPU 0008:00:00.0"): ("warn", "infoROM")}),
    "azhpc_query-gpu.csv": ("csv", 4, None, {}),
    "azurehpc_orig_nvsmi8_page_retirement.txt": ("query", 8, "535.86.10", {}),
    "err_cannot_communicate_smartquote.txt": ("none", 0, None, fails("no loaded driver")),
    "err_cannot_communicate_wrapped_email.txt": ("none", 0, None, fails("no loaded driver")),
    "err_device_handle_unknown_old.txt": ("none", 0, None, lost("0000:0b:00.0")),
    "err_gpu_lost_repeated_per_gpu_query.txt": ("none", 0, None, lost("0000:01:00.0")),
    "err_gpu_lost_two_spaces_windows_wrap.txt": ("none", 0, None, lost("0000:03:00.0")),
    "err_gpu_reset_in_use.txt": ("none", 0, None, fails("in use")),
    "err_infrom_corrupt_p4000.txt": ("table", 1, "384.130", {("gpu.state", "GPU 0000:b3:00.0"): ("warn", "infoROM")}),
    "err_libnvidia_ml_missing.txt": ("none", 0, None, fails("libnvidia-ml")),
    "err_no_devices.txt": ("none", 0, None, {**fails("no GPU"), ("gpu.count", ""): ("fail", "found 0")}),
    "err_nvml_insufficient_permissions.txt": ("none", 0, None, fails("no permission")),
    "err_nvml_mismatch_550_144.txt": ("none", 0, None, fails("library 550.144")),
    "err_nvml_mismatch_exit18_535_161.txt": ("none", 0, None, fails("library 535.161")),
    "err_nvml_mismatch_old_noversion.txt": ("none", 0, None, fails(MISMATCH)),
    "err_nvml_mismatch_session_unattended_upgrade.txt": ("none", 0, None, fails(MISMATCH)),
    "gpud_nvidia-smi-query.535.154.05.out.0.valid.txt": ("query", 8, "535.154.05", {}),
    "gpud_nvidia-smi-query.535.154.05.out.1.valid.txt": ("query", 8, "535.154.05", {}),
    "gpud_nvidia-smi-query.560.35.03.out.0.valid.txt": ("query", 1, "560.35.03", {}),
    "gpud_nvidia-smi.525.125.06.out.0.valid.txt": (
        "table",
        1,
        "525.125.06",
        {("gpu.state", "GPU 0000:01:00.0"): ("warn", "fan_speed")},
    ),
    "gpud_nvidia-smi.550.90.07.out.0.valid.txt": ("table", 8, "550.90.07", {}),
    "gpuexporter_linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04.txt": ("query", 1, "610.57.04", {}),
    "gpuexporter_linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04__sec_querygpu_load.csv": ("csv", 1, "610.57.04", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt": ("query", 1, "590.48.01", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__sec_list.txt": ("list", 1, None, {}),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__sec_querygpu_idle.csv": ("csv", 1, "590.48.01", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__sec_querygpu_load.csv": ("csv", 1, "590.48.01", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01.txt": ("query", 1, "590.48.01", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_q_idle.txt": ("query", 1, "590.48.01", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_querygpu_idle.csv": ("csv", 1, "590.48.01", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_table.txt": ("table", 1, "590.48.01", {}),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_topo.txt": NOT_OURS,
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80.txt": ("query", 1, "595.80", {}),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_q_idle.txt": ("query", 1, "595.80", {}),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_querygpu_idle.csv": ("csv", 1, "595.80", {}),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_querygpu_load.csv": ("csv", 1, "595.80", {}),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_topo.txt": NOT_OURS,
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62.txt": ("query", 1, "610.62", {}),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_list.txt": ("list", 1, None, {}),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_nvlink.txt": ("list", 1, None, {}),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_q_idle.txt": ("query", 1, "610.62", {}),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_querygpu_load.csv": ("csv", 1, "610.62", {}),
    "man_return_codes.txt": NOT_OURS,
    "q_fabric_in_progress.txt": ("query", 1, None, {SMI: ("warn", "a piece"), ("gpu.state", "GPU 0"): ("fail", "error 802")}),
    "table_gpu0_all_ERR_a40.txt": (
        "table",
        2,
        "525.125.06",
        {("gpu.state", "GPU 0000:19:00.0"): ("fail", "answers nothing")},
    ),
    "table_mig_util_na_h100.txt": ("table", 1, "535.183.01", {}),
    "table_power_ERR_transient_azure_v100.txt": (
        "table",
        1,
        None,
        {SMI: ("warn", "a piece"), ("gpu.state", "GPU 8ed0:00:00.0"): ("warn", "power_draw")},
    ),
    "topo_2x1080ti.txt": NOT_OURS,
    "topo_8xh20_nic_three_numa_cols_head.txt": NOT_OURS,
    "topo_mp_14nics_head.txt": NOT_OURS,
    "virtualclient_query-c2c-multiple-gpu.txt": ("list", 4, None, {}),
    "virtualclient_query-c2c.txt": ("list", 1, None, {}),
    # the counters of these two were made up by those who wrote them, and are not zero
    "virtualclient_query-gpu-1xH100.csv": (
        "csv",
        1,
        "535.161.07",
        {("gpu.ecc.uncorrectable", "GPU 0000:0a:00.0"): ("fail", "found 14")},
    ),
    "virtualclient_query-gpu-1xT4-NA.csv": (
        "csv",
        1,
        "550.54.15",
        {("gpu.ecc.uncorrectable", "GPU 0001:01:00.0"): ("fail", "found 5")},
    ),
    "virtualclient_query-gpu-8xH100.csv": ("csv", 8, "535.161.07", {}),
}


@pytest.mark.parametrize(("path", "expected"), cases("smi_text"))
def test_smi_text(path: Path, expected: str) -> None:
    assert path.name in SMI_TEXT, f"no entry for {path.name}; it is: {expected}"
    form, count, version, verdicts = SMI_TEXT[path.name]
    text = read(path)
    reading = _smi_reading.read(text)
    assert (reading.form, len(reading.gpus), reading.driver_version) == (form, count, version)
    checks = judged(reading, text)
    found = {key: check for key, check in checks.items() if check.status in ("fail", "warn")}
    if path.name == "table_gpu0_all_ERR_a40.txt":
        # nobody said how many GPUs the node should have, so that the count alone has nothing against one
        assert checks[("gpu.count", "")].found == 1
    assert {key: check.status for key, check in found.items()} == {key: verdict[0] for key, verdict in verdicts.items()}
    for key, (_status, word) in verdicts.items():
        assert word in _checks.sentence(found[key])


# --- daemon.json ------------------------------------------------------------------------------------------------------------


def values(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from values(value, (*path, key))
    elif path:
        yield path, node


@pytest.mark.parametrize(("path", "expected"), cases("daemon_json"))
def test_daemon_json(path: Path, expected: str) -> None:
    data = path.read_bytes()
    if "INVALID" in expected:
        with pytest.raises(_daemon_json.MalformedError) as error:
            _daemon_json.merge(_daemon_json.read(data), NVIDIA)
        assert error.value.excerpt in data.decode()
        assert error.value.excerpt
        return
    text = _daemon_json.read(data)
    merged = _daemon_json.merge(text, NVIDIA)
    before = json.loads(text) if text.strip() else {}
    after = json.loads(merged.after)
    own = after["runtimes"]["nvidia"]
    assert own["path"].rsplit("/", 1)[-1] == "nvidia-container-runtime"
    assert not own.get("args", own.get("runtimeArgs"))
    had = "nvidia" in before.get("runtimes", {})
    assert merged.changed is not had
    for place, value in values(before):
        node = after
        for key in place:
            node = node[key]
        assert node == value
    assert [key for key in after if key in before] == list(before)
    if text.strip():
        # what stood there still stands there, byte by byte, with the new lines somewhere between
        kept = iter(merged.after)
        assert all(character in kept for character in text)
        assert merged.after.endswith("\n") is text.endswith("\n")
    if "already configured" in expected:
        assert merged.changes == []
    if "TAB" in expected:
        assert '\n\t"runtimes": {\n\t\t"nvidia"' in merged.after
        wanted = json.loads(read(path.parent / "hosts_plus_nvidia_expected_merge.json"))
        assert after["hosts"] == wanted["hosts"]
        assert set(after) == set(wanted)
        unit = [("docker.service", "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n")]
        assert [flag.key for flag in _daemon_json.conflicts(after, _daemon_json.flags(unit))] == ["hosts"]
    wrong = _daemon_json.wrong_types(merged.after)
    assert [found.key for found in wrong] == (
        ["ipv6", "ip6tables", "experimental"] if "dockerd rejects: booleans" in expected else []
    )
    assert not _daemon_json.merge(merged.after, NVIDIA).changed


# --- Docker's words ---------------------------------------------------------------------------------------------------------

#: Words about containers and GPUs; the other cases of the kind belong to other readers.
DOCKER: dict[str, str] = {
    "driver_error_failed_to_process.txt": "refuses the toolkit's request",
    "driver_error_timeout_old_escaped.txt": "takes too long",
    "ldcache_error_template.txt": "ldconfig",
    "mount_op_failed_proc_params.txt": "a mount that failed",
    "mount_stat_device_name_bug.txt": "Tesla V100-SXM2-16GB",
    "nim_runtime_unknown_spark.txt": "no runtime nvidia",
    "no_device_driver_empty.txt": "Docker without a GPU driver",
    "no_device_driver_nvidia_compose.txt": "Docker without a GPU driver",
    "nvcgo_rpc_timeout.txt": "busy host",
    "nvcr_pull_denied_compose_truncated.txt": "refuses the login",
    "nvcr_unauthorized_bare.txt": "refuses the login",
    "nvml_insufficient_permissions.txt": "no permission",
    "nvml_mismatch_compose_wrapped.txt": MISMATCH,
    "runtime_unknown_daemonjson_present_not_restarted.txt": "no runtime nvidia in the running Docker",
    "uvm_node_missing.txt": "/dev/nvidia-uvm",
}


@pytest.mark.parametrize(("path", "expected"), cases("docker"))
def test_docker(path: Path, expected: str) -> None:
    words = _container_gpu.explain(read(path))
    if path.name not in DOCKER:
        assert words is None, f"{path.name} is about something else: {expected}"
        return
    assert words is not None
    assert DOCKER[path.name] in words.found


# --- builds of kernel modules -----------------------------------------------------------------------------------------------

#: What failed builds and installers printed: the kind of the first real error, None where the text holds no cause.
BUILDS: dict[str, str | None] = {
    "dkms_cc_version_ubuntu2204.log": _dkms_log.COMPILER_MISMATCH,
    "dkms_ubuntu_apport_headers_red_herring.log": None,
    "gpu_operator_nouveau_dkmsconf.log": None,
    "installer_cc_mismatch_old.log": _dkms_log.COMPILER_MISMATCH,
    "installer_kernel_source_missing.log": _dkms_log.HEADERS,
    "installer_load_failed_secureboot_k8s.log": _dkms_log.LOAD,
}


@pytest.mark.parametrize("name", BUILDS)
def test_builds(name: str) -> None:
    case = CASES / "dmesg" / name
    if not case.exists():
        pytest.skip(f"no case collection at {CASES}")
    failure = _dkms_log.read(read(case))
    assert (failure.kind if failure else None) == BUILDS[name]
    said = _checks.sentence(_dkms_log.verdict(failure, "nvidia 1", "6.1"))
    assert "\n" not in said
    # A guess that a message makes among others is no finding.
    assert "nouveau" not in said.partition(";")[0] or failure is None or failure.kind != _dkms_log.OTHER
