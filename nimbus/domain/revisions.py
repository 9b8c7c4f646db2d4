"""Revisions of what operators change: a write can be made on condition of one (`If-Match`).

A revision is a hash of what people have decided. How far the leader is, such as the position of a schedule or
the counts of a backfill, is no part of it. Any scheduler makes the same one out of the same record.
"""

from __future__ import annotations

import hashlib
import json

from nimbus.domain.access import Token
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord

ANY = "*"
"""Stands for every revision: the record must be there."""


def of_pipeline(record: PipelineRecord) -> str:
    """Changes with state, releases and owner, and each time one of them is set anew."""
    of = (record.name, record.state, record.published, record.release, record.owner)
    return _hash("pipeline", *of, record.updated_at.isoformat())


def of_backfill(backfill: Backfill) -> str:
    """Changes with its state."""
    made = (backfill.id, backfill.pipeline, backfill.created_at.isoformat())
    return _hash("backfill", *made, backfill.state, backfill.reason)


def of_token(token: Token) -> str:
    """Of one with this secret, made at this time."""
    return _hash("token", token.id, token.sha256, token.created_at.isoformat())


def of_pool(name: str, size: int) -> str:
    """Changes with its size; the same again for the same size."""
    return _hash("pool", name, str(size))


def of_variable(name: str, value: str) -> str:
    """Changes with its value; the same again for the same value."""
    return _hash("variable", name, value)


def _hash(*parts: str | None) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
