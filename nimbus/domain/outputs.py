"""Files of committed outputs, as schedulers list them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nimbus.domain.errors import NimbusError


class OutputsNotHereError(NimbusError):
    """This scheduler has no place of outputs in its configuration, or cannot read it."""

    code = "outputs_not_here"
    exit_code = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One file of an output."""

    path: str
    """Relative to the output, with `/`."""
    size_bytes: int
    sha256: str = ""
    """Empty: the output has no manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A part of the files of an output, in the order of `file_order`."""

    files: Sequence[ListedFile] = ()
    truncated: bool = False
    """True: more files follow."""
    total_files: int | None = None
    """Of the whole output; None: it was not read to its end."""
    total_bytes: int | None = None


def file_order(path: str) -> tuple[tuple[bool, str], ...]:
    """The order of a walk: the files of a folder by name, then its folders by name."""
    *folders, name = path.split("/")
    return (*((True, folder) for folder in folders), (False, name))


def listing(found: Iterable[ListedFile], limit: int, after: str = "") -> Listing:
    """The first `limit` files after a path. `found` has the order of `file_order`."""
    files: list[ListedFile] = []
    count = size = 0
    last = file_order(after) if after else None
    for file in found:
        count, size = count + 1, size + file.size_bytes
        if last is not None and file_order(file.path) <= last:
            continue
        if len(files) == limit:
            return Listing(files=files, truncated=True)
        files.append(file)
    return Listing(files=files, total_files=count, total_bytes=size)
