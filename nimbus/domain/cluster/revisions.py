"""Revisions of objects that operators change. A write can require one (`If-Match`).

A revision is a hash of what people have decided. Progress, such as the position of a schedule or the counts
of a backfill, is not part of it. Every scheduler computes the same revision from the same record.
"""

from __future__ import annotations

import hashlib
import json

from nimbus.domain.cluster.access import Token
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord

ANY = "*"
"""Matches every revision of an existing record."""


def of_pipeline(record: PipelineRecord) -> str:
    """Changes with state, releases and owner, and each time one of them is set again."""
    of = (record.name, record.state, record.published, record.release, record.owner)
    return _hash("pipeline", *of, record.updated_at.isoformat())


def of_backfill(backfill: Backfill) -> str:
    """Changes with the state and its reason."""
    made = (backfill.id, backfill.pipeline, backfill.created_at.isoformat())
    return _hash("backfill", *made, backfill.state, backfill.reason)


def of_token(token: Token) -> str:
    """Changes with the secret and the time of creation."""
    return _hash("token", token.id, token.sha256, token.created_at.isoformat())


def of_pool(name: str, size: int) -> str:
    """Depends on the size alone: the same size has the same revision."""
    return _hash("pool", name, str(size))


def of_variable(name: str, value: str) -> str:
    """Depends on the value alone: the same value has the same revision."""
    return _hash("variable", name, value)


def _hash(*parts: str | None) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
