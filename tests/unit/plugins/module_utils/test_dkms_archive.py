"""Archives of built modules: what they hold, what is refused, and whether they fit a node."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _dkms_archive as archive

K = "6.1.0-42-amd64"
MAGIC = f"{K} SMP preempt mod_unload modversions"
CONF = b'PACKAGE_NAME="nvidia"\n'


def module(kernel: str = K, licence: str = "NVIDIA", version: str = "580.95.05") -> bytes:
    tags = f"\0license={licence}\0version={version}\0vermagic={kernel} SMP preempt mod_unload modversions \0"
    return b"\x7fELF" + bytes(60) + tags.encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "module"
    place.mkdir()
    (place / "nvidia.ko").write_bytes(module())
    (place / "nvidia-uvm.ko.xz").write_bytes(lzma.compress(module(licence="Dual MIT/GPL")))
    return place


def manifest_of(folder: Path, kernel: str = K) -> archive.Manifest:
    return archive.describe(folder, CONF, "nvidia", "580.95.05", kernel, "x86_64", "gcc-12 (Debian) 12.2.0")


def test_what_an_archive_holds_comes_back(folder: Path, tmp_path: Path) -> None:
    manifest = manifest_of(folder)
    assert (manifest.flavour, manifest.driver_version, manifest.vermagic, manifest.signer) == (
        "proprietary",
        "580.95.05",
        MAGIC,
        None,
    )
    assert manifest.file_name == f"nvidia-580.95.05-{K}-x86_64-proprietary.tar.gz"
    path = tmp_path / "a.tar.gz"
    archive.write(path, manifest, folder, CONF)
    assert archive.read_manifest(path) == manifest
    out = tmp_path / "out"
    out.mkdir()
    assert archive.extract(path, manifest, out) == CONF
    assert {file.name: file.read_bytes() for file in out.iterdir()} == {
        file.name: file.read_bytes() for file in folder.iterdir()
    }
    again = tmp_path / "b.tar.gz"
    archive.write(again, manifest, folder, CONF)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tar.gz", "b.tar.gz", "module", "out"]


def test_the_main_module_tells_the_flavour(folder: Path) -> None:
    (folder / "nvidia.ko").write_bytes(module(licence="Dual MIT/GPL"))
    assert manifest_of(folder).flavour == "open"


def test_what_cannot_be_described(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(archive.ArchiveError, match=r"expected modules for kernel 6\.2, found"):
        manifest_of(folder, "6.2")
    (folder / "nvidia.ko").write_bytes(b"x")
    with pytest.raises(archive.ArchiveError, match="not a kernel module"):
        manifest_of(folder)
    with pytest.raises(archive.ArchiveError, match="found none"):
        manifest_of(tmp_path)


def test_a_failed_write_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    manifest = manifest_of(folder)
    (folder / "nvidia.ko").unlink()
    with pytest.raises(OSError, match="nvidia"):
        archive.write(tmp_path / "a.tar.gz", manifest, folder, CONF)
    assert [file.name for file in tmp_path.iterdir()] == ["module"]


def forged(path: Path, manifest: dict[str, Any] | bytes, members: dict[str, bytes], link: str = "") -> Path:
    """An archive with any content."""
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in {"manifest.json": text, **members}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if name == link:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/shadow", 0
            tar.addfile(info, io.BytesIO(data))
    return path


def raw(folder: Path, **changes: Any) -> dict[str, Any]:
    return {"format": 1, **asdict(manifest_of(folder)), **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "expected format 1"),
        ({"kernel": "../../etc"}, "expected plain names"),
        ({"name": "/etc"}, "expected plain names"),
        ({"version": ""}, "expected plain names"),
        ({"arch": None}, "expected plain names"),
        ({"modules": []}, "expected modules"),
        ({"extra": 1}, "expected a manifest"),
        ({"modules": [{"file": "../x.ko"}]}, "expected a manifest"),
        (
            {"modules": [{"file": "../x.ko", "sha256": "", "size": 0, "version": None, "vermagic": None, "signer": None}]},
            "expected names of modules",
        ),
    ],
)
def test_manifests_that_are_refused(folder: Path, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = forged(tmp_path / "a.tar.gz", raw(folder, **changes), {})
    with pytest.raises(archive.ArchiveError, match=words):
        archive.read_manifest(path)


@pytest.mark.parametrize("content", [b"", b"x" * 100, gzip.compress(b"x" * 100)])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(archive.ArchiveError, match="expected"):
        archive.read_manifest(tmp_path / "a.tar.gz")
    with pytest.raises(archive.ArchiveError, match="expected"):
        archive.read_manifest(forged(tmp_path / "b.tar.gz", b"[1", {}))
    with pytest.raises(archive.ArchiveError, match="expected"):
        archive.read_manifest(forged(tmp_path / "c.tar.gz", b"[1]", {}))


def test_content_that_is_not_the_manifests(folder: Path, tmp_path: Path) -> None:
    files = {f"module/{file.name}": file.read_bytes() for file in folder.iterdir()}
    out = tmp_path / "out"
    out.mkdir()
    manifest = manifest_of(folder)
    good = {"dkms.conf": CONF, **files}
    cases = [
        ({**good, "dkms.conf": b"MAKE=evil"}, "", "expected the dkms.conf"),
        ({**good, "module/nvidia.ko": module(version="1")}, "", "the archive is damaged"),
        ({"dkms.conf": CONF}, "", "expected module/"),
        (good, "module/nvidia.ko", "expected the plain file"),
    ]
    for number, (members, link, words) in enumerate(cases):
        path = forged(tmp_path / f"{number}.tar.gz", raw(folder), members, link)
        with pytest.raises(archive.ArchiveError, match=words):
            archive.extract(path, manifest, out)
    # A manifest that describes its modules as others than they are, with sums that are right.
    lying = replace(manifest, modules=[replace(file, signer="Debian") for file in manifest.modules])
    with pytest.raises(archive.ArchiveError, match="as the manifest describes it"):
        archive.extract(forged(tmp_path / "l.tar.gz", raw(folder), good), lying, out)


PLACE = archive.Place([K], "x86_64", MAGIC, enforced=False, trusted=None)


def signed_by(manifest: archive.Manifest, *signers: str | None) -> archive.Manifest:
    return replace(manifest, modules=[replace(file, signer=who) for file, who in zip(manifest.modules, signers, strict=True)])


@pytest.mark.parametrize(
    ("place", "asked", "words"),
    [
        ({}, {}, ""),
        ({"vermagic": None}, {}, ""),
        ({}, {"version": "580.95.05", "flavour": "proprietary"}, ""),
        ({}, {"version": "580.65.06"}, "version 580.95.05 in the archive"),
        ({}, {"flavour": "open"}, "flavour proprietary in the archive"),
        ({}, {"name": "nvidia-srv"}, "the module nvidia in the archive"),
        ({"kernels": ["6.1.0-43-amd64"]}, {}, f"modules for kernel {K}"),
        ({"arch": "aarch64"}, {}, "modules for x86_64"),
        ({"vermagic": f"{K} SMP mod_unload"}, {}, f"vermagic {MAGIC}"),
        ({"enforced": True}, {}, "modules signed by nobody"),
        ({}, {"signer": "Rack"}, "modules signed by nobody"),
    ],
)
def test_whether_it_fits(folder: Path, place: dict[str, Any], asked: dict[str, str], words: str) -> None:
    checks = archive.judge(manifest_of(folder), replace(PLACE, **place), **{"name": "nvidia", **asked})
    assert {check.id for check in checks} == {"driver.archive"}
    if not words:
        assert [check.status for check in checks] == ["pass"]
        return
    assert [check.status for check in checks] == ["fail"]
    assert words in str(checks[0].found)
    assert checks[0].expected
    assert checks[0].remedy


@pytest.mark.parametrize(
    ("signers", "trusted", "status"),
    [
        (("Rack", "Rack"), ["Debian Secure Boot CA", "Rack"], "pass"),
        (("Rack", "Rack"), ["Example: Rack"], "pass"),
        (("Rack", "Rack"), ["Debian Secure Boot CA"], "fail"),
        (("Rack", None), ["Rack"], "fail"),
        (("", ""), ["Rack"], "fail"),
        (("Rack", "Rack"), None, "skip"),
    ],
)
def test_signatures_where_the_kernel_asks_for_them(
    folder: Path, signers: tuple[str | None, ...], trusted: list[str] | None, status: str
) -> None:
    manifest = signed_by(manifest_of(folder), *signers)
    checks = archive.judge(manifest, replace(PLACE, enforced=True, trusted=trusted), name="nvidia")
    assert status in [check.status for check in checks]
    assert any(check.status == "fail" for check in checks) is (status == "fail")


def test_modules_of_different_builds(folder: Path) -> None:
    manifest = manifest_of(folder)
    other = replace(manifest.modules[0], vermagic=f"{K} SMP")
    (check,) = archive.judge(replace(manifest, modules=[other, manifest.modules[1]]), PLACE, name="nvidia")
    assert "with vermagic" in check.found
    odd = replace(manifest, vermagic="", modules=[replace(file, vermagic="") for file in manifest.modules])
    assert any(check.status == "fail" for check in archive.judge(odd, PLACE, name="nvidia"))


def test_keys_that_the_kernel_trusts() -> None:
    text = """18a13a5e I--Q---     1 perm 1f3f0000     0 65534 keyring   _uid.0: empty
2c2a6b5f I------     1 perm 1f030000     0     0 asymmetri Debian Secure Boot CA: 6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1: X509.rsa bb419ea1 []
3d2a6b5f I------     1 perm 1f030000     0     0 asymmetri Example: Rack signing key: 8d5e: X509.rsa 8d5e []
"""
    assert archive.trusted_keys(text) == ["Debian Secure Boot CA", "Example: Rack signing key"]
    assert archive.trusted_keys("") == []
