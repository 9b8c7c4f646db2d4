"""The files to copy. A fixed seed makes them equal in each run of the benchmark."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.benchmark.blobsync.scale import Files

_WORDS = (
    *("self", "return", "value", "name", "config", "path", "result", "index", "error", "state", "query"),
    *("table", "column", "row", "batch", "stream", "schema", "partition", "window", "join", "filter"),
    *("select", "group", "order", "limit", "reader", "writer", "session", "context", "task"),
)
_BLOCK = 4 << 20


def make(folder: Path, files: Files, seed: int = 1) -> None:
    """Create `folder`, and write the files there."""
    rng = random.Random(seed)
    for number in range(files.folders):
        (folder / f"part_{number:03d}").mkdir(parents=True, exist_ok=True)
    for number in range(files.count):
        path = folder / f"part_{number % files.folders:03d}" / f"file_{number:06d}.{_suffix(files)}"
        with path.open("wb") as file:
            for block in _blocks(files, rng):
                file.write(block)


def change(old: Path, new: Path, only_changed: Path, count: int) -> list[Path]:
    """Copy `old` to `new`, and change `count` files there. The changed files are in `only_changed`, too.

    Each changed file grows by a line, because `aws s3 sync` does not notice a changed file of the same size.

    Returns:
        Relative paths of the changed files.
    """
    shutil.copytree(old, new)
    every = sorted(path.relative_to(new) for path in new.rglob("*") if path.is_file())
    changed = every[:: max(1, len(every) // count)][:count]
    for path in changed:
        with (new / path).open("ab") as file:
            file.write(f"changed = {path.name!r}\n".encode())
        (only_changed / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(new / path, only_changed / path)
    return changed


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file, by relative path."""
    return dict(sorted(_digests(folder)))


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    for parent, _folders, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with path.open("rb") as file:
                yield path.relative_to(folder).as_posix(), hashlib.file_digest(file, "sha256").hexdigest()


def _suffix(files: Files) -> str:
    return "py" if files.is_text else "bin"


def _blocks(files: Files, rng: random.Random) -> Iterator[bytes]:
    if files.is_text:
        yield _text(files.size_bytes, rng)
        return
    left = files.size_bytes
    while left:
        yield rng.randbytes(min(left, _BLOCK))
        left -= min(left, _BLOCK)


def _text(size: int, rng: random.Random) -> bytes:
    """Lines that look like a program. zstd compresses them to about a quarter."""
    lines, length = [], 0
    while length < size:
        indent = " " * (4 * rng.randrange(4))
        names = "_".join(rng.choices(_WORDS, k=2)), rng.choice(_WORDS), rng.choice(_WORDS)
        line = f"{indent}{names[0]} = {names[1]}.{names[2]}({rng.randrange(100_000)})\n"
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()[:size]
