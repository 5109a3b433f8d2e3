"""Images of the bench: named, labelled, tagged by what they were made from."""

from __future__ import annotations

from pathlib import Path

from benchlib.shell import docker, docker_ok, docker_prefix, run, working

PREFIX = "inferack-bench/"
LABEL = "inferack.bench.image"


def tag(name: str, version: str = "latest") -> str:
    """The full name of the bench's image `name`."""
    return f"{PREFIX}{name}:{version}"


def fresh(name: str, digest: str) -> bool:
    """Whether `name` was already made from content `digest`; it is tagged latest again if so."""
    if not docker_ok("image", "inspect", tag(name, digest)):
        return False
    docker("tag", tag(name, digest), tag(name))
    return True


def image_id(name: str) -> str:
    """The id of the bench's image `name`, empty when there is none."""
    return docker("image", "inspect", "--format", "{{.Id}}", tag(name), check=False)


def drop_older(name: str, digest: str) -> None:
    """Remove the tags of `name` that were made from other content than `digest`."""
    for version in docker("image", "ls", "--format", "{{.Tag}}", f"{PREFIX}{name}").splitlines():
        if version not in (digest, "latest", "<none>"):
            docker("image", "rm", tag(name, version), check=False)


def import_tar(name: str, digest: str, tar: Path) -> None:
    """Make the image `name` of a file-system archive."""
    docker("import", "--change", f"LABEL {LABEL}={name}", str(tar), tag(name, digest))
    docker("tag", tag(name, digest), tag(name))
    drop_older(name, digest)


def build(name: str, digest: str, context: Path, dockerfile: Path | None = None, **arguments: str) -> None:
    """Make the image `name` with `docker build` from `context`; `arguments` are build arguments.

    Raises CommandFailed with the end of the build's output when it fails.
    """
    command = [*docker_prefix(), "build", "--label", f"{LABEL}={name}", "-t", tag(name, digest), "--rm", "--force-rm"]
    if dockerfile:
        command += ["-f", str(dockerfile)]
    for key, value in arguments.items():
        command += ["--build-arg", f"{key}={value}"]
    with working(f"docker build {name}"):
        run([*command, str(context)])
    docker("tag", tag(name, digest), tag(name))
    drop_older(name, digest)
