"""A fake dkms for the tests: the real one's command line, states, messages and exit codes, without a compiler.

usage: fake_dkms.py --dkmstree T --sourcetree S --installtree I (status|add|build|install|remove) [-m M] [-v V] [-k K] [-a A] …

`build` runs MAKE[0] of dkms.conf in a copy of the source, as the real one does. Whether its `status` is that of version 2 or 3
is up to FAKE_DKMS_FORMAT. What it does was compared with dkms 3.0.10 by running the same tests against that one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def die(status: int, *words: str) -> None:
    print("Error! " + "\n".join(words), file=sys.stderr)
    sys.exit(status)


class Fake:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tree, self.sources, self.install = Path(options.dkmstree), Path(options.sourcetree), Path(options.installtree)
        self.name, self.version = options.m, options.v
        self.kernel, self.arch = options.k or os.uname().release, options.a or os.uname().machine

    @property
    def home(self) -> Path:
        return self.tree / self.name / self.version

    @property
    def base(self) -> Path:
        return self.home / self.kernel / self.arch

    @property
    def link(self) -> Path:
        return self.tree / self.name / f"kernel-{self.kernel}-{self.arch}"

    def conf(self) -> str:
        path = self.home / "source/dkms.conf"
        if not path.is_file():
            die(4, "Could not locate dkms.conf file.", f"File: {path} does not exist.")
        return path.read_text()

    def names(self) -> list[str]:
        return re.findall(r'BUILT_MODULE_NAME\[\d+\]="(.*?)"', self.conf())

    def is_added(self) -> bool:
        return (self.home / "source").exists() or (self.home / "source").is_symlink()

    def is_built(self) -> bool:
        return (self.base / "module").is_dir() and all((self.base / "module" / f"{name}.ko").exists() for name in self.names())

    def is_installed(self) -> bool:
        return self.is_built() and self.link.is_symlink() and self.link.resolve() == self.base.resolve()

    def status(self) -> None:
        for home in sorted(self.tree.glob("*/*")):
            if not home.is_dir() or home.name.startswith("original_module") or home.is_symlink():
                continue
            self.name, self.version = home.parent.name, home.name
            if not self.is_added():
                continue
            two = os.environ.get("FAKE_DKMS_FORMAT") == "2"
            label = f"{self.name}, {self.version}" if two else f"{self.name}/{self.version}"
            found = False
            for base in sorted(home.glob("[0-9]*.*/*")):
                self.kernel, self.arch = base.parent.name, base.name
                if not self.is_built():
                    continue
                found = True
                state = "installed" if self.is_installed() else "built"
                extra = ""
                for name in self.names() if state == "installed" else []:
                    there = self.install / self.kernel / "updates/dkms" / f"{name}.ko"
                    if not there.exists() or there.read_bytes() != (base / "module" / f"{name}.ko").read_bytes():
                        extra += " (WARNING! Diff between built and installed module!)"
                print(f"{label}, {self.kernel}, {self.arch}: {state}{extra}")
            if not found:
                print(f"{label}: added")

    def add(self) -> None:
        if self.is_added():
            die(
                3,
                f"DKMS tree already contains: {self.name}-{self.version}",
                "You cannot add the same module/version combo more than once.",
            )
        source = self.sources / f"{self.name}-{self.version}"
        if not source.is_dir():
            die(2, "Could not find module source directory.", f"Directory: {source} does not exist.")
        (self.home / "build").mkdir(parents=True)
        (self.home / "source").symlink_to(source)
        print(f"Creating symlink {self.home}/source -> {source}")

    def build(self) -> None:
        if not self.is_added():
            self.add()
        if self.is_built():
            print(f"Module {self.name}/{self.version} already built for kernel {self.kernel} ({self.arch}), skip.")
            return
        if self.base.is_dir():
            die(3, f"This module/version has already been built on: {self.kernel}", f"Directory {self.base} already exists.")
        if not (self.install / self.kernel / "build/include").exists():
            die(1, f"Your kernel headers for kernel {self.kernel} cannot be found at /lib/modules/{self.kernel}/build or x.")
        build = self.home / "build"
        shutil.rmtree(build, ignore_errors=True)
        shutil.copytree(self.home / "source", build)
        command = re.search(r'MAKE\[0\]="(.*?)"', self.conf())
        assert command
        log = build / "make.log"
        with log.open("w") as file:
            file.write(f"DKMS make.log for {self.name}-{self.version} for kernel {self.kernel} ({self.arch})\n")
            file.flush()
            line = command.group(1).replace("${kernelver}", self.kernel)
            done = subprocess.run(["sh", "-c", line], cwd=build, stdout=file, stderr=file, check=False)
        if done.returncode:
            words = f"Bad return status for module build on kernel: {self.kernel} ({self.arch})"
            die(10, words, f"Consult {log} for more information.")
        (self.base / "log").mkdir(parents=True)
        log.replace(self.base / "log/make.log")
        (self.base / "module").mkdir()
        for name in self.names():
            shutil.copy(build / f"{name}.ko", self.base / "module")

    def install_module(self) -> None:
        if self.is_installed() and not self.options.force:
            print("already installed, skip.")
            return
        if not self.is_built():
            self.build()
        if (self.home / "source/refuse-install").exists():
            die(6, "Problems with depmod detected. Automatically uninstalling this module.")
        target = self.install / self.kernel / "updates/dkms"
        target.mkdir(parents=True, exist_ok=True)
        for name in self.names():
            shutil.copy(self.base / "module" / f"{name}.ko", target)
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(f"{self.version}/{self.kernel}/{self.arch}")

    def remove(self) -> None:
        if not self.is_added():
            die(3, f"The module/version combo: {self.name}-{self.version} is not located in the DKMS tree.")
        bases = sorted(self.home.glob("[0-9]*.*/*")) if self.options.all else [self.base]
        for base in bases:
            self.kernel, self.arch = base.parent.name, base.name
            if self.is_installed():
                for name in self.names():
                    (self.install / self.kernel / "updates/dkms" / f"{name}.ko").unlink(missing_ok=True)
                self.link.unlink()
            shutil.rmtree(base, ignore_errors=True)
            if base.parent.is_dir() and not any(base.parent.iterdir()):
                base.parent.rmdir()
        if not any(path.is_dir() and path.name not in ("build", "source") for path in self.home.iterdir()):
            print(f"Deleting module {self.name}-{self.version} completely from the DKMS tree.")
            shutil.rmtree(self.home)
            if not any(self.home.parent.iterdir()):
                self.home.parent.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["status", "add", "build", "install", "remove"])
    for name in ("--dkmstree", "--sourcetree", "--installtree", "-m", "-v", "-k", "-a", "-j"):
        parser.add_argument(name)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--force", action="store_true")
    options = parser.parse_args()
    fake = Fake(options)
    {"status": fake.status, "add": fake.add, "build": fake.build, "install": fake.install_module, "remove": fake.remove}[
        options.action
    ]()


if __name__ == "__main__":
    main()
