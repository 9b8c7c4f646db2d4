"""Stores Spark's event log of an ended attempt beside the attempt's log.

Spark writes it into the driver's own folder, so its content is not trusted: see `attempt_folder`.
"""

from __future__ import annotations

import structlog

from nimbus.ports import Kept, LogArchive
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.files import read_untrusted

LARGEST_BYTES = 64 << 20
"""Compressed size; about a tenth of the text. A larger log stays in the attempt's folder."""
_PIECE_BYTES = 1 << 20
_FILES = "*.zstd*"
"""`<application>.zstd`, with the suffix `.inprogress` if Spark could not finish it."""

_log = structlog.get_logger(__name__)


def store_event_log(folder: AttemptFolder, archive: LogArchive) -> None:
    """Store the event log, if there is one; with several applications, the last one's. Safe to repeat.

    Raises the archive's errors.
    """
    found = sorted(folder.work.glob(_FILES), key=lambda file: file.lstat().st_mtime_ns)
    if not found:
        return
    data = read_untrusted(found[-1], LARGEST_BYTES)
    if data is None:
        _log.warning("event_log_not_stored", attempt=str(folder.attempt), most_bytes=LARGEST_BYTES)
        return
    for offset in range(0, len(data), _PIECE_BYTES):
        archive.append(folder.attempt, offset, data[offset : offset + _PIECE_BYTES], Kept.EVENTS)
