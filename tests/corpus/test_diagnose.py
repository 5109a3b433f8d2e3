"""The module diagnose over real outputs and logs, judged against what was found out about each.

The cases lie beside the checkout, in ../shared/cases, and are no part of it; where they are missing these tests are skipped.
MANIFEST.tsv says in words what each shows. The tables say the same for machines, written by hand from those words; a case without
an entry is an error, so that none is forgotten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .read_cases import MANIFEST, Case, main, manifest, read_case

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


def cases(kind: str) -> list[Any]:
    """The cases of a kind as parameters; a single skipped one where the collection is missing."""
    if not (CASES / MANIFEST).is_file():
        return [pytest.param(Case("", "", ""), marks=pytest.mark.skip(reason=f"no case collection at {CASES}"))]
    rows = [case for case in manifest(CASES) if case.kind == kind]
    assert rows, f"no case of the kind {kind} in {CASES / MANIFEST}"
    return [pytest.param(case, id=Path(case.file).name) for case in rows]


@dataclass(frozen=True)
class Expect:
    """What a case must give.

    causes: each as `id subject`, the first one first and the others in any order; `<` before an id that is a consequence.
    says: words that found or remedy of the first cause must have. proof: words in its evidence. blames: whom it blames.
    """

    verdict: str
    causes: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    proof: str = ""
    blames: str = ""


def shown(cause: dict[str, Any]) -> str:
    names = " ".join(item["name"] for item in cause["affects"] if item["name"])
    return f"{'<' if cause['consequence_of'] else ''}{cause['id']} {names}".strip()


def check(case: Case, expect: Expect) -> dict[str, Any]:
    result = read_case(CASES, case)
    said = json.dumps(result, ensure_ascii=False, indent=1)
    assert result["verdict"] == expect.verdict, f"{case.expected}\n{said}"
    found = [shown(cause) for cause in result["causes"]]
    assert found[:1] == list(expect.causes[:1]), f"{case.expected}\n{said}"
    assert sorted(found) == sorted(expect.causes), f"{case.expected}\n{said}"
    text = (CASES / case.file).read_text(encoding="utf-8", errors="replace")
    for cause in result["causes"]:
        assert cause["remedy"]
        assert cause["evidence"], f"{cause['id']} proves nothing"
        for line in cause["evidence"]:
            assert line.strip("…")[:60].strip() in text or line.startswith("…"), f"{cause['id']}: no line of the case: {line}"
    if expect.causes:
        first = result["causes"][0]
        for word in expect.says:
            assert word in f"{first['found']}; {first['remedy']}", f"{word!r} is not in: {first['found']}; {first['remedy']}"
        assert expect.proof in " ".join(first["evidence"])
        assert not expect.blames or first["blames"] == expect.blames
    return result


def cause(*causes: str, says: tuple[str, ...] = (), proof: str = "", blames: str = "") -> Expect:
    return Expect("cause", causes, says, proof, blames)


# --- kernel logs, builds, installers ------------------------------------------------------------------------------------------

DMESG: dict[str, Expect] = {
    "api_mismatch_515_510.log": cause("version-mismatch", says=("510.73.05", "515.48.07", "Reboot"), blames="driver"),
    "api_mismatch_vgpu_host_guest.log": cause("version-mismatch-guest", says=("570.148.08", "570.148.06", "a reboot does not help")),
    "bar0_0m_egpu_loop.log": cause("pci-bar-invalid 0000:06:00.0", "<gpu-probe-failed 0000:06:00.0", says=("BAR0", "0M", "pci=realloc")),
    "disagrees_symbol_version_jetson.log": cause("module-not-for-kernel", says=("Build the module anew",), blames="kernel"),
    "dkms_cc_version_ubuntu2204.log": cause("compiler-mismatch", says=("11.2.0", "11.3.0"), proof="Failed CC version check"),
    "dkms_ubuntu_apport_headers_red_herring.log": Expect(
        "symptom", ("build-failed", "<package-not-configured"), ("make.log", "6.17.9-76061709-generic"), "Bad return status"
    ),
    "fabricmanager_nothing_to_do.log": Expect("notice", ("fabric-manager-needless",), ("without NVSwitch", "Disable"), "NV_WARN"),
    "fallen_off_bus_no_xid.log": cause("gpu-off-bus 0000:b3:00.0", "<gpu-probe-failed", proof="fallen off the bus", blames="hardware"),
    "gpu_operator_nouveau_dkmsconf.log": Expect("unknown"),
    "gpud_xid119_gsp_timeout.log": cause("xid-119 0000:9b:00.0", says=("reset the GPU", "update the driver", "GSP off"), blames="driver"),
    "gsp_boot_fail_3090.log": cause(
        "gsp-boot-failed 0000:98:00.0", "<gsp-init-failed", "<gpu-init-failed 0000:98:00.0", says=("Power-cycle",), blames="hardware"
    ),
    "gsp_no_firmware_550_90.log": cause(
        "gsp-firmware-missing 0000:ae:00.0", "<gpu-init-failed 0000:ae:00.0", says=("firmware package", "firmware_class.path"),
        proof="No firmware image found", blames="driver",
    ),
    "gsp_reset_required.log": cause("gpu-needs-reset", says=("reset",), proof="NV_ERR_RESET_REQUIRED"),
    "healthy_load_lines_550_76.log": Expect("none"),
    "installer_cc_mismatch_old.log": cause("compiler-mismatch", says=("gcc 5.0", "gcc 5.1")),
    "installer_kernel_source_missing.log": cause("headers-missing", "<installer-failed", says=("kernel-devel",), blames="kernel"),
    "installer_load_failed_secureboot_k8s.log": Expect("symptom", ("module-load-failed",), ("Secure Boot", "guesses")),
    "installer_nouveau_in_use_2.log": cause("nouveau-in-use", says=("initramfs",)),
    "installer_nouveau_in_use_80col.log": cause("nouveau-in-use", "<installer-failed", says=("initramfs",)),
    "journal_api_mismatch_367.log": cause("version-mismatch", says=("367.44", "367.35", "Reboot")),
    "legacy_580_gpu_dropped_595.log": cause("gpu-needs-older-driver", "<no-gpu-found", says=("GTX 1050", "595.58.03", "branch 580")),
    "nouveau_probe_not_called_3dev.log": cause("driver-shut-out", "<no-gpu-found", says=("3 of the GPUs", "nouveau", "vfio")),
    "open_module_no_gsp_v100.log": cause("gpu-needs-closed-module 0000:af:00.0", says=("10de:1db5", "proprietary")),
    "open_module_unsupported_gpu.log": cause(
        "gpu-needs-closed-module 0000:04:00.0", "<gpu-init-failed 0000:04:00.0", says=("proprietary",), blames="driver"
    ),
    "raspberry_chipset_not_recognized.log": cause(
        "platform-unsupported 0000:01:00.0", "<gsp-boot-failed", "<gsp-init-failed", "<gpu-init-failed 0000:01:00.0", says=("platform",)
    ),
    "xid120_gsp_crash_5080.log": cause(
        "xid-120 0000:01:00.0", "<gsp-stuck 0000:01:00.0", "<gsp-init-failed", "<gpu-init-failed 0000:01:00.0",
        says=("power-cycle", "reloading the module is not enough"),
    ),
    "xid13_109_peermem.log": cause("xid-13 0000:cb:00.0", "<xid-109 0000:cb:00.0", says=("the GPU is healthy",), blames="application"),
    "xid13_then_43_pointcloud.log": cause("xid-13 0000:01:00.0", "<xid-43 0000:01:00.0", blames="application"),
    "xid145_149_nonfatal_mix.log": cause(
        "xid-149 0019:01:00.0", "xid-149 0018:01:00.0", "xid-145 0018:01:00.0", "xid-145 0008:01:00.0", says=("a fatal NVLink error",),
        proof="NETIR Fatal", blames="nvlink",
    ),
    "xid149_154_nvlink5_gb200.log": cause(
        "xid-149 0009:01:00.0", "xid-149 0008:01:00.0", "xid-154 0019:01:00.0", "xid-154 0018:01:00.0", "<xid-154 0009:01:00.0",
        says=("a fatal NVLink error, link 1", "the driver asks for: Drain and Reset"), blames="nvlink",
    ),
    "xid31_32_old_channel_id.log": cause("xid-32 0000:01:00.0", "xid-31 0000:01:00.0", blames="application"),
    "xid31_48_gcm.log": cause("xid-48 000d:00:00.0", "xid-31 000d:00:00.0", says=("Drain",), blames="hardware"),
    "xid31_mmu_fault_tinygrad.log": cause("xid-31 0000:01:00.0", says=("python", "the GPU is healthy"), blames="application"),
    "xid43_app.log": cause("xid-43 0000:a2:00.0", says=("VLLM::Worker",), blames="application"),
    "xid45_caused_by_149_145.log": cause(
        "xid-149 0000:dc:00.0", "xid-145 0000:ed:00.0", "xid-145 0000:ba:00.0", "xid-145 0000:97:00.0",
        "<xid-45 0000:dc:00.0", "<xid-45 0000:ed:00.0", "<xid-45 0000:ba:00.0", "<xid-45 0000:97:00.0",
        says=("named by Xid 45",), blames="nvlink",
    ),
    "xid48_dbe_framebuffer.log": cause("xid-48 0000:07:00.0", says=("Drain", "reset the GPU", "remapping"), blames="hardware"),
    "xid74_nvlink_fatal.log": cause("xid-74 0003:00:00.0", says=("link 14",), blames="nvlink"),
    "xid79_unknown_pid.log": cause("xid-79 0000:ca:00.0", says=("power-cycle",), blames="hardware"),
}  # fmt: skip


@pytest.mark.parametrize("case", cases("dmesg"))
def test_dmesg(case: Case) -> None:
    name = Path(case.file).name
    assert name in DMESG, f"no entry for {name}; it is: {case.expected}"
    result = check(case, DMESG[name])
    if name == "xid149_154_nvlink5_gb200.log":
        assert {shown(item): item["found"] for item in result["causes"]}["xid-154 0019:01:00.0"].endswith("GPU Reset Required")
    for item in result["causes"]:
        if item["id"] in ("xid-13", "xid-31", "xid-43", "xid-45"):
            assert item["blames"] == "application"


# --- Docker, registries, engines ----------------------------------------------------------------------------------------------

FAILED = "<container-start-failed"
DOCKER: dict[str, Expect] = {
    "containerd_wrong_dropin_dir.txt": Expect("notice", ("containerd-drop-in",), ("config.d/99-nvidia.toml", "imports")),
    "daemon_invalid_trailing_comma.txt": cause(
        "docker-config-syntax", says=("/etc/docker/daemon.json", "invalid character '}'")
    ),
    "daemon_unknown_directive_truncated.txt": cause("docker-config-unknown-option", says=("/etc/docker/daemon.json",)),
    "daemon_unmarshal_string_bool.txt": cause("docker-config-type", says=("ipv6", "bool")),
    "driver_error_failed_to_process.txt": cause("driver-refuses", FAILED, says=("different versions",), blames="driver"),
    "driver_error_timeout_old_escaped.txt": cause("driver-slow", FAILED, says=("nvidia-persistenced",)),
    "ldcache_error_template.txt": cause("ldconfig-failed", FAILED, says=("/sbin/ldconfig.real", "seccomp", "config.toml")),
    "mount_op_failed_proc_params.txt": cause("mount-failed", FAILED, says=("Reboot", "/proc/driver/nvidia/params")),
    "mount_stat_device_name_bug.txt": cause("toolkit-too-old", FAILED, says=("Tesla V100-SXM2-16GB", "Upgrade", "1.0.2")),
    "nim_runtime_unknown_spark.txt": cause("runtime-unknown", says=("no runtime nvidia in",)),
    "nim_unknown_profile_json.txt": cause("nim-profile-unknown", says=("default", "NIM_MODEL_PROFILE")),
    "no_device_driver_empty.txt": cause(
        "gpu-driver-not-selected", says=("Install the NVIDIA Container Toolkit", "restart Docker")
    ),
    "no_device_driver_nvidia_compose.txt": cause("gpu-driver-not-selected", says=("Install the NVIDIA Container Toolkit",)),
    "nvcgo_rpc_timeout.txt": cause("toolkit-timeout", FAILED, says=("busy host", "again"), blames="node"),
    "nvcr_pull_denied_compose_truncated.txt": cause(
        "registry-denied nvcr.io/nvidia/blueprint/cosmos-cds-ui", says=("being logged in is not enough",), blames="registry"
    ),
    "nvcr_unauthorized_bare.txt": cause("registry-denied", says=("docker login",), blames="registry"),
    "nvml_insufficient_permissions.txt": cause("container-no-permission", FAILED, says=("SELinux", "user namespaces")),
    "nvml_mismatch_compose_wrapped.txt": cause("version-mismatch", "<container-start-failed dalle-backend", says=("Reboot",)),
    "runtime_unknown_daemonjson_present_not_restarted.txt": cause(
        "runtime-unknown", says=("not restarted", "rootless", "Desktop")
    ),
    "triton_no_backend_library_onnx.txt": cause(
        "triton-backend-missing ambernet", "<triton-model-failed ambernet", says=("onnxruntime", "-py3"), blames="engine"
    ),
    "triton_no_backend_no_config.txt": cause("triton-stray-folder reports", says=("out of the model repository",)),
    "triton_poll_failed_extra_brace.txt": cause("triton-config-syntax ensemble_model", says=("83:13", "other models")),
    "triton_poll_failed_quoted_new_format.txt": cause("triton-placeholder tensorrt_llm", says=("51:16", "fill_template")),
    "triton_poll_failed_template_placeholder.txt": cause(
        "triton-placeholder ensemble", "triton-placeholder postprocessing", says=("29:17", "fill_template")
    ),
    "uvm_node_missing.txt": cause("device-node-missing", says=("/dev/nvidia-uvm", "nvidia-modprobe -u -c=0")),
}


@pytest.mark.parametrize("case", cases("docker"))
def test_docker(case: Case) -> None:
    name = Path(case.file).name
    assert name in DOCKER, f"no entry for {name}; it is: {case.expected}"
    check(case, DOCKER[name])


@pytest.mark.parametrize("case", cases("triton"))
def test_triton(case: Case) -> None:
    result = check(case, Expect("none"))
    assert result["form"] == "triton.config"
    assert len(result["read"]["ensemble_of"]) == 2
    assert result["read"]["inputs"] == ["INPUT"]
    assert result["read"]["inputs_that_no_step_takes"] == []


# --- nvidia-smi ---------------------------------------------------------------------------------------------------------------

SICK_XML: dict[str, Expect] = {
    "k8stestinfra_mocknvml_qx-gb200-ecc-injected.xml": cause(
        "gpu-memory-errors 0000:0a:00.0", says=("replaced",), proof="<remapped_row_failure>Yes", blames="hardware"
    ),
    "k8stestinfra_mocknvml_qx-gb200-fabric-degraded.xml": cause("gpu-fabric 0000:0b:00.0", says=("fabric",), proof="Unhealthy"),
    "datakit_iluvatar_ixsmi_NOT_NVIDIA.xml": Expect("unknown"),
}


@pytest.mark.parametrize("case", cases("smi_xml"))
def test_smi_xml(case: Case) -> None:
    name = Path(case.file).name
    result = check(case, SICK_XML.get(name, Expect("none")))
    if "XML PARSE ERROR" in case.expected:
        assert (result["form"], result["read"]) == ("other", {})
        return
    assert result["form"] == "smi.xml"
    stated = dict(part.split("=", 1) for part in case.expected.replace("|", " ").split() if "=" in part)
    wanted = {key: None if stated[key] == "None" else stated[key] for key in ("driver", "cuda")}
    read = result["read"]
    assert {"driver": read["driver_version"], "cuda": read["cuda_version"]} == wanted
    assert len(read["gpus"]) == int(stated["gpus"])


#: form, number of GPUs read, and what must be said.
Row = tuple[str, int, Expect]
NONE = Expect("none")
MISMATCH = cause("version-mismatch", says=("Reboot",), blames="driver")
SMI_TEXT: dict[str, Row] = {
    "azhpc_nvidia-smi-inforom.txt": ("smi.table", 8, cause("gpu-inforom 0008:00:00.0", proof="WARNING: infoROM is corrupted")),
    "azhpc_query-gpu.csv": ("smi.csv", 4, NONE),
    "azurehpc_orig_nvsmi8_page_retirement.txt": ("smi.query", 8, NONE),
    "err_cannot_communicate_smartquote.txt": ("nvidia-smi", 0, cause("smi-no-driver")),
    "err_cannot_communicate_wrapped_email.txt": ("nvidia-smi", 0, cause("smi-no-driver")),
    "err_device_handle_unknown_old.txt": ("nvidia-smi", 0, cause("smi-gpu-lost 0000:0b:00.0", blames="hardware")),
    "err_gpu_lost_repeated_per_gpu_query.txt": ("nvidia-smi", 0, cause("smi-gpu-lost 0000:01:00.0", says=("GPU is lost",))),
    "err_gpu_lost_two_spaces_windows_wrap.txt": ("nvidia-smi", 0, cause("smi-gpu-lost 0000:03:00.0")),
    "err_gpu_reset_in_use.txt": ("nvidia-smi", 0, cause("smi-reset-refused 0000:1a:00.0", says=("-pm 0",))),
    "err_infrom_corrupt_p4000.txt": ("smi.table", 1, cause("gpu-inforom 0000:b3:00.0", says=("may go on working",))),
    "err_libnvidia_ml_missing.txt": ("nvidia-smi", 0, cause("smi-library-missing", says=("container toolkit",))),
    "err_no_devices.txt": ("nvidia-smi", 0, Expect("symptom", ("smi-no-devices",), ("RmInitAdapter", "given any GPU"))),
    "err_nvml_insufficient_permissions.txt": ("nvidia-smi", 0, cause("smi-no-permission", says=("SELinux",), blames="node")),
    "err_nvml_mismatch_550_144.txt": ("nvidia-smi", 0, cause("version-mismatch", says=("550.144", "Reboot"))),
    "err_nvml_mismatch_exit18_535_161.txt": ("nvidia-smi", 0, cause("version-mismatch", says=("535.161", "Reboot"))),
    "err_nvml_mismatch_old_noversion.txt": ("nvidia-smi", 0, MISMATCH),
    "err_nvml_mismatch_session_unattended_upgrade.txt": ("nvidia-smi", 0, cause("version-mismatch", "unattended-upgrade", says=("Reboot", "hold"))),
    "gpud_nvidia-smi-query.535.154.05.out.0.valid.txt": ("smi.query", 8, NONE),
    "gpud_nvidia-smi-query.535.154.05.out.1.valid.txt": ("smi.query", 8, NONE),
    "gpud_nvidia-smi-query.560.35.03.out.0.valid.txt": ("smi.query", 1, NONE),
    "gpud_nvidia-smi.525.125.06.out.0.valid.txt": ("smi.table", 1, Expect("notice", ("gpu-trouble 0000:01:00.0",), ("fan_speed",))),
    "gpud_nvidia-smi.550.90.07.out.0.valid.txt": ("smi.table", 8, NONE),
    "gpuexporter_linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04.txt": ("smi.query", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04__sec_querygpu_load.csv": ("smi.csv", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt": ("smi.query", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__sec_list.txt": ("smi.list", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__sec_querygpu_idle.csv": ("smi.csv", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__sec_querygpu_load.csv": ("smi.csv", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01.txt": ("smi.query", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_q_idle.txt": ("smi.query", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_querygpu_idle.csv": ("smi.csv", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_table.txt": ("smi.table", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-h100-mig__590.48.01__sec_topo.txt": ("smi.topology", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80.txt": ("smi.query", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_q_idle.txt": ("smi.query", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_querygpu_idle.csv": ("smi.csv", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_querygpu_load.csv": ("smi.csv", 1, NONE),
    "gpuexporter_linux-x86_64__nvidia-l40s__595.80__sec_topo.txt": ("smi.topology", 1, NONE),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62.txt": ("smi.query", 1, NONE),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_list.txt": ("smi.list", 1, NONE),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_nvlink.txt": ("smi.list", 1, NONE),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_q_idle.txt": ("smi.query", 1, NONE),
    "gpuexporter_windows-x86_64__nvidia-geforce-rtx-2080-super__610.62__sec_querygpu_load.csv": ("smi.csv", 1, NONE),
    "man_return_codes.txt": ("other", 0, Expect("unknown")),
    "q_fabric_in_progress.txt": ("smi.query", 1, cause("gpu-fabric", "smi-cut-off", says=("error 802", "nvidia-fabricmanager"))),
    "table_gpu0_all_ERR_a40.txt": ("smi.table", 2, cause("gpu-dead 0000:19:00.0", blames="hardware")),
    "table_mig_util_na_h100.txt": ("smi.table", 1, NONE),
    "table_power_ERR_transient_azure_v100.txt": (
        "smi.table", 1, Expect("notice", ("smi-cut-off", "gpu-trouble 8ed0:00:00.0"))
    ),
    "topo_2x1080ti.txt": ("smi.topology", 2, NONE),
    "topo_8xh20_nic_three_numa_cols_head.txt": ("smi.topology", 8, Expect("notice", ("smi-cut-off",), ("8 GPUs", "rows for 6"))),
    "topo_mp_14nics_head.txt": ("smi.topology", 8, Expect("notice", ("smi-cut-off",), ("8 GPUs", "rows for 2"))),
    "virtualclient_query-c2c-multiple-gpu.txt": ("smi.list", 4, NONE),
    "virtualclient_query-c2c.txt": ("smi.list", 1, NONE),
    # the counters of these two were made up by those who wrote them, and are not zero
    "virtualclient_query-gpu-1xH100.csv": ("smi.csv", 1, cause("gpu-memory-errors 0000:0a:00.0", says=("14",))),
    "virtualclient_query-gpu-1xT4-NA.csv": ("smi.csv", 1, cause("gpu-memory-errors 0001:01:00.0", says=("5",))),
    "virtualclient_query-gpu-8xH100.csv": ("smi.csv", 8, NONE),
}  # fmt: skip


@pytest.mark.parametrize("case", cases("smi_text"))
def test_smi_text(case: Case) -> None:
    name = Path(case.file).name
    assert name in SMI_TEXT, f"no entry for {name}; it is: {case.expected}"
    form, gpus, expect = SMI_TEXT[name]
    result = check(case, expect)
    read = result["read"]
    assert (result["form"], len(read.get("gpus", []))) == (form, gpus)
    if name == "topo_2x1080ti.txt":
        assert read["links"] == {"GPU0-GPU1": "PHB", "GPU1-GPU0": "PHB"}
    if name == "topo_8xh20_nic_three_numa_cols_head.txt":
        assert (read["partial"], read["nvlink"], set(read["links"].values())) == (True, True, {"NV18"})
    if name == "topo_mp_14nics_head.txt":
        assert read["nvlink"] is None
    if name == "virtualclient_query-c2c-multiple-gpu.txt":
        assert read["links"]["3"] == {
            "0": "44.727 GB/s",
            "1": "44.728 GB/s",
            "2": "44.729 GB/s",
            "3": "44.730 GB/s",
            "4": "44.731 GB/s",
        }


# --- the command --------------------------------------------------------------------------------------------------------------


def test_the_command_reads_any_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(
        "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    (tmp_path / "b.pbtxt").write_text('name: "m"\nplatform: {\n')
    (tmp_path / "c.json").write_text('{"debug": "yes"}')
    rows = ["file\tkind\tsource\texpected", "a.log\tdmesg\ts\tXid 79", "b.pbtxt\ttriton\ts\tbroken", "c.json\tdaemon_json\ts\t"]
    (tmp_path / MANIFEST).write_text("\n".join(rows) + "\n")
    assert main([str(tmp_path)]) == 0
    first, second, third, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["file"], first["kind"], first["verdict"]) == ("a.log", "dmesg", "cause")
    assert first["causes"][0]["affects"] == [{"kind": "gpu", "name": "0000:41:00.0"}]
    assert first["causes"][0]["evidence"][0].startswith("NVRM: Xid")
    assert (second["verdict"], second["causes"][0]["id"]) == ("cause", "triton-config-syntax")
    assert third["read"]["wrong_types"] == ["debug"]
    assert last["summary"]["dmesg"] == {"files": 1, "cause": 1}
    assert last["broken"] == []


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "make corpus CASES=DIR" in capsys.readouterr().err
    (tmp_path / MANIFEST).write_text("gone.log\tdmesg\ts\t\n")
    assert main([str(tmp_path)]) == 1
    assert "FileNotFoundError" in json.loads(capsys.readouterr().out.splitlines()[-1])["broken"][0]["error"]
