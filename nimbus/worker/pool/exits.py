"""Exit records of an executor: on disk before they become ENDs, and kept until then."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import structlog

from nimbus.domain.slots import Claim, End
from nimbus.records import END, UnreadableRecordError
from nimbus.worker.host.files import read_if_there

_log = structlog.get_logger(__name__)

_LARGE_BYTES = 256 << 10


class Exits:
    """A file of records, one on each line, written only by the executor. One thread at a time."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, ends: Iterable[End]) -> None:
        """Write several records durably. On a full disk they exist only as ENDs, or are lost with us."""
        data = b"".join(END.encode(end) + b"\n" for end in ends)
        if not data:
            return
        try:
            data = b"\n" + data  # what is before may be half a line, from when the disk was full
            while data:
                data = data[os.write(self._fd, data) :]
            os.fdatasync(self._fd)
        except OSError as exc:
            _log.error("exit_records_not_on_disk", error=str(exc))

    def all_delivered(self) -> None:
        """Remove the records if there are many: all are ENDs."""
        if os.fstat(self._fd).st_size > _LARGE_BYTES:
            os.ftruncate(self._fd, 0)


def read_exits(path: Path) -> dict[str, End]:
    """The records of a dead executor, by attempt. Incomplete lines are ignored."""
    found: dict[str, End] = {}
    for line in (read_if_there(path) or b"").splitlines():
        try:
            end = END.decode(line, str(path))
        except UnreadableRecordError:
            continue
        found[end.attempt] = end
    return found


def exit_of(path: Path, claim: Claim) -> End | None:
    """The record of one attempt, if it belongs to this claim."""
    end = read_exits(path).get(claim.attempt)
    return end if end is not None and end.nonce == claim.nonce else None
