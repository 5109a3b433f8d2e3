"""What a kernel module's file says about itself."""

from __future__ import annotations

import base64
import gzip
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _kernel_module as km

TAGS = (
    b"\0license=Dual MIT/GPL\0description=x\0version=580.95.05\0srcversion=ABC\0depends=nvidia\0"
    b"vermagic=6.1.0-42-amd64 SMP preempt mod_unload modversions \0"
)
PLAIN = b"\x7fELF" + bytes(60) + b"conversion=wrong" + TAGS + bytes(16)

# A CMS signature as scripts/sign-file makes it, by a certificate O=Example, OU=x, CN=Rack signing key, emailAddress=a@b.c:
# openssl cms -sign -nocerts -binary -noattr -md sha512 -outform DER
SIGNATURE = base64.b64decode(
    """
MIIBxgYJKoZIhvcNAQcCoIIBtzCCAbMCAQExDTALBglghkgBZQMEAgMwCwYJKoZIhvcNAQcBMYIBkDCCAYwCAQEwZzBPMRAwDgYDVQQKDAdFeG
FtcGxlMQowCAYDVQQLDAF4MRkwFwYDVQQDDBBSYWNrIHNpZ25pbmcga2V5MRQwEgYJKoZIhvcNAQkBFgVhQGIuYwIUGWH6wroabsGS8GHPNgrC
ZfSECjUwCwYJYIZIAWUDBAIDMA0GCSqGSIb3DQEBAQUABIIBAJ+VJ2xrPJK7BmQUqnh88FT5MtMGUjI8wuzkErpsYlpTKWEYlPIThKGy4F71Fn
Vsb+tW+5LQjjm2oF3yH2yrW6B6shZslh/mSGBgar+Os/hXDwow6vbF94NyvHRDG7qE9aaGzSg7B0f7dofBdQcNJXbxG1nu4BZg40Bu9NtUSWnM
b5Fgyd2h/3PN+slTGmrPj8SMzpD/M7mTxF/T/Ed4YCX+vGFQzoK8ZZwWGuy2cZtMIF4aHihXsqr4RRTCffiMrgWjzSXIEEQrTXF9kZqbeQ/2UF
Jejk3ExeBgm4jZY9S1hhpMVUupa0d5EfEcggYuf9PjL9r5wiVD6IpjmYU4KAg=
"""
)


def signed(data: bytes, signature: bytes = SIGNATURE) -> bytes:
    """`struct module_signature`: algorithm, hash, type 2 (PKCS#7), two lengths, padding, length of the message."""
    return data + signature + bytes((0, 0, 2, 0, 0, 0, 0, 0)) + len(signature).to_bytes(4, "big") + km.SIGNED


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nvidia-uvm.ko", PLAIN),
        ("nvidia-uvm.ko.gz", gzip.compress(PLAIN)),
        ("nvidia-uvm.ko.xz", lzma.compress(PLAIN)),
    ],
)
def test_reading(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    module = km.read(tmp_path / name)
    assert module == km.Module(
        "nvidia-uvm", "580.95.05", "Dual MIT/GPL", "6.1.0-42-amd64 SMP preempt mod_unload modversions", None
    )
    assert module.release == "6.1.0-42-amd64"


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_zstd(tmp_path: Path) -> None:
    packed = subprocess.run(["zstd", "-qc"], input=PLAIN, capture_output=True, check=True).stdout
    (tmp_path / "a.ko.zst").write_bytes(packed)
    assert km.read(tmp_path / "a.ko.zst").version == "580.95.05"
    (tmp_path / "a.ko.zst").write_bytes(packed[:-9])
    with pytest.raises(km.UnreadableModuleError, match=r"a\.ko\.zst"):
        km.read(tmp_path / "a.ko.zst")


def test_without_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(km.shutil, "which", lambda name: None)
    (tmp_path / "a.ko.zst").write_bytes(b"x")
    with pytest.raises(km.UnreadableModuleError, match="zstd is not installed"):
        km.read(tmp_path / "a.ko.zst")


@pytest.mark.parametrize(
    ("name", "content"), [("a.ko", b"no module"), ("a.ko.gz", b"x"), ("a.ko.xz", b"x"), ("a.ko.gz", gzip.compress(PLAIN)[:-20])]
)
def test_what_is_no_module(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(km.UnreadableModuleError, match=name):
        km.read(tmp_path / name)
    with pytest.raises(km.UnreadableModuleError):
        km.read(tmp_path / "absent.ko")


@pytest.mark.parametrize(
    ("data", "signer"),
    [
        (PLAIN, None),
        (signed(PLAIN), "Rack signing key"),
        (signed(PLAIN, b"nothing that is known"), ""),
        (signed(PLAIN, km.COMMON_NAME + b"\x0c"), ""),
        (PLAIN + km.SIGNED, ""),
    ],
)
def test_signer(data: bytes, signer: str | None) -> None:
    assert km.signer(data) == signer


def test_a_name_in_the_module_is_no_signer() -> None:
    """Only what is inside the signature counts, not a certificate that the module carries as data."""
    inside = PLAIN + km.COMMON_NAME + b"\x0c\x05Other"
    assert km.signer(signed(inside, b"unnamed")) == ""
    assert km.signer(signed(inside)) == "Rack signing key"


@pytest.mark.parametrize(
    ("file", "name"), [("nvidia.ko", "nvidia"), ("nvidia-current-uvm.ko.xz", "nvidia-current-uvm"), ("a.ko.zst", "a")]
)
def test_module_name(file: str, name: str) -> None:
    assert km.module_name(file) == name


def test_same_content(tmp_path: Path) -> None:
    (tmp_path / "a.ko").write_bytes(PLAIN)
    (tmp_path / "b.ko.xz").write_bytes(lzma.compress(PLAIN))
    (tmp_path / "c.ko").write_bytes(signed(PLAIN))
    assert km.same_content(tmp_path / "a.ko", tmp_path / "b.ko.xz")
    assert not km.same_content(tmp_path / "a.ko", tmp_path / "c.ko")
    assert not km.same_content(tmp_path / "a.ko", tmp_path / "absent.ko")
