"""When our card is written, looked at, and tried again. It informs: only who yields to whom depends on it."""

from __future__ import annotations

from datetime import timedelta

import structlog

from leader.clock import Clock
from leader.errors import ParticipantIdInUseError
from leader.latch.ports import SessionView
from leader.office import events as ev
from leader.office.card import CardKeeper
from leader.protocol.requests import Steps

_log = structlog.get_logger(__name__)

_PATROL = 3
"""Session timeouts between two looks: nobody tells us when somebody touches our card."""


class CardUpkeep:
    """See the module. Driver only; `trouble` may be read by any thread."""

    def __init__(self, keeper: CardKeeper, session: SessionView, clock: Clock) -> None:
        self._keeper, self._session, self._clock = keeper, session, clock
        self.due_at: timedelta | None = None
        """When `keep` wants to be called, with a look."""
        self.trouble: str | None = None
        """Why our card cannot be there: another participant bears our id."""

    def soon(self) -> None:
        """The others shall know."""
        self.due_at = self._clock()

    def keep(self, *, look: bool = False) -> Steps[ev.LatchHeldBack | ev.Poked | None]:
        """Write our card, if need be.

        Args:
            look: Whether to see first what others may have done to it.

        Returns:
            What we hear of it: that our id is in use, or that it is free by now.
        """
        if not self._session.is_connected:
            return None
        if self.due_at is None:
            self.due_at = self._clock() + self._session.negotiated_timeout * _PATROL
        try:
            if look:
                yield from self._keeper.look()
            yield from self._keeper.keep()
        except ParticipantIdInUseError as exc:
            self.trouble = str(exc)
            self._retry()
            return ev.LatchHeldBack(str(exc))
        except Exception as exc:  # noqa: BLE001 - it informs, no more: the latch has its own way through trouble
            _log.warning("card_not_written", error=str(exc))
            self._retry()
            return None
        was_in_use, self.trouble = self.trouble is not None, None
        return ev.Poked() if was_in_use else None  # there is no need to wait any longer

    def withdraw(self) -> Steps[None]:
        """Take our card away, if that can be done now."""
        if not self._session.is_connected:
            return
        try:
            yield from self._keeper.withdraw()
        except Exception as exc:  # noqa: BLE001 - nothing is left to do about it
            _log.info("card_left_to_session_end", error=str(exc))

    def _retry(self) -> None:
        self.due_at = self._clock() + self._session.negotiated_timeout / 4
