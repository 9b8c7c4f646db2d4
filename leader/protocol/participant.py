"""Who takes part, and what its latch node holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leader.errors import ElectionConfigError, RecordError
from leader.protocol.encoding import field
from leader.protocol.paths import checked_name


@dataclass(frozen=True, slots=True)
class Participant:
    """One process that takes part in the election.

    Args:
        id: Name in the cluster, the same after a restart; also the data of its latch, as with Curator.
        host: Where it can be reached.
        port: Ditto; 1 to 65535, or 0 if it serves nothing.
        boot_id: New at each start of the process, so that a dead one is not taken for its heir.

    Raises:
        ElectionConfigError: The id cannot name a ZooKeeper node, or the port is none.
    """

    id: str
    host: str = ""
    port: int = 0
    boot_id: str = ""

    def __post_init__(self) -> None:
        checked_name(self.id, "participant id")
        if not 0 <= self.port <= 65535:
            raise ElectionConfigError(f"port {self.port} of {self.id} must be 0 to 65535")

    @classmethod
    def of_any(cls, participant_id: str) -> Participant:
        """A stranger of whom only the id is known, which may be one that we would not take ourselves."""
        stranger = object.__new__(cls)
        for name, value in (("id", participant_id), ("host", ""), ("port", 0), ("boot_id", "")):
            object.__setattr__(stranger, name, value)
        return stranger


def encode_id(participant: Participant) -> bytes:
    """Content of a latch node: the id, as Curator writes and reads it."""
    return participant.id.encode()


def decode_id(data: bytes, path: str) -> str:
    """Read a latch node, ours or Curator's. RecordError names `path` if it holds no text."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise RecordError(f"{path} holds no participant id; delete the node if it is not needed") from exc


def participant_fields(participant: Participant) -> dict[str, Any]:
    """A participant, as records that hold one name it."""
    return {
        "id": participant.id,
        "host": participant.host,
        "port": participant.port,
        "boot_id": participant.boot_id,
    }


def read_participant(fields: Mapping[str, Any], path: str) -> Participant:
    """The opposite of `participant_fields`. RecordError names `path` if there is none."""
    try:
        return Participant(
            id=field(fields, "id", str, path),
            host=field(fields, "host", str, path),
            port=field(fields, "port", int, path),
            boot_id=field(fields, "boot_id", str, path),
        )
    except ElectionConfigError as exc:
        raise RecordError(f"{path} names no participant ({exc}); delete the node") from exc
