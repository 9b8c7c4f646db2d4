"""A cluster's whole state: a consistent snapshot, its file, and a new cluster that is created from it.

Data of a term or a process are not part of it: election, registrations, heartbeats, and the key of tokens.
The epoch and the schema are part of it, so that the new cluster continues from them. The file is a ZIP with
one part for each kind of record, and a manifest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leader import ElectionPaths, EpochRecord, FencingToken, read_epoch
from leader.protocol.terms import encode_epoch
from nimbus.adapters.sqlite.calls import begin_term, last_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store.calls import (
    LARGEST_REQUEST,
    Calls,
    StoreSession,
    StoreTransaction,
    calls_on,
)
from nimbus.adapters.store.paths import COMMAND_PREFIX, HEARTBEAT, Paths
from nimbus.adapters.store.tree import IMPORT, ClusterInUseError, ClusterTree
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.domain.errors import NimbusError

TRIES = 5
"""How often the state is read until two consecutive reads are equal."""
NODES_TOGETHER, BYTES_TOGETHER = 500, LARGEST_REQUEST // 2
"""Limits of one transaction that creates nodes."""

PARTS = tuple(
    path.removeprefix("/")
    for path in Paths("").always()
    if path not in (Paths("").schedulers, Paths("").workers)
)
"""Names directly below the root of all moved nodes."""
DEPTH = 2
"""Depth of records below such a name; reading the children of every record would take most of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The moved state."""

    nodes: Mapping[str, bytes]
    """Data by path below the root, such as `runs/r`, sorted."""
    epoch: int
    """The last epoch; 0 if there was no leader yet."""
    schema: int = field(compare=False)
    """The cluster's schema. A single scheduler writes the newest of its release from its start."""

    def part(self, name: str) -> dict[str, bytes]:
        """The node of a name and all nodes below it."""
        return {path: data for path, data in self.nodes.items() if path.partition("/")[0] == name}


def read_state(session: StoreSession, root: str) -> ClusterState:
    """A consistent snapshot: the state is read until two consecutive reads are equal.

    Raises:
        ClusterInUseError: it changes continuously.
        ClusterUnfinishedError: the cluster is partly created or removed.
        StoreUnavailableError: the store does not answer.
    """
    ClusterTree(session, root).check_finished()
    before = _read(session, root)
    for _ in range(TRIES):
        after = _read(session, root)
        if _without_terms(after) == _without_terms(before):
            return after
        before = after
    raise ClusterInUseError(f"the state of {root} changes all the time: try again when less goes on.")


def _without_terms(state: ClusterState) -> tuple[Mapping[str, bytes], int]:
    """The state without the records of terms, which a leader updates even when nothing else changes."""
    nodes = {path: data for path, data in state.nodes.items() if not path.startswith("terms/")}
    return nodes, state.epoch


def make_cluster(session: StoreSession, root: str, state: ClusterState) -> None:
    """Create a cluster from a state below an empty root. Until it has ended, no daemon of it starts.

    Safe to repeat after any error: nodes of the earlier try are removed first.

    Raises:
        ClusterInUseError: the root is not empty, or a scheduler or worker runs.
        ClusterUnfinishedError: a removal has not ended.
        StoreUnavailableError: the store does not answer.
    """
    tree, calls = ClusterTree(session, root), calls_on(session)
    if tree.unfinished() is None and (held := tree.counts()):
        if _read(session, root) == state:  # an import whose last write had no answer
            return
        raise ClusterInUseError(
            f"{root} is not empty, it holds {', '.join(sorted(held)[:5])}: name another cluster.root, or "
            f"remove what is there with `nimbus cluster destroy`."
        )
    tree.begin(IMPORT)
    tree.remove()
    waiting = {path: data for path, data in state.nodes.items() if path.startswith("commands/")}
    write_nodes(calls, root, {path: data for path, data in state.nodes.items() if path not in waiting})
    _skip_numbers(calls, Paths(root), state.nodes)
    write_nodes(calls, root, waiting)
    _go_on_from(session, root, state)
    if _read(session, root) != state:
        raise ClusterInUseError(f"something has written below {root} meanwhile: repeat the import.")
    tree.end()


def write_nodes(calls: Calls, root: str, nodes: Mapping[str, bytes]) -> None:
    """Create nodes below an existing root, parents first."""
    for some in _batches(nodes):

        def build(transaction: StoreTransaction, some: Sequence[tuple[str, bytes]] = some) -> None:
            for path, data in some:
                transaction.create(f"{root}/{path}", data)

        calls.transact(f"create nodes of {root}", build)


def _read(session: StoreSession, root: str) -> ClusterState:
    calls, paths = calls_on(session), Paths(root)
    tops = [f"{root}/{part}" for part in PARTS]
    below = ClusterTree(session, root).below(tops, DEPTH)
    beats = {
        path for path in below if path.startswith(f"{paths.attempts}/") and path.endswith(f"/{HEARTBEAT}")
    }
    wanted = [path for path in (*tops, *below) if path not in beats]
    _, data = calls.list_and_read((), (), wanted)
    start = len(root) + 1
    nodes = {path[start:]: value for path, value in zip(wanted, data, strict=True) if value is not None}
    term = last_epoch(session, root)
    return ClusterState(nodes=dict(sorted(nodes.items())), epoch=term.epoch, schema=term.schema)


def last_epoch(session: StoreSession, root: str) -> EpochRecord:
    """The last epoch and the schema of the records; of a new cluster 0 and the newest."""
    if isinstance(session, SqliteSession):
        return last_term(session, ElectionPaths(root).epoch)
    return read_epoch(session, root) or EpochRecord(0, schema=NEWEST_SCHEMA)


def _go_on_from(session: StoreSession, root: str, state: ClusterState) -> None:
    """Let epochs continue from the highest one in the records, because each term needs a new one."""
    path = ElectionPaths(root).epoch
    if not state.epoch:
        return
    if isinstance(session, SqliteSession):
        begin_term(session, FencingToken(path=path, version=state.epoch, epoch=state.epoch))
    else:
        record = EpochRecord(state.epoch, schema=state.schema)
        calls_on(session).create(path, encode_epoch(record))


def _skip_numbers(calls: Calls, paths: Paths, nodes: Mapping[str, bytes]) -> None:
    """Use up the numbers of moved commands and outcomes.

    The store counts the children that a node ever had. The count starts at 0, and only creating children
    raises it.
    """
    names = [path.rpartition("/")[2] for path in nodes if path.startswith(("commands/", "outcomes/"))]
    missing = max((int(name.removeprefix(COMMAND_PREFIX).partition("-")[0]) + 1 for name in names), default=0)

    def build(transaction: StoreTransaction) -> None:
        for number in range(min(missing, NODES_TOGETHER)):
            path = f"{paths.commands}/skipped-{number}"
            transaction.create(path, b"")
            transaction.delete(path)

    while missing > 0:
        calls.transact("use up numbers of commands", build)
        missing -= NODES_TOGETHER


def _batches(nodes: Mapping[str, bytes]) -> Iterator[list[tuple[str, bytes]]]:
    some, size_bytes = list[tuple[str, bytes]](), 0
    for path, data in nodes.items():
        if some and (len(some) == NODES_TOGETHER or size_bytes + len(data) > BYTES_TOGETHER):
            yield some
            some, size_bytes = [], 0
        some.append((path, data))
        size_bytes += len(data)
    if some:
        yield some


FORMAT = 1
MANIFEST = "manifest.json"
_COMMAND = re.compile(f"{COMMAND_PREFIX}[0-9]{{10}}")


class ArchiveError(NimbusError):
    """The archive is damaged, of a newer release, or cannot be written."""

    code = "cluster_archive"
    exit_code = 4


@dataclass(frozen=True, slots=True)
class Archive:
    """The content of a file."""

    manifest: Mapping[str, Any]
    state: ClusterState


def write_archive(file: Path, state: ClusterState, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write a state atomically into a new file that only its owner can read; return its manifest.

    `about`: further entries of the manifest. Raises ArchiveError: the file exists, or cannot be written.
    """
    parts = {name: _encoded(state.part(name)) for name in PARTS}
    manifest = {
        "format": FORMAT,
        **about,
        "schema": state.schema,
        "epoch": state.epoch,
        "parts": {
            name: {"nodes": data.count(b"\n"), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in parts.items()
        },
    }
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.") as part:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(MANIFEST, json.dumps(manifest, indent=2))
                for name, data in parts.items():
                    archive.writestr(f"{name}.jsonl", data)
            part.flush()
            os.fsync(part.fileno())
            os.link(part.name, file)
    except FileExistsError as exc:
        raise ArchiveError(f"{file} is there already: name another file.") from exc
    except OSError as exc:
        raise ArchiveError(f"{file} cannot be written: {exc}") from exc
    return manifest


def read_archive(file: Path) -> Archive:
    """Read a file, and check everything that needs no knowledge of the records. ArchiveError: see there."""
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = json.loads(archive.read(MANIFEST))
            if manifest["format"] != FORMAT:
                raise ArchiveError(f"{file} has format {manifest['format']}, this release reads {FORMAT}.")
            nodes: dict[str, bytes] = {}
            for name, part in manifest["parts"].items():
                data = archive.read(f"{name}.jsonl")
                if hashlib.sha256(data).hexdigest() != part["sha256"]:
                    raise ArchiveError(f"{file} is damaged: {name} is not what was exported.")
                nodes.update(_decoded(data))
            state = ClusterState(
                nodes=dict(sorted(nodes.items())),
                epoch=int(manifest["epoch"]),
                schema=int(manifest["schema"]),
            )
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ArchiveError(f"{file} is not an archive of a cluster: {exc}") from exc
    if trouble := next((path for path in nodes if not _fits(path, nodes)), None):
        raise ArchiveError(f"{file} holds {trouble!r}, which no cluster has.")
    return Archive(manifest, state)


def _fits(path: str, nodes: Mapping[str, bytes]) -> bool:
    """True if a node's path is valid: below one of the parts, and with a parent. Commands have numbers."""
    names = path.split("/")
    if names[0] not in PARTS or any(name in ("", ".", "..") for name in names):
        return False
    if names[0] in ("commands", "outcomes") and not all(map(_COMMAND.fullmatch, names[1:])):
        return False
    return len(nodes[path]) <= LARGEST_REQUEST and (len(names) == 1 or "/".join(names[:-1]) in nodes)


def _encoded(nodes: Mapping[str, bytes]) -> bytes:
    """A line for each node: its path, and its data in base64."""
    lines = (json.dumps([path, base64.b64encode(data).decode()]) for path, data in nodes.items())
    return "".join(f"{line}\n" for line in lines).encode()


def _decoded(data: bytes) -> dict[str, bytes]:
    pairs = (json.loads(line) for line in data.splitlines())
    return {path: base64.b64decode(value, validate=True) for path, value in pairs}
