"""Routes about terms of leadership, and about the next leader."""

from __future__ import annotations

from typing import NamedTuple

import structlog
from fastapi import APIRouter

from nimbus.api.models_terms import (
    SuccessionModel,
    TermsModel,
    gap_model,
    successor_model,
    term_model,
)
from nimbus.api.paging import Page, PageQuery, Paging, encoded, unknown_cursor
from nimbus.api.services import ApiServices, QueuePlace
from nimbus.domain.errors import NimbusError
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.terms import TERMS_KEPT, TERMS_LOOKED_AT, Candidate, FailoverTimes, Term, gap, in_words

_log = structlog.stdlib.get_logger(__name__)

TERMS_SHOWN = 50
"""Number of terms on a page without a limit."""
_NEWEST = 10**10
"""A number above every epoch."""


class TermsPage(NamedTuple):
    """A page of terms; `complete`: history answered, or was not needed."""

    page: Page[Term]
    complete: bool


def known_terms(services: ApiServices, query: PageQuery) -> TermsPage:
    """A page of terms, newest first: those of the cluster's store, then those of history.

    Raises:
        NotFoundError: the cursor belongs to another list.
    """
    before, limit = _NEWEST, query.limit or TERMS_SHOWN
    if query.after is not None:
        match query.after:
            case (int(epoch),):
                before = epoch
            case _:
                raise unknown_cursor()
    live = [term for term in services.reader.terms(2 * TERMS_KEPT) if term.epoch < before]
    found, complete = live[: limit + 1], True
    if len(found) <= limit and _may_be_in_history(found, before):
        oldest = found[-1].epoch if found else before
        try:
            found += services.history.terms(oldest, limit + 1 - len(found))
        except NimbusError as exc:
            _log.warning("history_unavailable", error=str(exc))
            complete = False
    more = len(found) > limit
    shown = found[:limit]
    page = Page(shown, encoded((shown[-1].epoch,)) if more else None, len(found))
    return TermsPage(page, complete)


def _may_be_in_history(found: list[Term], before: int) -> bool:
    """True when earlier terms may be in history, so that storage is read only if needed."""
    return found[-1].before is not None if found else before < _NEWEST


def succession(services: ApiServices) -> SuccessionModel:
    """The failover if the leader died now."""
    reader, health = services.reader, services.health
    registered = {one.id: one for one in reader.schedulers()}
    leader = health.leader()
    place = next((one for one in health.participants() if one.is_next), None)
    next_leader = None if place is None else _candidate(place, registered.get(place.id))
    timeout = services.session_timeout
    expected = None
    if leader and timeout and next_leader is not None and next_leader.ready_in_s is not None:
        known = registered.get(leader.id)
        times = FailoverTimes(
            session_timeout_s=timeout.total_seconds(), has_sentinel=known is not None and known.has_sentinel
        )
        expected = gap(times, reader.terms(TERMS_LOOKED_AT), next_leader.ready_in_s)
    attempts = sum(map(len, reader.orders(worker.id for worker in reader.workers()).values()))
    return SuccessionModel(
        leader=None if leader is None else leader.id,
        successor=None if next_leader is None else successor_model(next_leader),
        gap=None if expected is None else gap_model(expected),
        open_attempts=attempts,
        said=in_words(next_leader, expected, attempts, is_led=leader is not None),
    )


def _candidate(place: QueuePlace, info: SchedulerInfo | None) -> Candidate:
    if info is None:
        return Candidate(id=place.id, ready=False, registered=False)
    return Candidate(
        id=place.id,
        ready=info.ready,
        lacks=info.lacks,
        missing_count=info.missing_count,
        missing_bytes=info.missing_bytes,
        missing_eta_s=info.missing_eta_s,
    )


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["cluster"], prefix=prefix)

    @routes.get("/cluster/history")
    def history(paging: Paging) -> TermsModel:
        """Terms of leadership, newest first: leader, times, cause of the end, and adopted work."""
        page, complete = known_terms(services, paging)
        return TermsModel(
            terms=[term_model(term) for term in page.rows],
            next_cursor=page.next_cursor,
            at_least=page.at_least,
            history_complete=complete,
        )

    @routes.get("/cluster/succession", name="succession")
    def succession_() -> SuccessionModel:
        """The failover if the leader died now: the next leader, its missing files, and the expected time."""
        return succession(services)

    return routes
