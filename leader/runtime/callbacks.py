"""The callback thread: it calls the guard and the electable, one call at a time, in the order asked for.

Guard and electable are foreign code: they may be slow, raise, or hang. Here they hold up nothing but each
other; what comes of a call is posted to the driver. A call that hangs cannot be stopped in Python. The calls
behind it wait, and the participant says so in `ElectionStatus.trouble`.

A hanging guard delays no `revoked`: the guard is asked before `elected` alone, and its answer is what grants
the term. So no question is unanswered while the participant leads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from leader.core.participant import model as m
from leader.elector import Electable, Guard, Verdict
from leader.errors import in_words
from leader.protocol.terms import Leadership
from leader.runtime.driver import InboxThread

_log = structlog.get_logger(__name__)


class Callbacks(InboxThread):
    """See the module, and `leader.core.participant.term.CallbackPort`. The driver asks; it never waits.

    Args:
        guard: Asked before each term.
        electable: Told of each term.
        post: Puts an event into the driver's inbox.
    """

    def __init__(self, guard: Guard, electable: Electable, post: Callable[[m.Event], None]) -> None:
        super().__init__("leader-callbacks")
        self._guard, self._electable, self._answer = guard, electable, post
        self._asked_about: int | None = None
        self.calling: str | None = None
        """What is being called at this moment."""

    def end(self) -> None:
        """End the thread after the calls that were asked for. The guard is asked no more."""
        self._asked_about = None
        super().end()

    def ask(self, epoch: int) -> None:
        """See `CallbackPort.ask`."""
        self._asked_about = epoch
        self.post(partial(self._ask, epoch))

    def elected(self, leadership: Leadership) -> None:
        """See `CallbackPort.elected`."""
        self.post(partial(self._elected, leadership))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """See `CallbackPort.revoked`."""
        self.post(partial(self._revoked, leadership, reason))

    # --- on the thread ------------------------------------------------------------------------------

    def _ask(self, epoch: int) -> None:
        if epoch != self._asked_about:
            return  # nobody waits for this answer any more
        self.calling = "guard"
        verdict = checked(self._guard)
        self.calling = None
        self._answer(m.GuardSaid(epoch, verdict))

    def _elected(self, leadership: Leadership) -> None:
        self.calling = "elected"
        try:
            self._electable.elected(leadership)
        except BaseException as exc:  # noqa: BLE001 - foreign code: who cannot take the lead must not keep it
            _log.exception("elected_raised", epoch=leadership.epoch)
            self._answer(m.AbdicationAsked(f"elected() raised {in_words(exc)}", leadership.epoch))
        self.calling = None

    def _revoked(self, leadership: Leadership, reason: str) -> None:
        self.calling = "revoked"
        try:
            self._electable.revoked(leadership, reason)
        except BaseException:  # noqa: BLE001 - foreign code: leadership is over whatever it says
            _log.exception("revoked_raised", epoch=leadership.epoch)
        self.calling = None
        self._answer(m.Drained(leadership.epoch))


def checked(guard: Guard) -> Verdict:
    """Ask; whatever is raised, and whatever is no verdict, means no."""
    try:
        verdict: object = guard()
        if not isinstance(verdict, Verdict):
            return Verdict(False, (f"the guard returned {verdict!r}, wanted a Verdict",))
        # Its fields may be anything; only True is yes.
        return Verdict(verdict.ready is True, tuple(map(str, verdict.reasons)), verdict.degraded is True)
    except BaseException as exc:  # noqa: BLE001 - foreign code: whatever it raises means no, a cancellation too
        _log.warning("guard_raised", exc_info=True)
        return Verdict(False, (f"the guard raised {in_words(exc)}",))
