"""The leader information of one component: what is written into `components/<name>`."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from leader.errors import RecordError
from leader.protocol.encoding import decode, encode, field


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """Where the leader's component of some name can be reached.

    Args:
        participant_id: Who leads.
        epoch: In which term.
        session: Issued for this term; the same for all components of it.
        address: As the component confirmed it.
    """

    participant_id: str
    epoch: int
    session: UUID
    address: str


def encode_component(info: ComponentInfo) -> bytes:
    """Content of a component node."""
    return encode(
        {
            "id": info.participant_id,
            "epoch": info.epoch,
            "session": str(info.session),
            "address": info.address,
        }
    )


def decode_component(data: bytes, path: str) -> ComponentInfo:
    """Read a component node. RecordError names `path` if it is not ours."""
    fields = decode(data, path)
    text = field(fields, "session", str, path)
    try:
        session = UUID(text)
    except ValueError as exc:
        raise RecordError(f"{path}: field 'session' is {text!r}, wanted a UUID; delete the node") from exc
    return ComponentInfo(
        participant_id=field(fields, "id", str, path),
        epoch=field(fields, "epoch", int, path),
        session=session,
        address=field(fields, "address", str, path),
    )
