"""Ports: what runners, executors and workers need from the storage of outputs. No thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from nimbus.domain.errors import NimbusError


class OutputRefusedError(NimbusError):
    """An output contains something that cannot be stored. The message names it, and the remedy."""

    code = "output_refused"


class InputRefusedError(NimbusError):
    """An input cannot be read here, and a retry would fail again."""

    code = "input_refused"


class DataStore(Protocol):
    """The part of `blobsync.ObjectStore` that a `DataPlace` needs. Thread-safe."""

    def read(self, key: str) -> Iterator[bytes]:
        """Stream an object."""

    def write(self, key: str, data: bytes | Path) -> None:
        """Store an object."""

    def size(self, key: str) -> int | None:
        """Size of an object in bytes; None if it does not exist."""


class DataPlace(Protocol):
    """Stores outputs. END contains an output's reference: text, relative to the place. Thread-safe."""

    uri: str
    """URI of the place, without a slash at its end; references and prefixes are relative to it."""

    def prefix(self, output: str) -> str:
        """The place of an attempt's output: `output` of its order, or a name that begins with it."""

    def output(self, output: str, own: Path) -> Path:
        """The local folder that an attempt writes to; not created here. `own`: in the attempt's folder."""

    def commit(self, output: Path, prefix: str, noted: Path | None = None, *, published: bool = False) -> str:
        """Store the content of the folder durably; return its reference. The folder must not change any more.

        Args:
            output: The folder.
            prefix: The result of `prefix`.
            noted: Folder with notes about files that the task itself has stored; see `read_notes`.
            published: It will be a version of a dataset, so its reference names a manifest.

        Raises:
            OSError: the disk failed; `filename` names the file.
            OutputRefusedError: it contains something that cannot be stored.
            BlobSyncError: the store did not answer for a long time, or refused.
        """

    def input(self, reference: str) -> Path:
        """The local folder of a committed output, which `fetch` creates. Raises InputRefusedError."""

    def is_here(self, reference: str) -> bool:
        """True if `fetch` has nothing to do."""

    def fetch(self, reference: str, group: int | None = None) -> None:
        """Make a committed output readable on this host, verified, also for a Linux group. Safe to repeat.

        Raises:
            InputRefusedError: it is missing, or differs from the committed content.
            BlobSyncError: the store did not answer, or refused; see `retryable`.
            OSError: the disk is full.
        """
