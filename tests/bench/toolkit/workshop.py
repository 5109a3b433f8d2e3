"""The builder image, and running this folder's code in it. Used by the bench's builds on the machine itself."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from benchlib import images, paths  # noqa: E402
from benchlib.content import content_hash  # noqa: E402
from benchlib.shell import docker, say, working  # noqa: E402

BASE = "base-trixie"
BUILDER = "builder-trixie"


def builder() -> str:
    """Make the builder image where it is absent or older than what it is made from; its digest.

    Raises SystemExit when the base image is not there.
    """
    base = images.image_id(BASE)
    if not base:
        raise SystemExit(f"the image {images.tag(BASE)} is not there; run tests/bench/base/build first")
    digest = content_hash([HERE / "builder"], base)
    if images.fresh(BUILDER, digest):
        say(f"  {BUILDER}: unchanged")
    else:
        images.build(BUILDER, digest, HERE / "builder", BASE=images.tag(BASE))
    return digest


def in_builder(text: str, *command: str, network: bool = False) -> str:
    """Run a command in the builder and return what it printed; `text` says what it does.

    tests/bench is /bench there (read-only), the state folder /state. Raises CommandFailed when it fails.
    """
    # Made here, not by the builder's root, so that whoever builds may write beside what the builder writes.
    for folder in ("cache", "keys", "repositories", "work/ubuntu"):
        (paths.state() / folder).mkdir(parents=True, exist_ok=True)
    with working(text):
        return docker(
            "run",
            "--rm",
            "--label",
            f"inferack.bench={paths.number()}",
            *(() if network else ("--network", "none")),
            "--volume",
            f"{paths.BENCH_DIR}:/bench:ro",
            "--volume",
            f"{paths.state()}:/state",
            "--env",
            "PYTHONPATH=/bench/toolkit:/bench",
            "--env",
            "PYTHONDONTWRITEBYTECODE=1",
            images.tag(BUILDER),
            *command,
        )


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other build that uses the builder runs in this state folder, and keep others waiting."""
    with (paths.state() / "builder.lock").open("w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  another build is running; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_made(stamp: Path, digest: str) -> bool:
    """Whether the part with this stamp file was made from content `digest`."""
    return stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == digest


def mark_made(stamp: Path, digest: str) -> None:
    """Note that the part with this stamp file is made from content `digest`."""
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(digest + "\n", encoding="utf-8")
