"""What a node says about the modules that its kernel takes. The whole way of an archive: tests/unit/plugins/modules/test_dkms.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _dkms, _dkms_store

K = "6.1.0-42-amd64"


def write(root: Path, name: str, data: bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"sys/module/module/parameters/sig_enforce": b"Y\n"}, True),
        ({"sys/module/module/parameters/sig_enforce": b"N\n"}, False),
        ({"sys/kernel/security/lockdown": b"none [integrity] confidentiality\n"}, True),
        ({"sys/kernel/security/lockdown": b"[none] integrity confidentiality\n"}, False),
        ({_dkms_store.SECURE_BOOT: b"\x06\0\0\0\x01"}, True),
        ({_dkms_store.SECURE_BOOT: b"\x06\0\0\0\x00"}, False),
    ],
)
def test_whether_the_kernel_asks_for_signatures(tmp_path: Path, files: dict[str, bytes], expected: bool) -> None:
    for name, data in files.items():
        write(tmp_path, name, data)
    assert _dkms_store.enforced(tmp_path) is expected


def test_keys(tmp_path: Path) -> None:
    assert _dkms_store.trusted(tmp_path) is None
    write(tmp_path, "proc/keys", b"2c I 1 perm 0 0 asymmetri Rack: ab12: X509.rsa ab12 []\n")
    assert _dkms_store.trusted(tmp_path) == ["Rack"]


def test_the_kernels_own_vermagic(tmp_path: Path) -> None:
    trees = _dkms.Trees(modules=tmp_path)
    assert _dkms_store.kernel_vermagic(trees, K) is None
    write(tmp_path, f"{K}/modules.dep", b"updates/dkms/nvidia.ko:\nkernel/a.ko:\nkernel/b.ko: kernel/a.ko\n")
    assert _dkms_store.kernel_vermagic(trees, K) is None
    write(tmp_path, f"{K}/updates/dkms/nvidia.ko", b"\x7fELF\0vermagic=wrong\0")
    write(tmp_path, f"{K}/kernel/a.ko", b"no module")
    write(tmp_path, f"{K}/kernel/b.ko", b"\x7fELF\0vermagic=6.1.0-42-amd64 SMP \0")
    assert _dkms_store.kernel_vermagic(trees, K) == "6.1.0-42-amd64 SMP"
