"""What this machine's package clients are told, so that the bench's nodes can be told the same.

Nothing here names a mirror: the addresses come from the machine's own configuration, or from mmdebstrap's default.
"""

from __future__ import annotations

import re
import shlex
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path

from benchlib.shell import run

DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
NODE_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
NODE_PIP_CONSTRAINTS = "/etc/pip-constraints.txt"
APT_OPTIONS = re.compile(
    r"^Acquire::(http|https|ftp)::(Proxy|Timeout|Verify-Peer|Verify-Host)\b"
    r"|^Acquire::(Check-Valid-Until|Check-Date|Retries|ForceIPv4|ForceIPv6)\b"
)
"""The apt options of the machine that say how a mirror is reached. Files (CaInfo) are not taken: CAs travel as CAs."""


@dataclass(frozen=True)
class Mirrors:
    """Where Debian comes from: base URIs of the archive and of its security updates."""

    archive: str
    security: str

    def lines(self, suite: str, components: str) -> list[str]:
        """The one-line apt sources of a `suite` with its updates and security updates."""
        return [
            f"deb {self.archive} {suite} {components}",
            f"deb {self.archive} {suite}-updates {components}",
            f"deb {self.security} {suite}-security {components}",
        ]


def os_release(text: str) -> dict[str, str]:
    """The key-value pairs of an os-release file."""
    pairs = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.startswith("#"):
            pairs[key.strip()] = "".join(shlex.split(value))
    return pairs


def parse_sources(text: str) -> list[tuple[str, str]]:
    """(URI, suite) pairs of apt sources in the one-line or the deb822 format."""
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        found = re.match(r"deb\s+(?:\[[^]]*]\s+)?(\S+)\s+(\S+)\s+\S", line)
        if found:
            pairs.append((found[1], found[2]))
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(Types|URIs|Suites|Enabled):\s*(.+)$", stanza, re.MULTILINE))
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled", "yes").strip() == "no":
            continue
        pairs += [(uri, suite) for uri in fields.get("URIs", "").split() for suite in fields.get("Suites", "").split()]
    return pairs


def pick_mirrors(pairs: list[tuple[str, str]], codename: str) -> Mirrors | None:
    """The mirrors among a Debian machine's sources, None when its own `codename` is not there."""
    archive = next((uri for uri, suite in pairs if suite == codename), None)
    if archive is None:
        return None
    security = next((uri for uri, suite in pairs if suite == f"{codename}-security"), None)
    return Mirrors(archive, security or re.sub(r"/debian/?$", "/debian-security", archive))


def debian_mirrors() -> Mirrors | None:
    """The mirrors that this machine uses, None when it is not Debian or has none of its own release."""
    release = os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    if release.get("ID") != "debian":
        return None
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n\n".join(
        file.read_text(encoding="utf-8") for file in files if file.is_file() and file.suffix in (".list", ".sources")
    )
    return pick_mirrors(parse_sources(text), release.get("VERSION_CODENAME", ""))


def apt_options() -> list[str]:
    """The machine's apt options that matter for reaching a mirror, as lines of apt.conf."""
    dump = run(["apt-config", "dump"], check=False).stdout
    return [line for line in dump.splitlines() if APT_OPTIONS.match(line) and not line.endswith('"";')]


def own_cas() -> list[str]:
    """Certificates (PEM) that this machine trusts beyond its distribution's set: a proxy's or a company's CA."""
    shipped: set[bytes] = set()
    for file in Path("/usr/share/ca-certificates").rglob("*.crt"):
        shipped.update(ssl.PEM_cert_to_DER_cert(pem) for pem in pem_blocks(file.read_text(encoding="utf-8")))
    bundle = Path(ssl.get_default_verify_paths().cafile or NODE_CA_BUNDLE)
    if not shipped or not bundle.is_file():
        return []
    trusted = pem_blocks(bundle.read_text(encoding="utf-8", errors="replace"))
    return [pem for pem in trusted if ssl.PEM_cert_to_DER_cert(pem) not in shipped]


def pem_blocks(text: str) -> list[str]:
    """The certificates in a PEM bundle."""
    return re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)


def pip_files() -> dict[str, str]:
    """Files (path on a node: content) that make pip on a node do what pip on this machine does.

    Folders of this machine (find-links, file: indexes) are left out: a node does not have them.
    """
    listed = run([sys.executable, "-m", "pip", "config", "list"], check=False).stdout
    settings: dict[str, str] = {}
    for line in listed.splitlines():
        found = re.match(r"(?:global|install|:env:)\.([a-z0-9-]+)='(.*)'$", line)
        if found:
            settings[found[1]] = found[2].replace("\\n", " ")
    files: dict[str, str] = {}
    kept: dict[str, str] = {}
    for key in ("index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "timeout", "default-timeout", "retries"):
        remote = [word for word in settings.get(key, "").split() if not word.startswith(("/", "file:", "~", "."))]
        if remote:
            kept["timeout" if key == "default-timeout" else key] = " ".join(remote)
    if "cert" in settings:
        kept["cert"] = NODE_CA_BUNDLE
    constraints = [Path(word) for word in settings.get("constraint", "").split() if Path(word).is_file()]
    if constraints:
        files[NODE_PIP_CONSTRAINTS] = "\n".join(path.read_text(encoding="utf-8") for path in constraints)
        kept["constraint"] = NODE_PIP_CONSTRAINTS
    if kept:
        files["/etc/pip.conf"] = "[global]\n" + "".join(f"{key} = {value}\n" for key, value in sorted(kept.items()))
    return files
