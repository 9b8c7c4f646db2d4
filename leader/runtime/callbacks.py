"""The callback thread: it calls guard and electable, one call at a time, in the order of the requests.

Guard and electable are foreign code: they may be slow, raise, or hang. On this thread they delay only each
other. The result of a call is posted to the driver. Python cannot stop a call that hangs: the calls behind it
wait, and `ElectionStatus.trouble` names it.

A guard that hangs delays no `revoked`: the guard is called before `elected` only, and no term is granted
before it has answered. So while the participant leads, no call of the guard is open.
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
    """See the module, and `leader.core.participant.term.CallbackPort`. The driver never waits for it.

    `post` puts an event into the driver's inbox.
    """

    def __init__(self, guard: Guard, electable: Electable, post: Callable[[m.Event], None]) -> None:
        super().__init__("leader-callbacks")
        self._guard, self._electable, self._answer = guard, electable, post
        self._asked_about: int | None = None
        self.calling: str | None = None
        """The running call: `guard`, `elected` or `revoked`. None between calls."""

    def end(self) -> None:
        """End the thread after the calls requested so far, except those of the guard, which are skipped."""
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
            return  # `end` or a newer request has replaced this one
        self.calling = "guard"
        verdict = checked(self._guard)
        self.calling = None
        self._answer(m.GuardSaid(epoch, verdict))

    def _elected(self, leadership: Leadership) -> None:
        self.calling = "elected"
        try:
            self._electable.elected(leadership)
        except BaseException as exc:  # noqa: BLE001 - foreign code: a participant that cannot lead must abdicate
            _log.exception("elected_raised", epoch=leadership.epoch)
            self._answer(m.AbdicationAsked(f"elected() raised {in_words(exc)}", leadership.epoch))
        self.calling = None

    def _revoked(self, leadership: Leadership, reason: str) -> None:
        self.calling = "revoked"
        try:
            self._electable.revoked(leadership, reason)
        except BaseException:  # noqa: BLE001 - foreign code: leadership is over, whatever it raises
            _log.exception("revoked_raised", epoch=leadership.epoch)
        self.calling = None
        self._answer(m.Drained(leadership.epoch))


def checked(guard: Guard) -> Verdict:
    """Call `guard`. An exception, or an answer that is not a `Verdict`, means no."""
    try:
        verdict: object = guard()
        if not isinstance(verdict, Verdict):
            return Verdict(False, (f"the guard returned {verdict!r}, expected a Verdict",))
        # Its fields may have any type; only True means yes.
        return Verdict(verdict.ready is True, tuple(map(str, verdict.reasons)), verdict.degraded is True)
    except BaseException as exc:  # noqa: BLE001 - foreign code: every exception means no, also a cancellation
        _log.warning("guard_raised", exc_info=True)
        return Verdict(False, (f"the guard raised {in_words(exc)}",))
