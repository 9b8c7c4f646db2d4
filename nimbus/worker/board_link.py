"""A runner's connection to the attempt board while its driver runs: beats, progress, stop requests.

It has its own thread, because ZooKeeper may be unreachable for hours while the runner's loop must continue.
The thread only records what it read and wakes the runner's loop, which decides. An outage alone changes
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from nimbus.domain.slots import Claim, Slots
from nimbus.ports import AttemptBoard, AttemptWithdrawnError, Enqueue, StoreUnavailableError
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.retry import pauses

_BEAT_EVERY_S = 2.0
_LOOK_EVERY_S = 5.0
"""It also reads without a signal, so that a lost watch costs seconds, not the attempt."""
CHECKPOINT_EVERY_S = 1.0
"""The shortest time between two writes of a checkpoint; the last one counts."""
_TICK_S = 1.0

_log = structlog.get_logger(__name__)


def outdated_by(slots: Slots, claim: Claim) -> str | None:
    """Why the END of an attempt claimed by `claim` is no longer needed; None: it is needed."""
    if slots.claim is not None and slots.claim.nonce != claim.nonce:
        return "attempt_of_a_later_run"
    return "end_is_filled" if slots.end is not None else None


class BoardLink:
    """Thread `runner-board`."""

    def __init__(
        self, folder: AttemptFolder, board: AttemptBoard, claim: Claim, ring: Callable[[], None]
    ) -> None:
        """`claim` is the runner's own, and was in ZooKeeper when this object was made."""
        self._folder, self._board, self._claim, self._ring = folder, board, claim, ring
        self.stop_requested = False
        self.outdated = False
        """END is filled, or the attempt is deleted, or it belongs to a later run of the same id."""
        self._signal, self._leaving = threading.Event(), threading.Event()
        self._driver_ended = False
        self._last_beat = self._last_look = float("-inf")
        self._sent: dict[str, Any] | None = None
        self._kept: str | None = None
        self._last_kept = float("-inf")
        self._gone_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="runner-board", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._signal.set()
        self._thread.start()

    def close(self, deadline_s: float = 5.0) -> None:
        """End the thread; a call that hangs in ZooKeeper is abandoned."""
        self._leaving.set()
        self._signal.set()
        self._thread.join(deadline_s)

    def driver_has_ended(self) -> None:
        """Keep beating while END is delivered, so that the leader does not reap the attempt; read no more."""
        self._driver_ended = True

    def _run(self) -> None:
        for pause in pauses():
            try:
                self._follow()
            except Exception:  # noqa: BLE001 - top of the thread: a defect must not cost the attempt its runner
                _log.exception("board_link_failed", attempt=str(self._folder.attempt))
            if self._leaving.wait(pause):
                return

    def _follow(self) -> None:
        waits = pauses()
        while not self._leaving.is_set():
            self._signal.wait(_TICK_S)
            signalled = self._signal.is_set()
            self._signal.clear()
            try:
                self._step(signalled)
                waits = pauses()
            except StoreUnavailableError as exc:
                _log.warning("board_unreachable", attempt=str(self._folder.attempt), error=str(exc)[:300])
                self._leaving.wait(next(waits))
                self._signal.set()  # read as soon as ZooKeeper answers, and arm the watch
            except AttemptWithdrawnError:
                self._note_outdated("attempt_withdrawn")

    def _step(self, signalled: bool) -> None:
        now = time.monotonic()
        if signalled:
            self._look(now, self._signal.set)
        elif now - self._last_look >= _LOOK_EVERY_S:
            self._look(now, None)  # the watch is armed already; another each time would pile up
        if now - self._last_beat >= _BEAT_EVERY_S:
            progress = self._folder.progress()
            if progress != self._sent:
                self._beat(progress, now)
        if now - self._last_kept >= CHECKPOINT_EVERY_S:
            self._keep_checkpoint(now)

    def _keep_checkpoint(self, now: float) -> None:
        checkpoint = self._folder.checkpoint()
        if checkpoint not in (None, self._kept) and self._claim.nonce is not None:
            self._board.keep_checkpoint(self._folder.attempt, self._claim.nonce, checkpoint)
            self._kept, self._last_kept = checkpoint, now

    def _look(self, now: float, changed: Enqueue | None) -> None:
        slots = self._board.read(self._folder.attempt, changed)
        if why := outdated_by(slots, self._claim):
            self._note_outdated(why)
            self._last_look = now
            return
        if not slots.beating and not self._leaving.is_set():
            self._beat(self._folder.progress(), now)
        if slots.stop_requested and not self.stop_requested:
            self.stop_requested = True
            self._ring()
        if slots.claim is None:
            # Our claim was there. A server that lags behind may not show it for a moment; two reads, some
            # seconds apart, prove that the attempt was archived while we were cut off.
            if self._gone_since is None:
                self._gone_since = now
            elif now - self._gone_since >= _LOOK_EVERY_S:
                self._note_outdated("attempt_gone")
        else:
            self._gone_since = None
        self._last_look = now

    def _beat(self, progress: dict[str, Any], now: float) -> None:
        self._board.beat(self._folder.attempt, progress)
        self._sent, self._last_beat = progress, now

    def _note_outdated(self, why: str) -> None:
        if not (self.outdated or self._driver_ended):
            _log.warning(why, attempt=str(self._folder.attempt))
            self.outdated = True
            self._ring()
