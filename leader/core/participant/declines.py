"""What a guard's verdict comes to beside the readiness of the other participants.

A degraded yes counts only while no other participant is ready. A no is overruled after everybody has declined
for too long: then the best-ranked participant leads.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import structlog

from leader.clock import Clock
from leader.core.participant.eligibility import read_cards
from leader.errors import in_words
from leader.guard import Verdict
from leader.protocol.card import Card
from leader.protocol.participant import Participant
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Steps, exists

_log = structlog.get_logger(__name__)


class DeclineTracker:
    """What we know of the other participants' readiness. Read when our guard has said no, or a degraded yes.

    Args:
        forced_takeover_after: How long everybody may decline before the best of them leads all the same;
            None: nobody ever does.
    """

    def __init__(
        self,
        paths: ElectionPaths,
        participant: Participant,
        forced_takeover_after: timedelta | None,
        clock: Clock,
    ) -> None:
        self._paths, self._me, self._limit, self._clock = paths, participant, forced_takeover_after, clock
        self._since: timedelta | None = None

    @property
    def everybody_declines(self) -> bool:
        """As last seen."""
        return self._since is not None

    def reset(self) -> None:
        """A participant leads, or may lead without our knowledge: the count of the time starts again."""
        self._since = None

    def admitted(self, verdict: Verdict) -> Steps[Verdict]:
        """Our guard's verdict; a no instead of a degraded yes while another participant is ready."""
        if not (verdict.ready and verdict.degraded):
            return verdict
        try:
            others = yield from self._others()
        except Exception as exc:  # noqa: BLE001 - a ready one may be among those that could not be read
            return _refused(verdict, f"the other participants cannot be read: {in_words(exc)}")
        ready = [card for card in others if card.rank.unready == 0]
        if ready:
            return _refused(verdict, f"{min(ready, key=lambda card: card.rank).participant.id} is ready")
        _log.warning("degraded_admitted", reasons=list(verdict.reasons))
        return verdict

    def weighed(self, verdict: Verdict, own: Card) -> Steps[Verdict]:
        """The admitted verdict; a yes instead of a no once everybody has declined for too long."""
        if verdict.ready:
            self.reset()
            return verdict
        try:
            forced = yield from self._overrules(own, self._clock())
        except Exception as exc:  # noqa: BLE001 - who does not know the others goes by the guard alone
            _log.warning("peers_unread", error=str(exc))
            return verdict
        if not forced:
            return verdict
        _log.warning("takeover_forced", reasons=list(verdict.reasons))
        return replace(verdict, ready=True)

    def time_until_forced(self, pause: timedelta) -> timedelta:
        """How long a back-off may last so that a forced take-over is not late; `pause` if none is due."""
        if self._since is None or self._limit is None:
            return pause
        left = self._since + self._limit - self._clock()
        return left if left > timedelta(0) else min(pause, self._limit / 10)

    def _overrules(self, own: Card, now: timedelta) -> Steps[bool]:
        """Look around. True if everybody has declined for too long and nobody is better than we are."""
        others = yield from self._others()
        led = (yield from exists(self._paths.leader)) is not None
        if led or not all(card.declined for card in others):
            self.reset()
            return False
        if self._since is None:
            self._since = now
        if self._limit is None or now - self._since < self._limit:
            return False
        return all(own.rank < card.rank for card in others)

    def _others(self) -> Steps[list[Card]]:
        """The cards of all other participants that can take the lead, now or after a back-off."""
        cards = yield from read_cards(self._paths)
        return [
            card
            for card in cards
            if card.participant.id != self._me.id and card.queues and not card.nofailover
        ]


def _refused(verdict: Verdict, why: str) -> Verdict:
    return replace(verdict, ready=False, reasons=(*verdict.reasons, why))
