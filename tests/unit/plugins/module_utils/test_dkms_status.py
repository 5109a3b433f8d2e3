"""`dkms status` of version 2 and 3, and what stands beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils._dkms_status import Row, parse_status

K = "6.1.0-42-amd64"


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (f"nvidia-current/535.309.01, {K}, x86_64: installed", Row("nvidia-current", "535.309.01", K, "x86_64", "installed")),
        (f"nvidia, 470.256.02, {K}, x86_64: installed", Row("nvidia", "470.256.02", K, "x86_64", "installed")),
        ("nvidia/580.95.05: added", Row("nvidia", "580.95.05", None, None, "added")),
        ("nvidia, 580.95.05: added", Row("nvidia", "580.95.05", None, None, "added")),
        (f"nvidia/580.95.05, {K}, x86_64: built", Row("nvidia", "580.95.05", K, "x86_64", "built")),
        (
            f"nvidia/580.95.05, {K}, x86_64: installed (WARNING! Diff between built and installed module!)"
            " (WARNING! Diff between built and installed module!)",
            Row("nvidia", "580.95.05", K, "x86_64", "installed", differs=True),
        ),
        (
            f"nvidia, 396.45, {K}, x86_64: installed (original_module exists)",
            Row("nvidia", "396.45", K, "x86_64", "installed"),
        ),
        (
            f"nvidia/580.95.05, {K}, x86_64: built (WARNING! Missing some built modules!)",
            Row("nvidia", "580.95.05", K, "x86_64", "built", missing=True),
        ),
        (
            "nvidia, 470.256.02, 5.14.0-427.el9.x86_64, x86_64: installed-weak from 5.14.0-362.el9.x86_64",
            Row("nvidia", "470.256.02", "5.14.0-427.el9.x86_64", "x86_64", "installed-weak"),
        ),
        ("nvidia/535.104.05: broken", Row("nvidia", "535.104.05", None, None, "broken")),
        (
            "Error! nvidia/535.104.05: Missing the module source directory or the symbolic link pointing to it.",
            Row("nvidia", "535.104.05", None, None, "broken"),
        ),
        ("Manual intervention is required!", None),
        ("Error! Could not locate dkms.conf file.", None),
        ("File: /var/lib/dkms/nvidia/390.48/source/dkms.conf does not exist.", None),
        ("Deprecated feature: REMAKE_INITRD (/usr/src/x/dkms.conf)", None),
        ("", None),
    ],
)
def test_a_line(line: str, row: Row | None) -> None:
    assert parse_status(line + "\n") == ([] if row is None else [row])


def test_rows_are_told_as_dkms_3_does() -> None:
    assert str(Row("nvidia", "1", K, "x86_64", "installed", differs=True)) == (
        f"nvidia/1, {K}, x86_64: installed (differs from what was built)"
    )
    assert str(Row("nvidia", "1", None, None, "added")) == "nvidia/1: added"


@given(st.text(max_size=200))
def test_no_text_upsets_the_reader(text: str) -> None:
    for row in parse_status(text):
        assert row.name
        assert row.state
