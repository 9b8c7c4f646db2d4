"""Releases for the chaos tests of blobsync, and an independent reader of a local store.

Not a test. The reader relies only on the format: it hashes all files that the store's index calls verified.
"""

from __future__ import annotations

import hashlib
import random
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import zstandard
from blake3 import blake3

VERSIONS = 9
MIB = 1 << 20
CHUNK_BYTES = 16 * MIB
_MAGIC = b"BSPACK1\n"


def files_of(version: int) -> dict[str, bytes]:
    """The files of one version: most are shared with other versions, some are not packed, one has chunks."""
    dice = random.Random(1000 + version)
    files = {f"lib/m{number}.py": b"common %d\n" % number * 300 for number in range(40)}
    files |= {f"data/v{number}": dice.randbytes(dice.randint(0, 30_000)) for number in range(15)}
    files["same/a"] = files["same/b"] = b"%d" % version
    if version % 3 == 1:
        files["alone"] = dice.randbytes(5 * MIB)
    if version == VERSIONS - 1:
        files["chunked"] = dice.randbytes(33 * MIB)
    return files


def write_versions(folder: Path) -> None:
    """Write all versions as folders to publish from."""
    for version in range(VERSIONS):
        for path, data in files_of(version).items():
            file = folder / str(version) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def audit(root: Path, releases: Mapping[str, Mapping[str, bytes]]) -> list[str]:
    """Faults in a store; empty if every file with a final name has the right bytes.

    Args:
        root: The store's folder, which must not change now.
        releases: Files of each release, by digest.
    """
    known = {
        hashlib.sha256(data).hexdigest(): len(data) for files in releases.values() for data in files.values()
    }
    faults = [f"{place} counts, and is no file of ours" for place in counted(root) if not _named(root, place)]
    for path in sorted((root / "packs").glob("*/*")):
        faults += _pack_faults(path, known)
    blobs = {_blob_name(data) for files in releases.values() for data in files.values()}
    for path in sorted((root / "blobs").glob("*/*")):
        if _blob_name(path.read_bytes()) != path.name or path.name not in blobs:
            faults.append(f"{path} has other bytes than its name says")
    for path in sorted((root / "releases").glob("*/*.json")):
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.stem:
            faults.append(f"{path} is not the manifest that it is named after")
    for path in sorted((root / "trees").iterdir()):
        if path.is_dir() and _tree(path) != releases.get(path.name):
            faults.append(f"{path} is not the release")
    return faults


def counted(root: Path) -> Iterator[str]:
    """Places of files that the index lists as verified."""
    found: dict[str, tuple[int, ...]] = {}
    for line in (root / "verified").read_bytes().split(b"\n"):
        check, _, words = line.partition(b" ")
        if check == b"%08x" % zlib.crc32(words):
            size, mtime, inode, _, place = words.decode().split(" ", 4)
            found[place] = (int(size), int(mtime), int(inode))
    for place, expected in found.items():
        try:
            now = (root / place).lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(now.st_mode) and (now.st_size, now.st_mtime_ns, now.st_ino) == expected:
            yield place


def _named(root: Path, place: str) -> bool:
    """True if the audit hashes this file, so that no listed file is left out."""
    parts = Path(place).parts
    return len(parts) == 3 and parts[0] in {"packs", "blobs"} and (root / place).is_file()


def _tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _blob_name(data: bytes) -> str:
    if len(data) <= CHUNK_BYTES:
        return hashlib.sha256(data).hexdigest()
    view = memoryview(data)
    chunks = (view[at : at + CHUNK_BYTES] for at in range(0, len(view), CHUNK_BYTES))
    return "b3-" + blake3(b"".join(blake3(chunk).digest() for chunk in chunks)).hexdigest()


def _pack_faults(path: Path, known: Mapping[str, int]) -> Iterator[str]:
    data = path.read_bytes()
    if blake3(data).hexdigest() != path.name:
        yield f"{path} has other bytes than its name says"
        return
    members, frames = struct.unpack("<II", data[-16:-8])
    table = len(data) - 16 - members * 36 - frames * 16
    at = len(_MAGIC)
    entries = struct.iter_unpack("<32sI", data[table + frames * 16 : -16])
    for stored, raw_bytes, count, codec in struct.iter_unpack("<IIII", data[table : table + frames * 16]):
        raw = data[at : at + stored]
        raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=raw_bytes) if codec else raw
        at, start = at + stored, 0
        for digest, size in (next(entries) for _ in range(count)):
            member = raw[start : start + size]
            start += size
            if hashlib.sha256(member).digest() != digest or known.get(digest.hex()) != size:
                yield f"{path} has a member that is not {digest.hex()}, or that was never published"
