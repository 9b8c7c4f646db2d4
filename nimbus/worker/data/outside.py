"""Verifies data from outside that a task reads: files on this host whose version has a digest.

Thread `worker-fetch-*`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nimbus.domain.publications import Outside
from nimbus.domain.workers import Assignment
from nimbus.worker.data.ports import InputRefusedError


class OutsideRefusedError(InputRefusedError):
    """A file from outside is not what was published. This says nothing against the worker."""


def files_to_verify(order: Assignment) -> Iterator[Outside]:
    """The data from outside of an order that can be verified here."""
    for versions in order.pins.values():
        for version in versions:
            of = version.outside
            if of is not None and of.sha256 and of.uri.startswith("file:///"):
                yield of


def verify_file(of: Outside) -> None:
    """Compare every byte with the digest.

    The digest that the file has is not told: a worker can read files that its tasks cannot, and whoever
    publishes names the file.

    Raises:
        OutsideRefusedError: there is no such file, or it is another one.
        OSError: it cannot be read now.
    """
    path = Path(unquote(urlsplit(of.uri).path))
    if not path.is_file():
        raise OutsideRefusedError(f"{of.uri} is no file on this host, and was published as one with a digest")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != of.sha256:
        raise OutsideRefusedError(
            f"{of.uri} has another digest, and was published with sha256:{of.sha256}: publish it again"
        )
