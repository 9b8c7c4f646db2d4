"""Finds the wheels and jars of a release that a task uses, and unpacks the wheels. Any thread.

Folders are named by the wheel's digest and shared by all attempts. A wheel is an untrusted zip file: each
member's name is checked before anything is written.

The library `installer` 1.1 cannot replace this: it limits neither bytes nor members, accepts names with `..`
that stay inside, and writes a link as a file.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Set
from functools import cache
from pathlib import Path, PurePath, PurePosixPath

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from nimbus.domain.errors import NimbusError
from nimbus.worker.host.files import sync_folder

MAX_TOTAL_BYTES = 4 << 30
MAX_MEMBERS = 200_000
_CHUNK_BYTES = 1 << 20


def find_wheels(release_root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """The wheels that the patterns name, as paths in the release; of each package the first."""
    chosen: dict[str, str] = {}
    for paths in _found(release_root, patterns):
        if same := same_package(map(PurePosixPath, paths)):
            raise BadWheelError(same[1], f"is of the same package as {same[0].name}")
        for path in paths:
            chosen.setdefault(package_of(PurePosixPath(path)), path)
    return tuple(chosen.values())


def find_jars(release_root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """The jars that the patterns name, as paths in the release: by pattern, then by name."""
    return tuple(dict.fromkeys(path for paths in _found(release_root, patterns) for path in paths))


def _found(release_root: Path, patterns: Iterable[str]) -> Iterator[list[str]]:
    """The files of each pattern, as paths in the release."""
    from blobsync import matching

    files: list[str] | None = None
    for pattern in patterns:
        if files is None:
            paths = sorted(release_root.rglob("*"))
            files = [path.relative_to(release_root).as_posix() for path in paths if path.is_file()]
        yield matching(pattern, files)


class BadWheelError(NimbusError):
    """A wheel of a release cannot be used here."""

    code = "bad_wheel"

    def __init__(self, wheel: PurePath, why: str) -> None:
        super().__init__(f"wheel {wheel.name} {why}. Publish a release without it or with a good one.")


def unpack_wheel(wheel: Path, root: Path, own: Set[Tag] | None = None) -> Path:
    """Unpack a wheel below `root`, unless it is already there; return the folder to import from.

    `own`: tags that the task's interpreter supports; None: those of this one.

    Raises:
        BadWheelError: it is not a wheel, is for another platform, or has a name or size that is not allowed.
        OSError: the disk is full or cannot be written.
    """
    if reason := why_not_here(wheel.name, own):
        raise BadWheelError(wheel, reason)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    place = root / digest
    if place.is_dir():
        return place
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=root, prefix=f".{digest[:12]}.", suffix=".part"))
    try:
        try:
            with zipfile.ZipFile(wheel) as archive:
                _unpack(wheel, archive, part)
            _let_users_read(part)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as exc:
            raise BadWheelError(wheel, f"holds the name {exc.filename!r} twice") from exc
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as exc:
            raise BadWheelError(wheel, f"is damaged or of a kind that cannot be unpacked: {exc}") from exc
        _install(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def _let_users_read(place: Path) -> None:
    """Let every user read an unpacked wheel, as tasks may run as another one. Its own folder comes last."""
    for folder, _, names in os.walk(place, topdown=False):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
        Path(folder).chmod(0o755)


def _install(part: Path, place: Path) -> None:
    try:
        part.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        return  # another attempt was faster; the digest proves that it is the same
    sync_folder(place.parent)


def _unpack(wheel: Path, archive: zipfile.ZipFile, into: Path) -> None:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise BadWheelError(wheel, f"holds {len(members)} files; at most {MAX_MEMBERS} are allowed")
    if not any(_is_wheel_file(member.filename) for member in members):
        raise BadWheelError(wheel, "is no wheel: it has no .dist-info/WHEEL")
    left = MAX_TOTAL_BYTES
    for member in members:
        relative = _importable(_checked_name(wheel, member))
        target = into / relative
        if member.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        left -= _write(archive, member, target, left)
        if left < 0:
            raise BadWheelError(wheel, f"holds more than {MAX_TOTAL_BYTES} bytes unpacked")


def _is_wheel_file(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "WHEEL"


def _checked_name(wheel: Path, member: zipfile.ZipInfo) -> PurePosixPath:
    name = member.filename
    path = PurePosixPath(name)
    odd = "\\" in name or "\0" in member.orig_filename
    if odd or not path.parts or path.is_absolute() or ".." in path.parts:
        raise BadWheelError(wheel, f"holds the name {name!r}, which would leave its folder")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadWheelError(wheel, f"holds {name!r}, which is a link or a device and no file")
    return path


def _importable(path: PurePosixPath) -> PurePosixPath:
    """The target path of a member: `<name>.data/purelib/` and `platlib/` are moved to the root (PEP 427)."""
    parts = path.parts
    if len(parts) > 2 and parts[0].endswith(".data") and parts[1] in ("purelib", "platlib"):
        return PurePosixPath(*parts[2:])
    return path


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write one member; return its size. Stops beyond `left`, because the size in a zip file may be wrong."""
    written = 0
    # O_EXCL: a repeated name must not replace a file that was already checked.
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file, archive.open(member) as source:
        while written <= left and (chunk := source.read(_CHUNK_BYTES)):
            file.write(chunk)
            written += len(chunk)
    if (member.external_attr >> 16) & 0o100:
        target.chmod(0o700)
    return written


def why_not_here(file_name: str, own: Set[Tag] | None = None) -> str | None:
    """Why a wheel cannot be imported here, by its name; None: it can. `own`: as of `unpack_wheel`."""
    try:
        *_, tags = parse_wheel_filename(file_name)
    except InvalidWheelFilename as exc:
        return f"has no valid wheel name (name-version-python-abi-platform.whl): {exc}"
    if not tags.isdisjoint(_own_tags() if own is None else own):
        return None
    # As written in the name, because 250 characters can expand to 20,000 combinations.
    needed = "-".join(file_name.removesuffix(".whl").split("-")[-3:])
    here = f"Python {platform.python_version()}" if own is None else "the Python of the task's environment"
    return f"is for {needed}, and this is {sysconfig.get_platform()} with {here}"


def package_of(wheel: PurePath) -> str:
    """The normalized name of a wheel's package."""
    return canonicalize_name(wheel.name.partition("-")[0])


def same_package(wheels: Iterable[PurePath]) -> tuple[PurePath, PurePath] | None:
    """Two wheels of one package, of which a task could import only one; None if there are none."""
    known: dict[str, PurePath] = {}
    for wheel in wheels:
        other = known.setdefault(package_of(wheel), wheel)
        if other is not wheel:
            return other, wheel
    return None


@cache
def _own_tags() -> frozenset[Tag]:
    return frozenset(sys_tags())
