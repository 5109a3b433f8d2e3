"""DKMS's records: folders, versions, what is due for a wanted state, headers, logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _dkms
from ansible_collections.inferack.rack.plugins.module_utils._dkms_status import Row
from ansible_collections.inferack.rack.plugins.module_utils._version_order import version_key

K = "6.1.0-42-amd64"


def row(state: str, **more: bool) -> Row:
    return Row("nvidia", "1", K if state != "added" else None, "x86_64" if state != "added" else None, state, **more)


@pytest.mark.parametrize(
    ("found", "added", "wanted", "differs", "due"),
    [
        (None, False, "built", False, ["add", "build"]),
        (None, False, "installed", False, ["add", "build", "install"]),
        (None, True, "installed", False, ["build", "install"]),
        (None, True, "built", False, ["build"]),
        (row("built"), True, "built", False, []),
        (row("built"), True, "installed", False, ["install"]),
        (row("installed"), True, "installed", False, []),
        (row("installed"), True, "built", False, []),
        (row("installed-weak"), True, "installed", False, []),
        (row("installed"), True, "installed", True, ["reinstall"]),
        (row("installed"), True, "built", True, []),
        (row("installed", missing=True), True, "installed", False, ["remove", "add", "build", "install"]),
        (row("built", missing=True), True, "built", False, ["remove", "add", "build"]),
    ],
)
def test_what_is_due(found: Row | None, added: bool, wanted: str, differs: bool, due: list[str]) -> None:
    assert _dkms.steps(found, added, wanted, differs) == due


def test_folders_of_the_framework() -> None:
    assert _dkms.configured_trees(['# dkms_tree="/x"\n']) == _dkms.Trees()
    texts = ['source_tree="/opt/src"\ndkms_tree=/srv/dkms\n', 'dkms_tree="/srv/other" # newer\ninstall_tree="relative"\n']
    assert _dkms.configured_trees(texts) == _dkms.Trees(Path("/srv/other"), Path("/opt/src"), Path("/lib/modules"))


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        (["580.65.06", "580.126.09", "580.95.05"], "580.126.09"),
        (["535.309.01", "550.163.01"], "550.163.01"),
    ],
)
def test_versions_are_ordered_by_their_numbers(versions: list[str], newest: str) -> None:
    assert max(versions, key=version_key) == newest


def test_newest_version(tmp_path: Path) -> None:
    trees = _dkms.Trees(tmp_path / "r", tmp_path / "s", tmp_path / "m")
    assert _dkms.newest_version("nvidia", [], trees) is None
    for name in ("nvidia-580.95.05", "nvidia-current-550.1", "nvidia-fs-2.0", "nvidia-590"):
        (tmp_path / "s" / name).mkdir(parents=True)
    for name in ("nvidia-580.95.05", "nvidia-current-550.1", "nvidia-fs-2.0"):
        (tmp_path / "s" / name / "dkms.conf").write_text("")
    assert _dkms.newest_version("nvidia", [], trees) == "580.95.05"
    rows = [Row("nvidia", "595.1", None, None, "added"), Row("nvidia", "999", None, None, "broken")]
    assert _dkms.newest_version("nvidia", rows, trees) == "595.1"
    assert _dkms.newest_version("nvidia-current", rows, trees) == "550.1"


def test_registered_and_rows() -> None:
    rows = [Row("nvidia", "1", K, "x86_64", "built"), Row("nvidia", "2", None, None, "broken")]
    assert _dkms.registered(rows, "nvidia", "1")
    assert not _dkms.registered(rows, "nvidia", "2")
    assert not _dkms.registered(rows, "other", "1")
    assert _dkms.row_for(rows, "nvidia", "1", K) is rows[0]
    assert _dkms.row_for(rows, "nvidia", "1", "6.2") is None


def test_headers(tmp_path: Path) -> None:
    trees = _dkms.Trees(modules=tmp_path)
    assert _dkms.header_facts(trees, K) == {"path": None, "release": None, "complete": False}
    assert _dkms.header_problem(_dkms.header_facts(trees, K), K) == f"no headers of kernel {K}"
    build = tmp_path / K / "build"
    for name in ("Makefile", "include/generated/autoconf.h", "include/config/kernel.release"):
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).write_text(f"{K}\n")
    facts = _dkms.header_facts(trees, K)
    assert (facts["release"], facts["complete"], _dkms.header_problem(facts, K)) == (K, False, "")
    (build / "Module.symvers").write_text("")
    assert _dkms.header_facts(trees, K)["complete"] is True
    (build / "include/config/kernel.release").write_text("6.1.0-41-amd64\n")
    assert _dkms.header_problem(_dkms.header_facts(trees, K), K) == f"headers of kernel 6.1.0-41-amd64 in the place of {K}'s"


def test_the_log_that_dkms_names_comes_first(tmp_path: Path) -> None:
    trees = _dkms.Trees(records=tmp_path)
    usual = tmp_path / "nvidia/1/build"
    assert _dkms.log_path("", trees, "nvidia", "1", K, "x86_64") is None
    usual.mkdir(parents=True)
    (usual / "make.log").write_text("")
    (tmp_path / "make.log").write_text("")
    assert _dkms.log_path("", trees, "nvidia", "1", K, "x86_64") == usual / "make.log"
    for words in (
        f"Consult {tmp_path}/make.log for more information.",
        f"consult it.\nConsult make.log in the build directory\n{tmp_path} for more information.",
    ):
        assert _dkms.log_path(words, trees, "nvidia", "1", K, "x86_64") == tmp_path / "make.log"
