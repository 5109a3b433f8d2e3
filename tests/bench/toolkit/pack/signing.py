"""The bench's own signing keys: made once in its state folder, never committed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Key:
    """A key pair in the GnuPG home `home`. `fingerprint` has 40 hexadecimal digits."""

    home: Path
    fingerprint: str

    def gpg(self, *args: str) -> bytes:
        """Run gpg in the key's home and return what it printed. Raises CalledProcessError."""
        command = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--quiet", "--local-user", self.fingerprint]
        return subprocess.run([*command, *args], check=True, capture_output=True).stdout

    def clear_sign(self, source: Path, target: Path) -> None:
        """Write `target`: `source` with a signature around it."""
        self.gpg("--digest-algo", "SHA512", "--clearsign", "--output", str(target), str(source))

    def detach_sign(self, source: Path, target: Path) -> None:
        """Write `target`: an armoured signature of `source`."""
        self.gpg("--digest-algo", "SHA512", "--armor", "--detach-sign", "--output", str(target), str(source))


def fingerprint(home: Path) -> str:
    """The fingerprint of the secret key in `home`, empty when there is none."""
    command = ["gpg", "--homedir", str(home), "--batch", "--with-colons", "--list-secret-keys"]
    listing = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return next((line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:")), "")


def key(folder: Path, owner: str) -> Key:
    """The key pair in `folder`, made when absent for `owner` ("Name <mail>").

    Beside it lie its public half as public.asc (armoured) and public.gpg (binary).
    """
    home = folder / "gnupg"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not fingerprint(home):
        command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        subprocess.run([*command, "--quick-gen-key", owner, "rsa3072", "sign", "never"], check=True)
    made = Key(home, fingerprint(home))
    (folder / "public.asc").write_bytes(made.gpg("--armor", "--export", made.fingerprint))
    (folder / "public.gpg").write_bytes(made.gpg("--export", made.fingerprint))
    return made


def main() -> None:
    """Make the key pairs named on the command line: pairs of a folder and an owner."""
    import sys

    for folder, owner in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        key(Path(folder), owner)


if __name__ == "__main__":
    main()
