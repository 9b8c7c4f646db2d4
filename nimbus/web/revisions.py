"""The revision of what a page shows, which its forms send along."""

from __future__ import annotations

from nimbus.api.services import ApiServices
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.revisions import of_backfill, of_pipeline


def revision_shown(services: ApiServices, of: PipelineRecord | Backfill) -> str | None:
    """None while a part of the cluster is of a release that takes no conditions."""
    if (services.health.schema() or 1) < 2:
        return None
    return of_backfill(of) if isinstance(of, Backfill) else of_pipeline(of)
