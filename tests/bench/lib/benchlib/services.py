"""The services host: registry with a login, package repositories, the LPU's stand-in."""

from __future__ import annotations

import time

from benchlib import nodes, paths
from benchlib.shell import CommandFailed, docker, docker_prefix, run, say

TRUST = """
folder=/etc/docker/certs.d/registry.bench.test:5000
mkdir -p "$folder"
cat > "$folder/ca.crt" <<'EOF'
@PEM@
EOF
if command -v update-ca-trust >/dev/null; then
    cp "$folder/ca.crt" /etc/pki/ca-trust/source/anchors/inferack-bench.crt
    update-ca-trust >/dev/null 2>&1
else
    cp "$folder/ca.crt" /usr/local/share/ca-certificates/inferack-bench.crt
    update-ca-certificates >/dev/null 2>&1
fi
"""


def up() -> None:
    """Start the services host and fill its registry from $BENCH_STATE/images.

    Raises CommandFailed when the registry does not come up or refuses an archive.
    """
    one = nodes.host(nodes.SERVICES)
    nodes.start(one)
    for _ in range(60):
        if docker_answers(one):
            break
        time.sleep(0.5)
    else:
        log = docker("exec", one.container, "journalctl", "-u", "bench-registry", "-n", "15", "--no-pager", check=False)
        raise CommandFailed(f"the registry did not come up in 30 s:\n{log}")
    result = run([*docker_prefix(), "exec", one.container, "/opt/services/fill"])
    if result.stdout.strip():
        say(result.stdout.rstrip())
    say(f"  services: {one.ip}")


def docker_answers(one: nodes.Host) -> bool:
    """Whether the registry asks for a login, as it should."""
    code = docker(
        "exec", one.container, "curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}",
        "--cacert", "/srv/tls/ca/ca.crt", "--resolve", f"registry.bench.test:5000:{one.ip}",
        "https://registry.bench.test:5000/v2/", check=False,
    )  # fmt: skip
    return code == "401"


def trust(one: nodes.Host) -> None:
    """Make a node trust the bench's CA, in Docker's folder for the registry and in its own store."""
    pem = (paths.state() / "tls/ca/ca.crt").read_text(encoding="utf-8").strip()
    have = docker("exec", one.container, "cat", "/etc/docker/certs.d/registry.bench.test:5000/ca.crt", check=False)
    if have.strip() != pem:
        nodes.shell(one, TRUST.replace("@PEM@", pem))
