"""A cluster's state in a file: a ZIP of one part for each kind of record, and a manifest."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nimbus.adapters.store.calls import LARGEST_REQUEST
from nimbus.adapters.store.moving import PARTS, ClusterState
from nimbus.adapters.store.paths import COMMAND_PREFIX
from nimbus.domain.errors import NimbusError

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
    """Write a state atomically into a new file that only its owner can read.

    Args:
        file: Must not exist.
        state: The cluster's state.
        about: Further entries of the manifest.

    Returns:
        The manifest.

    Raises:
        ArchiveError: the file exists, or cannot be written.
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
    """Read a file, and check everything that needs no knowledge of the records.

    Raises:
        ArchiveError: see there.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = json.loads(archive.read(MANIFEST))
            if manifest["format"] != FORMAT:
                raise ArchiveError(f"{file} has format {manifest['format']}, this release reads {FORMAT}.")
            nodes: dict[str, bytes] = {}
            for name, told in manifest["parts"].items():
                data = archive.read(f"{name}.jsonl")
                if hashlib.sha256(data).hexdigest() != told["sha256"]:
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
