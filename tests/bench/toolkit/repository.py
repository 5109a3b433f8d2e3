"""The stand-in of nvidia.github.io/libnvidia-container: the toolkit's four packages as deb and rpm, in two versions.

Runs in the builder. `python3 -m repository <state> <target> <base url>`; the layout is the real one's: gpgkey,
stable/deb/{nvidia-container-toolkit.list,amd64}, stable/rpm/{nvidia-container-toolkit.repo,x86_64}.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pack import deb, rpm, signing

PAYLOAD = Path(__file__).resolve().parent / "payload"
VERSIONS = ("1.17.8", "1.18.0")
RELEASE = "1"
FIRST_WITH_REFRESH = (1, 18, 0)
OWNER = "NVIDIA stand-in of the test bench <toolkit@bench.test>"
LIBRARIES = {"deb": "/usr/lib/x86_64-linux-gnu", "rpm": "/usr/lib64"}

BASE_POST_INSTALL = """/usr/bin/nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
"""
REFRESH_POST_INSTALL = """if command -v systemctl > /dev/null 2>&1; then
    case "$(systemctl is-system-running 2> /dev/null || true)" in
    running | degraded)
        systemctl daemon-reload || echo "Warning: Failed to reload systemd daemon" >&2
        systemctl enable --now nvidia-cdi-refresh.path || echo "Warning: Failed to enable nvidia-cdi-refresh.path" >&2
        systemctl enable --now nvidia-cdi-refresh.service || echo "Warning: Failed to enable nvidia-cdi-refresh.service" >&2
        ;;
    esac
fi
"""
REFRESH_PRE_REMOVE = """if [ "{condition}" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service || true
fi
"""
CONFIGURE = 'set -e\nif [ "$1" = configure ]; then\n{0}fi\n'


def program(entry: str, version: str) -> bytes:
    """The payload as one executable file that runs the function `entry` (module:function)."""
    module, function = entry.split(":")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(PAYLOAD.glob("nvct/*.py")):
            text = path.read_text(encoding="utf-8")
            if path.name == "version.py":
                text = text.replace('"0.0.0"', f'"{version}"')
            archive.writestr(zipfile.ZipInfo(f"nvct/{path.name}"), text)
        start = f"import sys\nfrom nvct.{module} import {function}\nsys.exit({function}())\n"
        archive.writestr(zipfile.ZipInfo("__main__.py"), start)
    return b"#!/usr/bin/python3 -sE\n" + packed.getvalue()


def library() -> bytes:
    """A shared library with libnvidia-container's name and nothing in it."""
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "empty.c", Path(name) / "library.so"
        source.write_text("int nvc_stand_in(void) { return 0; }\n", encoding="utf-8")
        command = ["gcc", "-shared", "-fPIC", "-s", "-Wl,-soname,libnvidia-container.so.1", "-o", str(target), str(source)]
        subprocess.run(command, check=True)
        return target.read_bytes()


Files = dict[str, str | bytes | Path]


def contents(version: str, kind: str) -> dict[str, tuple[Files, dict[str, int], dict[str, str]]]:
    """Files, modes and links of each package, for kind deb or rpm."""
    folder = LIBRARIES[kind]
    base: Files = {
        "/usr/bin/nvidia-container-runtime": program("runtime:main", version),
        "/usr/bin/nvidia-ctk": program("ctk:main", version),
        "/usr/bin/nvidia-cdi-hook": program("cdi:hook_main", version),
    }
    if has_refresh(version):
        for suffix in ("path", "service"):
            unit = f"nvidia-cdi-refresh.{suffix}"
            base[f"/etc/systemd/system/{unit}"] = PAYLOAD / unit
        base["/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"] = "#NVIDIA_CTK_DEBUG=1\n"
    every: dict[str, tuple[Files, dict[str, str]]] = {
        "nvidia-container-toolkit-base": (base, {}),
        "nvidia-container-toolkit": (
            {"/usr/bin/nvidia-container-runtime-hook": program("hook:main", version)},
            {"/usr/bin/nvidia-container-toolkit": "nvidia-container-runtime-hook"},
        ),
        "libnvidia-container-tools": ({"/usr/bin/nvidia-container-cli": program("cli:main", version)}, {}),
        "libnvidia-container1": (
            {f"{folder}/libnvidia-container.so.{version}": library()},
            {f"{folder}/libnvidia-container.so.1": f"libnvidia-container.so.{version}"},
        ),
    }
    return {
        name: (files, {path: 0o755 for path in files if path.startswith(("/usr/bin/", folder))}, links)
        for name, (files, links) in every.items()
    }


def has_refresh(version: str) -> bool:
    """Whether this version brings nvidia-cdi-refresh."""
    return tuple(map(int, version.split("."))) >= FIRST_WITH_REFRESH


def debs(version: str) -> list[deb.Deb]:
    """The four packages as debs."""
    full = f"{version}-{RELEASE}"
    relations = {
        "nvidia-container-toolkit-base": {
            "Breaks": "nvidia-container-runtime (<= 3.5.0-1), nvidia-container-runtime-hook (<= 1.4.0-1)",
            "Replaces": "nvidia-container-runtime (<= 3.5.0-1), nvidia-container-runtime-hook (<= 1.4.0-1)",
        },
        "nvidia-container-toolkit": {
            "Depends": f"nvidia-container-toolkit-base (= {full}), libnvidia-container-tools (>= {full}), "
            "libnvidia-container-tools (<< 2.0.0)",
            "Breaks": "nvidia-container-runtime (<= 3.5.0-1), nvidia-container-runtime-hook",
            "Replaces": "nvidia-container-runtime (<= 3.5.0-1), nvidia-container-runtime-hook",
        },
        "libnvidia-container-tools": {"Depends": f"libc6 (>= 2.14), libnvidia-container1 (>= {full})"},
        "libnvidia-container1": {"Depends": "libc6 (>= 2.14)"},
    }
    base_scripts = {"postinst": "#!/bin/sh\n" + CONFIGURE.format(BASE_POST_INSTALL)}
    if has_refresh(version):
        base_scripts["postinst"] = "#!/bin/sh\n" + CONFIGURE.format(BASE_POST_INSTALL + REFRESH_POST_INSTALL)
        base_scripts["prerm"] = "#!/bin/sh\n" + REFRESH_PRE_REMOVE.format(condition='$1" = "remove')
    scripts = {
        "nvidia-container-toolkit-base": base_scripts,
        "libnvidia-container1": dict.fromkeys(("postinst", "postrm"), "#!/bin/sh\nset -e\nldconfig\n"),
    }
    return [
        deb.Deb(
            name=name,
            version=full,
            summary="NVIDIA Container Toolkit (stand-in)",
            section="utils",
            files=files,
            modes=modes,
            links=links,
            relations=relations[name],
            scripts=scripts.get(name, {}),
            conffiles=[path for path in files if path.startswith("/etc/")],
        )
        for name, (files, modes, links) in contents(version, "deb").items()
    ]


def rpms(version: str) -> list[rpm.Rpm]:
    """The four packages as rpms."""
    full = f"{version}-{RELEASE}"
    requires = {
        "nvidia-container-toolkit": [
            f"nvidia-container-toolkit-base = {full}",
            f"libnvidia-container-tools >= {full}",
            "libnvidia-container-tools < 2.0.0",
        ],
        "libnvidia-container-tools": [f"libnvidia-container1(x86-64) >= {full}"],
    }
    base_scripts = {"posttrans": BASE_POST_INSTALL}
    if has_refresh(version):
        base_scripts["posttrans"] += REFRESH_POST_INSTALL
        base_scripts["preun"] = REFRESH_PRE_REMOVE.format(condition='$1" = "0')
    scripts = {
        "nvidia-container-toolkit-base": base_scripts,
        "libnvidia-container1": dict.fromkeys(("post", "postun"), "/sbin/ldconfig"),
    }
    return [
        rpm.Rpm(
            name=name,
            version=version,
            release=RELEASE,
            summary="NVIDIA Container Toolkit (stand-in)",
            files=files,
            modes=modes,
            links=links,
            requires=requires.get(name, []),
            provides=[f"{name}(x86-64) = {full}"] if name == "libnvidia-container1" else [],
            scripts=scripts.get(name, {}),
            config=[path for path in files if path.startswith("/etc/nvidia")],
        )
        for name, (files, modes, links) in contents(version, "rpm").items()
    ]


def main() -> None:
    """Make the repository beside the old one, then put it in its place."""
    state, target, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    key = signing.key(state / "keys/toolkit", OWNER)
    new = target.with_name(f"{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    deb_folder, rpm_folder = new / "stable/deb/amd64", new / "stable/rpm/x86_64"
    made_rpms: list[Path] = []
    for version in VERSIONS:
        for package in debs(version):
            deb.build(package, deb_folder)
        made_rpms += [rpm.build(package, rpm_folder) for package in rpms(version)]
    deb.write_index(deb_folder, deb.packages_index(deb_folder, "."))
    fields = {"Origin": url, "Label": "NVIDIA CORPORATION (stand-in)", "Architectures": "amd64"}
    deb.write_release(deb_folder, key, fields)
    rpm.sign(made_rpms, key)
    rpm.index(rpm_folder)
    key.detach_sign(rpm_folder / "repodata/repomd.xml", rpm_folder / "repodata/repomd.xml.asc")

    shutil.copyfile(state / "keys/toolkit/public.asc", new / "gpgkey")
    (new / "stable/deb/nvidia-container-toolkit.list").write_text(f"deb {url}/stable/deb/$(ARCH) /\n", encoding="utf-8")
    (new / "stable/rpm/nvidia-container-toolkit.repo").write_text(
        "[nvidia-container-toolkit]\nname=nvidia-container-toolkit\n"
        f"baseurl={url}/stable/rpm/$basearch\nrepo_gpgcheck=1\ngpgcheck=1\nenabled=1\ngpgkey={url}/gpgkey\n",
        encoding="utf-8",
    )
    for short in ("deb", "rpm"):
        (new / short).symlink_to(f"stable/{short}")
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
    print(f"{len(made_rpms)} rpms and as many debs")


if __name__ == "__main__":
    main()
