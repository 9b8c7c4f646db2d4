"""What the API shows of terms of leadership, and of what would follow if the leader died."""

from __future__ import annotations

from datetime import datetime

from nimbus.api.models import Model, PageModel
from nimbus.domain.succession import Candidate, Gap
from nimbus.domain.terms import EndCause, Term


class AdoptedModel(Model):
    """What a new leader found."""

    runs: int
    """That were live."""
    claimed: int
    """Open attempts with a driver, which went on."""
    unclaimed: int
    """Open attempts whose driver had not begun."""
    ended: int
    """Attempts that had ended without a leader; what they say is believed."""
    fenced: int
    """Of the open ones, those that this leader has given up since, as lost."""


class TermModel(Model):
    """One epoch in which a leader has decided something."""

    epoch: int
    scheduler: str
    host: str
    boot_id: str
    version: str
    began_at: datetime
    """Of its first decision."""
    seen_at: datetime
    """Its last sign of life, a few seconds old at most while it leads."""
    ended_at: datetime | None
    """Null: it leads, or nobody has led since it died."""
    is_exact: bool
    """False: a successor has noted the end, and `ended_at` is the last sign of life."""
    cause: EndCause | None
    reason: str
    """As it was typed, or as the leader said it."""
    by: str
    """Who asked for the end."""
    before: int | None
    """Epoch of the term that was recorded before; null: none was."""
    unrecorded: int
    """Epochs between that one and this: no guard accepted them, or a release without terms led."""
    gap_s: float | None
    """From the end of that one to `began_at`; at most, if that end is not exact."""
    takeover_s: float | None
    """From the confirmed lead to the state being read."""
    adopted: AdoptedModel | None
    """Null: it has not read the state."""
    decisions: int | None = None
    """That were written, as of `seen_at`; null: its release did not count them."""


class TermsModel(PageModel):
    """Terms, newest first."""

    terms: list[TermModel]
    history_complete: bool
    """False: storage does not answer, so older terms may be missing."""


class SuccessorModel(Model):
    """The scheduler that would lead next."""

    id: str
    ready: bool
    missing_count: int
    missing_bytes: int
    missing_eta_s: float | None = None
    """Until all of it is here, at the present speed; null: nothing is missing, or nothing came lately."""


class GapModel(Model):
    """For how long nobody would decide anything, and what the figures are made of."""

    expected_s: float | None
    """Null: no take-over has been measured. Of a successor that is not ready, with `sync_s`."""
    at_most_s: float | None
    """If the leader's host is lost, and the take-over is as long as the longest that was measured.
    Null also while the successor is not ready."""
    noticed_s: float
    noticed_at_most_s: float
    sync_s: float = 0.0
    """Until the successor has what it lacks."""
    takeovers: int
    takeover_s: float | None
    """Median."""
    takeover_at_most_s: float | None
    made_of: str


class SuccessionModel(Model):
    """What would follow if the leader died now."""

    leader: str | None
    """Id of the scheduler that leads."""
    successor: SuccessorModel | None
    """Null: nobody would lead."""
    gap: GapModel | None
    """Null: there is nobody else, or nobody knows how long it fetches what it lacks."""
    open_attempts: int
    """That it would adopt."""
    said: str
    """All of it, in a sentence."""


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
