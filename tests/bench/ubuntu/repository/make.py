"""The repository of the stand-in: Debian's packages, the kernel's, and Ubuntu's NVIDIA packages.

Runs in the builder. `python3 -m ubuntu.repository.make <state> <repository>`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pack import deb, signing

from ubuntu.repository import nvidia

SUITE = "noble"
COMPONENTS = ("main", "restricted", "universe", "multiverse")
UNIVERSE = ("docker", "containerd", "runc", "busybox-static", "haproxy", "python3-docker")
"""Beginnings of the names of Debian packages that Ubuntu has in universe."""

ALSO_DEPENDS = {
    # Ubuntu's docker.io contains the command line program, Debian's does not.
    "docker.io": "docker-cli",
    # Ubuntu's dkms depends on the compiler, trixie's only recommends it.
    "dkms": "gcc",
}


def component(name: str) -> str:
    """The component that Ubuntu has the Debian package in."""
    return "universe" if name.startswith(UNIVERSE) else "main"


def add_debian(cache: Path, pool: Path) -> None:
    """Put the downloaded packages into the pool, two of them with a dependency added."""
    for file_name in (cache / "wanted").read_text(encoding="utf-8").split():
        name = file_name.split("_", 1)[0]
        folder = pool / component(name)
        folder.mkdir(parents=True, exist_ok=True)
        if name in ALSO_DEPENDS:
            deb.repack(cache / file_name, folder, ALSO_DEPENDS[name])
        else:
            # An epoch in a file name is written %3a, which web servers understand in different ways: left out.
            os.link(cache / file_name, folder / re.sub(r"_\d+%3a", "_", file_name))


def main() -> None:
    """Make the repository beside the old one, then put it in its place."""
    state, target = Path(sys.argv[1]), Path(sys.argv[2])
    key = signing.key(state / "keys/ubuntu", "unused: the key is there")
    new = target.with_name(f"{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    pool = new / "pool"
    for name in COMPONENTS:
        (pool / name).mkdir(parents=True)
    add_debian(state / "cache/ubuntu/debs", pool)
    for path in (state / "work/ubuntu/kernel").glob("*.deb"):
        os.link(path, pool / "main" / path.name)
    packages = nvidia.packages()
    deb.same(packages)
    for package in packages:
        deb.build(package, pool / package.component)

    dist = new / "dists" / SUITE
    for name in COMPONENTS:
        deb.write_index(dist / name / "binary-amd64", deb.packages_index(new, f"pool/{name}"))
    deb.write_release(
        dist,
        key,
        {
            "Origin": "Ubuntu",
            "Label": "Ubuntu",
            "Suite": SUITE,
            "Codename": SUITE,
            "Version": "24.04",
            "Architectures": "amd64",
            "Components": " ".join(COMPONENTS),
            "Description": "Ubuntu Noble 24.04 (stand-in of the test bench)",
        },
    )
    shutil.copyfile(state / "keys/ubuntu/public.asc", new / "archive-key.asc")
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
    size = subprocess.run(["du", "-sm", str(target)], check=True, capture_output=True, text=True).stdout.split()[0]
    print(f"{sum(1 for _ in target.glob('pool/*/*.deb'))} packages, {size} MB")


if __name__ == "__main__":
    main()
