"""Whether everybody declines: no leader, and every participant's guard says no."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import structlog

from leader.clock import Clock
from leader.guard import Verdict
from leader.office.control import read_cards
from leader.protocol.card import Card
from leader.protocol.participant import Participant
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Steps, exists

_log = structlog.get_logger(__name__)


class Consensus:
    """What we know of the others' refusals. Read when our own guard has said no.

    Args:
        forced_takeover_after: How long everybody may decline before the best of them leads all the same;
            None if nobody shall: with `GatePolicy.STRICT`.
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

    def somebody_leads(self) -> None:
        """Or may lead: what was counted is over."""
        self._since = None

    def weighed(self, verdict: Verdict, own: Card) -> Steps[Verdict]:
        """Our guard's verdict; overruled, where that is wanted, after a long silence of everybody."""
        if verdict.ready:
            self.somebody_leads()
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

    def _overrules(self, own: Card, now: timedelta) -> Steps[bool]:
        """Look around. True if everybody has declined for too long and nobody is better than we are."""
        others = [
            card
            for card in (yield from read_cards(self._paths))
            if card.participant.id != self._me.id and card.queues and not card.nofailover
        ]
        led = (yield from exists(self._paths.leader)) is not None
        if led or not all(card.declined for card in others):
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if self._limit is None or now - self._since < self._limit:
            return False
        return all(own.rank < card.rank for card in others)

    def time_until_forced(self, pause: timedelta) -> timedelta:
        """How long a back-off may last so that a forced take-over is not late; `pause` if none is due."""
        if self._since is None or self._limit is None:
            return pause
        left = self._since + self._limit - self._clock()
        return left if left > timedelta(0) else min(pause, self._limit / 10)
