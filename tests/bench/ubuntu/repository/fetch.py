"""Download the Debian packages that the roles need and the node lacks, with what they depend on.

Runs in the builder. `python3 -m ubuntu.repository.fetch <dpkg status of the node> <cache>`; the file `wanted` in the
cache lists the packages of this run, so that older ones in the cache are not published.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

WANTED = {
    "Docker": "docker.io docker-cli docker-buildx containerd runc apparmor git xz-utils pigz",
    "building modules": "dkms gcc make libc6-dev build-essential fakeroot linux-libc-dev libelf-dev patch mokutil",
    "Python": "python3-venv python3-pip python3-debian python3-docker python3-requests python3-yaml python3-packaging",
    "tools": "curl wget gnupg ca-certificates jq rsync unzip bzip2 acl pciutils openssl busybox-static apt-transport-https",
    "server": "unattended-upgrades python3-apt libcap2-bin nftables chrony logrotate haproxy",
}
"""Debian packages by what they are for; names separated by blanks."""


def main() -> None:
    """Download what is not in the cache yet."""
    status, cache = Path(sys.argv[1]), Path(sys.argv[2])
    (cache / "partial").mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    options = [
        "-o",
        f"Dir::State::status={status}",
        "-o",
        "APT::Sandbox::User=root",
        "-o",
        "APT::Keep-Downloaded-Packages=true",
        "-o",
        "Debug::NoLocking=true",
    ]
    command = [
        "apt-get",
        *options,
        "install",
        "--no-install-recommends",
        "--yes",
        "--reinstall",
        *" ".join(WANTED.values()).split(),
    ]
    with tempfile.TemporaryDirectory() as empty:
        # With an empty cache: what lies in the archive folder already is not listed. 'uri' name size hash.
        (Path(empty) / "partial").mkdir()
        listing = [command[0], "-o", f"Dir::Cache::archives={empty}", *command[1:], "--print-uris", "-qq"]
        told = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    names = [line.split()[1] for line in told.splitlines() if line.startswith("'")]
    command[1:1] = ["-o", f"Dir::Cache::archives={cache}"]
    done = subprocess.run([*command, "--download-only", "-qq"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"apt could not download the packages:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    missing = [name for name in names if not (cache / name).exists()]
    if missing or not names:
        raise SystemExit(f"apt downloaded without {missing or 'anything'} in {cache}")
    (cache / "wanted").write_text("\n".join(sorted(names)) + "\n", encoding="utf-8")
    print(f"{len(names)} packages")


if __name__ == "__main__":
    main()
