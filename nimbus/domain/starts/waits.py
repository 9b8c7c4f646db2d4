"""The conditions of a task of type `wait`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from nimbus.domain.ids import PipelineName

OK = 200
"""The expected HTTP status, unless another is given."""


class DataSource(StrEnum):
    """Kind of the place where data are looked for."""

    S3 = "s3"
    FILE = "file"
    HTTP = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWait:
    """Data that must exist. The addresses are the task's arguments, in the same order."""

    source: DataSource
    status: int = OK
    """Expected HTTP status."""


class OnFailed(StrEnum):
    """What happens to a wait when the awaited run did not succeed."""

    WAIT = "wait"
    """The wait goes on: a rerun may succeed."""
    FAIL = "fail"
    """The task fails, unless another run is under way."""


SELF = PipelineName("self")
"""Used in place of a pipeline's name: the previous interval of the same pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWait:
    """Runs of a pipeline that must have succeeded for the data interval of the waiting run."""

    pipeline: PipelineName
    last: timedelta | None = None
    """Use the time of this length before the interval's end, instead of the interval itself."""
    on_failed: OnFailed = OnFailed.WAIT

    @property
    def is_self(self) -> bool:
        """True when it is about the previous interval of the same pipeline."""
        return self.pipeline == SELF


WaitFor = DataWait | PipelineWait


class DataProbe(NamedTuple):
    """One probe of data. Equal probes are done once, however many tasks wait."""

    source: DataSource
    address: str
    """An object in S3, or a prefix that ends with `/`; a file's path; a URL."""
    status: int = OK

    @property
    def name(self) -> str:
        """Text for people, which is also used as a key."""
        return self.address if self.status == OK else f"{self.address} ({self.status})"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one probe."""

    there: bool
    said: str
    """Why the data is missing, such as `404`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastProbe:
    """The last probe of data that is still missing, for explanations."""

    at: datetime
    said: str
    next_at: datetime


LONGEST_ADDRESS = 2000
_OBJECT = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/.+")
_NOT_PRINTED = re.compile(r"[\x00-\x20\x7f-\U0010ffff]")


def probes_of(waits: Sequence[WaitFor], addresses: Sequence[str]) -> tuple[DataProbe, ...]:
    """The probes of a task's data waits, with rendered addresses."""
    data = (wait for wait in waits if isinstance(wait, DataWait))
    pairs = zip(data, addresses, strict=False)  # an approval has an argument, and waits for no data
    return tuple(DataProbe(wait.source, address, wait.status) for wait, address in pairs)


def faults_of(waits: Sequence[WaitFor], addresses: Sequence[str]) -> tuple[str, ...]:
    """Faults of the rendered addresses of a task."""
    probes = probes_of(waits, addresses)
    faults = ((probe, address_fault(probe.source, probe.address)) for probe in probes)
    return tuple(f"{probe.address[:200]} {fault}" for probe, fault in faults if fault is not None)


def address_fault(source: DataSource, address: str) -> str | None:
    """The fault of an address; None: it is valid."""
    if len(address) > LONGEST_ADDRESS:
        return f"has {len(address)} characters, {LONGEST_ADDRESS} is the most"
    match source:
        case DataSource.S3:
            good = _OBJECT.fullmatch(address)
            return None if good else "must be s3://bucket/key, or s3://bucket/prefix/"
        case DataSource.FILE:
            parts = address.split("/")
            good_path = address.startswith("/") and ".." not in parts and "\0" not in address
            return None if good_path else "must be an absolute path without '..'"
        case DataSource.HTTP:
            return _url_fault(address)


def _url_fault(address: str) -> str | None:
    if _NOT_PRINTED.search(address):
        return "must have printable ASCII characters only, without spaces: write others as %XX"
    try:
        parts = urlsplit(address)
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        bad = True
    if bad:
        return "must be http://host[:port]/path or https://..."
    return "must not hold a user or a password" if "@" in parts.netloc else None
