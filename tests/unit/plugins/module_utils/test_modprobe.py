"""What modprobe's files do to nouveau, mistakes included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _modprobe

GOOD = "blacklist nouveau\noptions nouveau modeset=0\n"
A = "/etc/modprobe.d/blacklist-nouveau.conf"

CASES = [
    # files, command line, blacklisted, modeset off, words of the problem
    ({A: GOOD}, "", True, True, None),
    ({}, "", False, False, None),
    ({A: "# blacklist nouveau\n"}, "", False, False, None),
    ({A: "blacklist nouveau\n"}, "", True, False, None),
    ({A: "  blacklist   nouveau  \r\n"}, "", True, False, None),
    ({A: "blacklist \\\n nouveau\n"}, "", True, False, None),
    ({A: "install nouveau /bin/false\n"}, "", True, False, None),
    ({A: "alias nouveau off\n"}, "", True, False, None),
    ({A: "alias pci:v000010DE nouveau\n"}, "", False, False, None),
    ({A: "softdep nvidia post: nouveau\n"}, "", False, False, None),
    ({A: "blacklist nvidiafb\nblacklist rivafb\n"}, "", False, False, None),
    ({A: "options nouveau modset=0\n"}, "", False, False, "no parameter 'modset'.*was modeset meant"),
    ({A: "options nouveau modeset=1\n"}, "", False, False, "must be modeset=0"),
    ({A: "options nouveau\n"}, "", False, False, None),
    ({A: "options nouveau noaccel=1 modeset=0\n"}, "", False, True, None),
    ({A: "blacklist noveau\n"}, "", False, False, "'noveau'"),
    ({A: "blacklist nouvaeu\n"}, "", False, False, "'nouvaeu'"),
    ({A: "Blacklist nouveau\n"}, "", False, False, "lower case"),
    ({A: "blacklsit nouveau\n"}, "", False, False, "not understood"),
    ({A: "blacklist nouveau modeset=0\n"}, "", True, False, "ignores what follows"),
    ({"/etc/modprobe.d/blacklist-nouveau": GOOD}, "", False, False, "names end in .conf"),
    ({"/etc/modprobe.d/blacklist-nouveau.conf.bak": GOOD}, "", False, False, "names end in .conf"),
    ({"/etc/modprobe.d/other.txt": "blacklist pcspkr\n"}, "", False, False, None),
    # a file in /etc hides the one of the same name that the package brought
    ({A: "", "/usr/lib/modprobe.d/blacklist-nouveau.conf": GOOD}, "", False, False, None),
    ({"/usr/lib/modprobe.d/nvidia.conf": GOOD, "/lib/modprobe.d/nvidia.conf": ""}, "", True, True, None),
    # the last of several options counts
    ({"/etc/modprobe.d/a.conf": GOOD, "/etc/modprobe.d/b.conf": "options nouveau modeset=1\n"}, "", True, False, "b.conf"),
    ({}, "quiet modprobe.blacklist=pcspkr,nouveau", True, False, None),
    ({}, "module_blacklist=nouveau nouveau.modeset=0", True, True, None),
    ({A: GOOD}, "nouveau.modeset=1", True, False, "kernel command line"),
    ({}, "rd.driver.blacklist=nouveau", False, False, None),  # for the initramfs only
]


@pytest.mark.parametrize(("files", "cmdline", "blacklisted", "modeset", "problem"), CASES)
def test_nouveau(files: dict[str, str], cmdline: str, blacklisted: bool, modeset: bool, problem: str | None) -> None:
    found = _modprobe.nouveau(files, cmdline)
    assert (found.blacklisted, found.modeset_disabled) == (blacklisted, modeset)
    if problem is None:
        assert found.problems == []
    else:
        assert len(found.problems) == 1
        with pytest.raises(AssertionError, match=problem):
            raise AssertionError(found.problems[0])


words = st.sampled_from(
    ["blacklist", "options", "nouveau", "modeset=0", "\\\n", "#", "\n", " ", "install", "noveau", "alias", "off"]
)


@given(
    st.dictionaries(st.sampled_from([A, "/lib/modprobe.d/x.conf", "/etc/modprobe.d/y"]), st.lists(words).map("".join)),
    st.text(),
)
def test_no_file_breaks_the_reader(files: dict[str, str], cmdline: str) -> None:
    found = _modprobe.nouveau(files, cmdline)
    assert all(isinstance(problem, str) and problem for problem in found.problems)
