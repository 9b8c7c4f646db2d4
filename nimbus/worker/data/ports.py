"""What runners, executors and workers need of a place for outputs. No thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from nimbus.domain.errors import NimbusError


class OutputRefusedError(NimbusError):
    """An output holds what the place cannot keep. The message says what, and what to do."""

    code = "output_refused"


class InputRefusedError(NimbusError):
    """An input cannot be read here, and trying again would not help."""

    code = "input_refused"


class DataStore(Protocol):
    """What a `DataPlace` needs of a bucket; see `blobsync.ObjectStore`, which has more. Thread-safe."""

    def read(self, key: str) -> Iterator[bytes]:
        """Stream an object."""
        ...

    def write(self, key: str, data: bytes | Path) -> None:
        """Store an object, whole."""
        ...

    def size(self, key: str) -> int | None:
        """How many bytes an object has; None: it is not there."""
        ...


class DataPlace(Protocol):
    """Keeps outputs. A reference is what END says of one: text, relative to the place. Thread-safe."""

    uri: str
    """Of the place, without a slash at its end: references and prefixes are relative to it."""

    def prefix(self, output: str) -> str:
        """Where an attempt's output is to lie: `output` of its order, or below a name that begins so."""
        ...

    def output(self, output: str, own: Path) -> Path:
        """The local folder that an attempt writes to. It is not made here.

        Args:
            output: Of the attempt's order.
            own: A name in the attempt's own folder on this host.
        """
        ...

    def begin(self, output: Path) -> None:
        """Do what can be done for a commit before the attempt has ended.

        Raises:
            OSError: `filename` says of what.
        """
        ...

    def commit(self, output: Path, prefix: str, noted: Path | None = None) -> str:
        """Keep what is in the folder, for good; its reference. Nobody writes to the folder any more.

        Args:
            output: The folder.
            prefix: As `prefix` made it.
            noted: Folder with notes of what the task has put below the prefix itself; see `data.notes`.

        Raises:
            OSError: the disk did not do what was asked; `filename` says of what.
            OutputRefusedError: it holds what cannot be kept.
            BlobSyncError: the store did not answer for long, or refused.
        """
        ...

    def input(self, reference: str) -> Path:
        """The local folder of a committed output, which `fetch` makes.

        Raises:
            InputRefusedError: it is no reference of this kind of place.
        """
        ...

    def is_here(self, reference: str) -> bool:
        """Nothing is left for `fetch` to do."""
        ...

    def fetch(self, reference: str, group: int | None = None) -> None:
        """Make a committed output readable on this host, verified. Safe to repeat.

        Args:
            reference: Of the output.
            group: Id of the Linux group that may read it besides us.

        Raises:
            InputRefusedError: it is not there, or is not what was committed.
            BlobSyncError: the store did not answer, or refused; see `retryable`.
            OSError: the disk is full.
        """
        ...
