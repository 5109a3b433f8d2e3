"""Package lists, holds and sources of both families."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _packages

DPKG = """ii \tlinux-headers-6.8.0-49-generic\t6.8.0-49.49
hi \tnvidia-dkms-580-server\t580.95.05-0ubuntu0.24.04.1
rc \tnvidia-utils-535\t535.183.01-0ubuntu0.22.04.1
un \tnvidia-kernel-open\t
iF \tnvidia-open-kernel-dkms\t550.163.01-2
iU \tcontainerd.io\t1.7.27-1
ii \tbash\t5.2.21-2ubuntu4
hi \tlibfoo\t1
ii \tgcc-13\t13.3.0-6ubuntu2~24.04
ii \tlibgcc-s1\t14
garbage
"""

RPM = """kernel-devel\t0:6.6.0-72.0.0.76.oe2403sp1
kernel-devel\t0:6.6.0-98.0.0.103.oe2403sp1
kernel-headers\t0:6.6.0-98.0.0.103.oe2403sp1
moby-engine\t0:25.0.3-20.oe2403sp1
docker-engine\t2:18.09.0-343
bash\t0:5.2.15-9
gcc\t0:12.3.1-62
libgcc\t0:12.3.1-62
nvidia-container-toolkit\t(none)
garbage
"""


def test_dpkg() -> None:
    found = _packages.parse_dpkg(DPKG)
    assert found.versions == {
        "containerd.io": "1.7.27-1",
        "gcc-13": "13.3.0-6ubuntu2~24.04",
        "linux-headers-6.8.0-49-generic": "6.8.0-49.49",
        "nvidia-dkms-580-server": "580.95.05-0ubuntu0.24.04.1",
        "nvidia-open-kernel-dkms": "550.163.01-2",
    }
    assert found.held == ["libfoo", "nvidia-dkms-580-server"]
    assert found.broken == ["containerd.io", "nvidia-open-kernel-dkms"]


@pytest.mark.parametrize(
    ("kernel", "devel"),
    [
        ("6.6.0-72.0.0.76.oe2403sp1.x86_64", "6.6.0-72.0.0.76.oe2403sp1"),
        ("6.6.0-98.0.0.103.oe2403sp1.x86_64", "6.6.0-98.0.0.103.oe2403sp1"),
        ("", "6.6.0-98.0.0.103.oe2403sp1"),
    ],
)
def test_rpm_prefers_the_running_kernels_package(kernel: str, devel: str) -> None:
    found = _packages.parse_rpm(RPM, kernel).versions
    assert found["kernel-devel"] == devel
    assert found["docker-engine"] == "2:18.09.0-343"
    assert found["moby-engine"] == "25.0.3-20.oe2403sp1"
    assert "bash" not in found
    assert "libgcc" not in found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nvidia-dkms-580\nlinux-image-generic:amd64\n\n", ["linux-image-generic", "nvidia-dkms-580"]),
        ("", []),
    ],
)
def test_apt_marks(text: str, names: list[str]) -> None:
    assert _packages.parse_apt_marks(text) == names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("kernel-devel-0:6.6.0-72.0.0.76.oe2403sp1.*", ["kernel-devel"]),
        ("kernel-6.6.0-72.0.0.76.oe2403sp1.x86_64", ["kernel"]),
        ("0:nvidia-container-toolkit-1.17.8-1.*", ["nvidia-container-toolkit"]),
        ("nvidia-driver-3:580.95.05-1.el9.*", ["nvidia-driver"]),
        ("moby-engine", ["moby-engine"]),
        ("moby-*", ["moby"]),
        ("!kernel-0:6.6.0-1.*", []),
        ("# Added lock on Mon", []),
        ("", []),
    ],
)
def test_versionlock(line: str, names: list[str]) -> None:
    assert _packages.parse_versionlock(line + "\n") == names


def test_versionlock_of_dnf_5() -> None:
    text = 'version = "1.0"\n[[packages]]\nname = "kernel-devel"\n[[packages.conditions]]\nkey = "evr"\nvalue = "6.6.0-1"\n'
    assert _packages.parse_versionlock_toml(text) == ["kernel-devel"]


ONE = {"file": "f", "type": "deb", "uris": ["http://m/ubuntu"], "suites": ["noble"], "components": ["main"], "signed_by": None}


@pytest.mark.parametrize(
    ("line", "sources"),
    [
        ("deb http://m/ubuntu noble main", [ONE]),
        ("  deb\thttp://m/ubuntu noble main # comment", [ONE]),
        ("# deb http://m/ubuntu noble main", []),
        ("", []),
        ("deb", []),
        (
            "deb [arch=amd64 signed-by=/usr/share/keyrings/n.gpg] https://n.github.io/stable/deb/amd64 /",
            [
                {
                    **ONE,
                    "uris": ["https://n.github.io/stable/deb/amd64"],
                    "suites": ["/"],
                    "components": [],
                    "signed_by": "/usr/share/keyrings/n.gpg",
                }
            ],
        ),
        ("deb https://user:secret@m/ubuntu noble main", [{**ONE, "uris": ["https://m/ubuntu"]}]),
        ("deb-src http://m/ubuntu noble main universe", [{**ONE, "type": "deb-src", "components": ["main", "universe"]}]),
    ],
)
def test_one_line_sources(line: str, sources: list[dict[str, Any]]) -> None:
    assert _packages.parse_one_line_sources("f", line) == sources


DEB822 = """# comment
Types: deb
URIs: https://user:secret@m/ubuntu/
Suites: noble noble-updates
Components: main
 universe
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://off/
Suites: noble
Components: main

Types: deb deb-src
URIs: http://inline/
Suites: ./
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
"""


def test_deb822_sources() -> None:
    first, second = _packages.parse_deb822_sources("f", DEB822)
    assert first == {
        "file": "f",
        "type": "deb",
        "uris": ["https://m/ubuntu/"],
        "suites": ["noble", "noble-updates"],
        "components": ["main", "universe"],
        "signed_by": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
    }
    assert (second["type"], second["signed_by"], second["components"]) == ("deb deb-src", "inline", [])


REPO = """[OS]
name=OS
baseurl=http://user:pw@m/openEuler/OS/$basearch/
enabled=1
gpgcheck=1

[update]
name=update
metalink=http://m/metalink
enabled = 0

[EPOL]
name=EPOL
mirrorlist=http://m/list%20x
"""


def test_repo_file() -> None:
    assert _packages.parse_repo_file("f", REPO) == [
        {"file": "f", "id": "OS", "baseurl": "http://m/openEuler/OS/$basearch/"},
        {"file": "f", "id": "EPOL", "baseurl": "http://m/list%20x"},
    ]
    assert _packages.parse_repo_file("f", "no section\n") == []


def test_sources_by_the_files_names() -> None:
    files = {"/a/x.list": "deb http://m/ s c", "/a/x.sources": DEB822, "/a/x.repo": REPO, "/a/x.save": "deb http://m/ s c"}
    assert [source["file"] for source in _packages.sources(files)] == [
        "/a/x.list",
        "/a/x.repo",
        "/a/x.repo",
        "/a/x.sources",
        "/a/x.sources",
    ]


@given(st.text())
def test_no_text_breaks_a_reader(text: str) -> None:
    _packages.parse_dpkg(text)
    _packages.parse_rpm(text)
    _packages.parse_versionlock(text)
    _packages.parse_versionlock_toml(text)
    _packages.sources({"a.list": text, "b.sources": text, "c.repo": text})
