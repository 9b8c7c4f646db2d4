"""Terms of leadership, and the next leader."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import structlog
from fastapi import APIRouter

from nimbus.api.models import Model, PageModel, of
from nimbus.api.paging import ListPage, PageQuery, Paging, encoded, unknown_cursor
from nimbus.api.services import ApiServices, QueuePlace
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.terms import (
    TERMS_KEPT,
    TERMS_LOOKED_AT,
    Adopted,
    Candidate,
    EndCause,
    FailoverTimes,
    Gap,
    Term,
    gap,
    in_words,
)
from nimbus.domain.errors import NimbusError


@of(Adopted)
class AdoptedModel(Model):
    """The open work that a new leader found."""


@of(Term, leave_out=("leader", "end"))
class TermModel(Model):
    """One epoch in which a leader has decided something."""

    scheduler: str
    host: str
    boot_id: str
    version: str
    ended_at: datetime | None
    """Null: it still leads, or it died and no successor has led yet."""
    is_exact: bool
    """False: a successor recorded the end, and `ended_at` is the last sign of life."""
    cause: EndCause | None
    reason: str
    """The reason that a person typed, or that the leader gave."""
    by: str
    """The requester of the end."""
    unrecorded: int
    """Number of epochs since the term before without a record: a guard refused."""


class TermsModel(PageModel):
    """Terms, newest first."""

    terms: list[TermModel]
    history_complete: bool
    """False: storage does not answer, so older terms may be missing."""


@of(Candidate, leave_out=("registered",))
class SuccessorModel(Model):
    """The scheduler that would lead next."""


@of(Gap)
class GapModel(Model):
    """The expected time without a leader, and the figures behind it."""

    expected_s: float | None
    """Null: no take-over has been measured. It includes `sync_s` if the successor is not ready."""
    at_most_s: float | None
    """Seconds if the leader's host is lost and the take-over is as long as the longest measured one. Null
    also while the successor is not ready."""
    made_of: str


class SuccessionModel(Model):
    """The failover if the leader died now."""

    leader: str | None
    """Id of the leader."""
    successor: SuccessorModel | None
    """Null: no scheduler would lead."""
    gap: GapModel | None
    """Null: there is no successor, or the time to fetch its missing files is unknown."""
    open_attempts: int
    """Number of attempts that it would adopt."""
    said: str
    """The estimate as a sentence."""


def term_model(term: Term) -> TermModel:
    """One term."""
    end = term.end
    return TermModel.from_records(
        term,
        term.leader,
        scheduler=term.leader.id,
        ended_at=None if end is None else end.at,
        is_exact=end is not None and end.noted_by == term.epoch,
        cause=None if end is None else end.cause,
        reason="" if end is None else end.reason,
        by="" if end is None else end.by,
    )


_log = structlog.stdlib.get_logger(__name__)

TERMS_SHOWN = 50
"""Number of terms on a page without a limit."""
_NEWEST = 10**10


class TermsPage(NamedTuple):
    """A page of terms; `complete`: history answered, or was not needed."""

    page: ListPage[Term]
    complete: bool


def known_terms(services: ApiServices, query: PageQuery) -> TermsPage:
    """A page of terms, newest first: those of the cluster's store, then those of history.

    Raises ObjectNotFoundError: the cursor belongs to another list.
    """
    before, limit = _NEWEST, query.limit or TERMS_SHOWN
    if query.after is not None:
        match query.after:
            case (int(epoch),):
                before = epoch
            case _:
                raise unknown_cursor()
    live = [term for term in services.reader.terms(2 * TERMS_KEPT) if term.epoch < before]
    terms, complete = live[: limit + 1], True
    if len(terms) <= limit and _may_be_in_history(terms, before):
        oldest = terms[-1].epoch if terms else before
        try:
            terms += services.history.terms(oldest, limit + 1 - len(terms))
        except NimbusError as exc:
            _log.warning("history_unavailable", error=str(exc))
            complete = False
    more = len(terms) > limit
    shown = terms[:limit]
    page = ListPage(shown, encoded((shown[-1].epoch,)) if more else None, len(terms))
    return TermsPage(page, complete)


def _may_be_in_history(terms: list[Term], before: int) -> bool:
    """True when earlier terms may be in history, so that storage is read only if needed."""
    return terms[-1].before is not None if terms else before < _NEWEST


def succession(services: ApiServices, schedulers: Iterable[SchedulerInfo]) -> SuccessionModel:
    """The failover if the leader died now. `schedulers`: the registered ones."""
    reader, health = services.reader, services.health
    registered = {scheduler.id: scheduler for scheduler in schedulers}
    leader = health.leader()
    place = next((participant for participant in health.participants() if participant.is_next), None)
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
        successor=None if next_leader is None else SuccessorModel.model_validate(next_leader),
        gap=None if expected is None else GapModel.model_validate(expected),
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
            **page.rest,
            history_complete=complete,
        )

    @routes.get("/cluster/succession", name="succession")
    def succession_() -> SuccessionModel:
        """The failover if the leader died now: the next leader, its missing files, and the expected time."""
        return succession(services, services.reader.schedulers())

    return routes
