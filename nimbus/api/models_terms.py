"""Models of answers about terms of leadership, and about a failover if the leader died."""

from __future__ import annotations

from datetime import datetime

from nimbus.api.models import Model, PageModel, of
from nimbus.domain.terms import Adopted, Candidate, EndCause, Gap, Term


@of(Adopted)
class AdoptedModel(Model):
    """The open work that a new leader found."""


class TermModel(Model):
    """One epoch in which a leader has decided something."""

    epoch: int
    scheduler: str
    host: str
    boot_id: str
    version: str
    began_at: datetime
    """Time of its first decision."""
    seen_at: datetime
    """Its last sign of life, a few seconds old at most while it leads."""
    ended_at: datetime | None
    """Null: it still leads, or it died and no successor has led yet."""
    is_exact: bool
    """False: a successor recorded the end, and `ended_at` is the last sign of life."""
    cause: EndCause | None
    reason: str
    """The reason that a person typed, or that the leader gave."""
    by: str
    """The requester of the end."""
    before: int | None
    """Epoch of the term recorded before; null: there was none."""
    unrecorded: int
    """Number of epochs since then without a record: a guard refused."""
    gap_s: float | None
    """Seconds from the end of that term to `began_at`; an upper bound if that end is not exact."""
    takeover_s: float | None
    """Seconds from confirmed leadership until the state was read."""
    adopted: AdoptedModel | None
    """Null: the state is not read yet."""
    decisions: int | None = None
    """Number of written decisions at `seen_at`; null: its release did not count them."""


class TermsModel(PageModel):
    """Terms, newest first."""

    terms: list[TermModel]
    history_complete: bool
    """False: storage does not answer, so older terms may be missing."""


class SuccessorModel(Model):
    """The scheduler that would lead next."""

    id: str
    ready: bool
    lacks: str = ""
    """Why it is not ready; empty: it is ready, or its release does not report the reason."""
    missing_count: int
    missing_bytes: int
    missing_eta_s: float | None = None
    """Until all of it is here, at the present speed; null: nothing is missing, or nothing came lately."""


class GapModel(Model):
    """The expected time without a leader, and the figures behind it."""

    expected_s: float | None
    """Null: no take-over has been measured. It includes `sync_s` if the successor is not ready."""
    at_most_s: float | None
    """Seconds if the leader's host is lost and the take-over is as long as the longest measured one. Null
    also while the successor is not ready."""
    noticed_s: float
    noticed_at_most_s: float
    sync_s: float = 0.0
    """Seconds until the successor has its missing files."""
    takeovers: int
    takeover_s: float | None
    """Median of the measured take-overs."""
    takeover_at_most_s: float | None
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
    return TermModel(
        epoch=term.epoch,
        scheduler=term.leader.id,
        host=term.leader.host,
        boot_id=term.leader.boot_id,
        version=term.leader.version,
        began_at=term.began_at,
        seen_at=term.seen_at,
        ended_at=None if end is None else end.at,
        is_exact=end is not None and end.noted_by == term.epoch,
        cause=None if end is None else end.cause,
        reason="" if end is None else end.reason,
        by="" if end is None else end.by,
        before=term.before,
        unrecorded=term.unrecorded,
        gap_s=term.gap_s,
        takeover_s=term.takeover_s,
        decisions=term.decisions,
        adopted=None if term.adopted is None else AdoptedModel.model_validate(term.adopted),
    )


def successor_model(one: Candidate) -> SuccessorModel:
    """The next leader."""
    return SuccessorModel.model_validate(one)


def gap_model(found: Gap) -> GapModel:
    """The gap."""
    return GapModel.model_validate(found)
