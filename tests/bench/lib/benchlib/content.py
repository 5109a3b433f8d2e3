"""Content hashes: what was built from the same files is not built again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def content_hash(paths: Iterable[Path], *extra: str) -> str:
    """A 16-digit hash of the files at `paths` (folders: everything in them), their names, run bits, and `extra`.

    Raises FileNotFoundError when a path does not exist.
    """
    digest = hashlib.sha256()
    for top in sorted(paths):
        if not top.exists():
            raise FileNotFoundError(f"expected something to hash at {top}, found nothing")
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        for file in files:
            if "__pycache__" in file.parts:
                continue
            name = file.relative_to(top.parent).as_posix()
            run_bit = "x" if file.stat().st_mode & 0o100 else "-"
            digest.update(f"{name}\0{run_bit}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    for text in extra:
        digest.update(f"\1{text}".encode())
    return digest.hexdigest()[:16]
