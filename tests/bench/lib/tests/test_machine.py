"""What the bench takes over from the machine's package clients."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import machine

DEB822 = """\
Types: deb
# a comment between fields
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://old.example/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [signed-by=/x.gpg arch=amd64] http://mirror.example/debian bookworm main contrib
deb-src http://sources.example/debian bookworm main
deb http://security.example/s bookworm-security main
"""


def test_deb822_sources_that_are_enabled_and_binary():
    assert machine.parse_sources(DEB822) == [
        ("http://mirror.example/debian", "bookworm"),
        ("http://mirror.example/debian", "bookworm-updates"),
        ("http://mirror.example/debian-security", "bookworm-security"),
    ]


def test_one_line_sources():
    assert machine.parse_sources(ONE_LINE) == [
        ("http://mirror.example/debian", "bookworm"),
        ("http://security.example/s", "bookworm-security"),
    ]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("http://a/debian", "bookworm"), ("http://s", "bookworm-security")], machine.Mirrors("http://a/debian", "http://s")),
        ([("http://a/debian/", "bookworm")], machine.Mirrors("http://a/debian/", "http://a/debian-security")),
        ([("http://a/debian", "trixie")], None),
        ([], None),
    ],
)
def test_mirrors_of_the_machines_own_release(pairs, expected):
    assert machine.pick_mirrors(pairs, "bookworm") == expected


def test_os_release_without_quotes_and_comments():
    assert machine.os_release('# x\nID=debian\nNAME="Debian GNU/Linux"\n') == {"ID": "debian", "NAME": "Debian GNU/Linux"}
