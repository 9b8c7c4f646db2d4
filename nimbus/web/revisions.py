"""The revision of a page's object, which its forms send as a condition."""

from __future__ import annotations

from nimbus.api.services import ApiServices
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.revisions import of_backfill, of_pipeline


def revision_shown(services: ApiServices, of: PipelineRecord | Backfill) -> str | None:
    """The revision; None while the cluster's schema is 1, which has no conditions."""
    if (services.health.schema() or 1) < 2:
        return None
    return of_backfill(of) if isinstance(of, Backfill) else of_pipeline(of)
