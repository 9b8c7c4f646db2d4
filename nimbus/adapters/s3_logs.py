"""Logs of attempts in S3: in chunks named by their offset, so that they can be read while they grow.

Key of a chunk: `logs/<run>/<task>.<attempt>/<offset, 16 digits>`. A chunk may overlap its successor after a
retried upload; the bytes are the same.

Spark's event log, which is binary: `logs/<run>/<task>.<attempt>.events/<offset>`, in the same way.

Small logs of attempts that have ended share an object, a pack: `logs/<run>/_packs/<random>`. Its first line
has the offset and size of each log; the logs follow. A pack never changes.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from threading import Lock

from blobsync import ObjectInfo, ObjectStore
from nimbus.adapters.s3_records import or_unavailable
from nimbus.domain.ids import AttemptId, RunId
from nimbus.ports import KeptLog

_INDEX_BYTES = 64 << 10
"""How much of a pack is read for its first line; if the line is longer, the whole pack is read."""
_INDEXES_KEPT = 1_000
_OFFSET, _PACK = re.compile(r"[0-9]{16}"), re.compile(r"[0-9a-f]{32}")

Index = Mapping[str, tuple[int, int]]
"""First byte and size of the logs in a pack, by task and number of the attempt."""


class S3LogArchive:
    """See `nimbus.ports.LogArchive`. Any thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = Lock()
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        """Indexes of the packs that were read last, by key."""

    def append(self, attempt: AttemptId, offset: int, data: bytes, kept: KeptLog = KeptLog.LOG) -> None:
        with or_unavailable(f"{kept} of {attempt} could not be stored"):
            self._store.write(f"{_prefix(attempt, kept)}{offset:016d}", data)

    def append_all(self, logs: Mapping[AttemptId, bytes]) -> None:
        runs: defaultdict[RunId, dict[AttemptId, bytes]] = defaultdict(dict)
        for attempt, data in logs.items():
            runs[attempt.run][attempt] = data
        for run, of_run in runs.items():
            with or_unavailable(f"logs of run {run} could not be stored"):
                self._store.write(f"{_packs(run)}{uuid.uuid4().hex}", _pack(of_run))

    def read(
        self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20, kept: KeptLog = KeptLog.LOG
    ) -> bytes:
        """Read from `offset`, across chunks, up to `limit` or a gap; or from a pack."""
        with or_unavailable(f"{kept} of {attempt} cannot be read"):
            text = self._chunks(_prefix(attempt, kept), offset, limit)
            if text is None:
                text = self._packed(attempt, offset, limit) if kept is KeptLog.LOG else b""
        return text

    def size(self, attempt: AttemptId) -> int:
        """Size of its consecutive chunks, from one listing; or from its pack's index."""
        end = None
        with or_unavailable(f"log of {attempt} cannot be read"):
            for start, info in self._listed(_prefix(attempt, KeptLog.LOG)):
                end = end or 0
                if start > end:
                    break
                end = max(end, start + info.size_bytes)
            if end is None:
                _, (_, end) = self._place_in_pack(attempt) or ("", (0, 0))
        return end

    def _chunks(self, prefix: str, offset: int, limit: int) -> bytes | None:
        """Read from chunks; None if the log is not in chunks."""
        out: bytearray | None = None
        for start, info in self._listed(prefix):
            out = bytearray() if out is None else out
            position = offset + len(out)
            if start + info.size_bytes <= position:
                continue
            if start > position or len(out) >= limit:
                break
            chunk = b"".join(self._store.read(info.key))
            out += chunk[position - start :]
        return None if out is None else bytes(out[:limit])

    def _listed(self, prefix: str) -> Iterator[tuple[int, ObjectInfo]]:
        """The chunks below a prefix, with their offsets."""
        for info in self._store.list(prefix):
            if _OFFSET.fullmatch(name := info.key.removeprefix(prefix)):
                yield int(name), info

    def _packed(self, attempt: AttemptId, offset: int, limit: int) -> bytes:
        place = self._place_in_pack(attempt)
        if place is None:
            return b""
        key, (start, size) = place
        wanted = min(size - offset, limit)
        if wanted <= 0:
            return b""
        return b"".join(self._store.read(key, start=start + offset, size_bytes=wanted))

    def _place_in_pack(self, attempt: AttemptId) -> tuple[str, tuple[int, int]] | None:
        """Key of the pack that has its log, with first byte and size; None: no pack has it."""
        for key, index in self._packs_of(attempt.run):
            if (place := index.get(_name(attempt))) is not None:
                return key, place
        return None

    def _packs_of(self, run: RunId) -> Iterator[tuple[str, Index]]:
        for info in self._store.list(_packs(run)):
            if not _PACK.fullmatch(info.key.removeprefix(_packs(run))):
                continue
            with self._lock:
                index = self._indexes.get(info.key)
            if index is None:
                index = self._read_index(info.key)
                with self._lock:
                    self._indexes[info.key] = index
                    while len(self._indexes) > _INDEXES_KEPT:
                        self._indexes.popitem(last=False)
            yield info.key, index

    def _read_index(self, key: str) -> Index:
        data = b"".join(self._store.read(key, size_bytes=_INDEX_BYTES))
        if b"\n" not in data:
            data = b"".join(self._store.read(key))
        line, _, _ = data.partition(b"\n")
        return {name: (len(line) + 1 + start, size) for name, (start, size) in json.loads(line).items()}


def _pack(logs: Mapping[AttemptId, bytes]) -> bytes:
    index: dict[str, tuple[int, int]] = {}
    end = 0
    for attempt, data in logs.items():
        index[_name(attempt)] = (end, len(data))
        end += len(data)
    return json.dumps(index, separators=(",", ":")).encode() + b"\n" + b"".join(logs.values())


def _name(attempt: AttemptId) -> str:
    return f"{attempt.task}.{attempt.number}"


def _prefix(attempt: AttemptId, kept: KeptLog) -> str:
    """Key prefix of an attempt's chunks. Names have no dot, so no suffix collides with another attempt."""
    folder = _name(attempt) if kept is KeptLog.LOG else f"{_name(attempt)}.{kept}"
    return f"logs/{attempt.run}/{folder}/"


def _packs(run: RunId) -> str:
    """Key prefix of a run's packs; no task can have this name."""
    return f"logs/{run}/_packs/"
