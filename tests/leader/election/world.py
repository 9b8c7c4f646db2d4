"""Shared by all parts of a simulated run: time, random choices, history, and channels that keep the order."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from tests.leader.election.history import Kind, Moment
from tests.leader.virtual_clock import VirtualClock

ZERO = timedelta(0)

_RANDOM = re.compile(r"_c_[0-9a-f-]{36}-")
"""The part of a latch node's name that does not depend on the seed: a UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Size of a run, and its faults.

    Args:
        participants: Possible numbers of participants.
        servers: Possible numbers of ZooKeeper servers; the first server leads the ensemble.
        tick: ZooKeeper's tickTime.
        session_ticks: Possible session timeouts, in ticks.
        sync_ticks: How long a follower without its leader continues, in ticks: ZooKeeper's syncLimit.
        margins: Possible values of `step_down_margin`, as parts of the session timeout.
        drift: Largest relative error of each participant's clock.
        faults: Minimum and maximum number of faults.
        kinds: The only kinds of faults, such as "black hole"; empty: all kinds.
        gap: Mean time between faults, as a part of the session timeout.
        bound: Longest time from the last fault until a participant leads, in session timeouts.
    """

    participants: tuple[int, ...] = (2, 3, 3, 4)
    servers: tuple[int, ...] = (1, 3, 3)
    tick: timedelta = timedelta(seconds=1)
    session_ticks: tuple[int, ...] = (4, 5, 7)
    sync_ticks: tuple[int, ...] = (5, 10)
    margins: tuple[float, ...] = (0.02, 0.1)
    drift: float = 0.01
    faults: tuple[int, int] = (4, 16)
    kinds: tuple[str, ...] = ()
    gap: float = 0.5
    bound: float = 6.0


class World:
    """See the module.

    Args:
        seed: Seed of all random choices.
        telling: True to keep a story for people.
    """

    def __init__(self, seed: int, settings: Settings, *, telling: bool = False) -> None:
        self.settings, self.telling = settings, telling
        self.rng = Random(seed)
        self.clock = VirtualClock()
        self.session_timeout = settings.tick * self.rng.choice(settings.session_ticks)
        self.margin = self.session_timeout * self.rng.choice(settings.margins)
        self.history: list[Moment] = []
        self.story: list[tuple[timedelta, str, str]] = []
        self.calm = False
        """After the last fault: guards agree, and no message is lost or delayed on purpose."""

    def note(
        self,
        kind: Kind,
        who: str = "",
        epoch: int | None = None,
        *,
        boot: str = "",
        until: timedelta | None = None,
        order: int | None = None,
        note: str = "",
    ) -> None:
        """Record an event in the history, with the current time."""
        note = _RANDOM.sub("", note)
        self.history.append(Moment(self.clock.now, who, kind, epoch, until, boot, order, note))
        if self.telling and kind is not Kind.OBSERVED:
            self.tell(
                who, f"{kind.value.upper()}{'' if epoch is None else f' epoch {epoch}'} {note}".rstrip()
            )

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story. Callers check `telling` first, because making the text takes time."""
        self.story.append((self.clock.now, who, text))

    def between(self, least_s: float, most_s: float) -> timedelta:
        """A random time."""
        return timedelta(seconds=least_s + (most_s - least_s) * self.rng.random())

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.rng.random() < probability


class Channel:
    """One direction of a connection: messages come out later, in order, or not at all."""

    def __init__(self, world: World, delay: Callable[[], timedelta], *, held: bool = False) -> None:
        self._world, self._delay, self._held = world, delay, held
        self._inside: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._last = ZERO
        self._kept = 0
        self.broken = False

    def send(self, deliver: Callable[..., None], *args: Any) -> None:
        """Send a message. `deliver` is called when it arrives."""
        if self.broken:
            return
        self._inside.append((deliver, args))
        self._last = max(self._last, self._world.clock.now + self._delay())
        self._world.clock.call_at(self._last, self._arrive)

    @property
    def empty_by(self) -> timedelta:
        """The time at which all current messages have arrived, if nothing delays them."""
        return self._last

    def hold(self) -> None:
        """Deliver nothing until `release` is called."""
        self._held = True

    def release(self) -> None:
        """Deliver the held messages, like TCP after a retransmission."""
        self._held = False
        kept, self._kept = self._kept, 0
        for _ in range(kept):
            self._last = max(self._last, self._world.clock.now + self._delay())
            self._world.clock.call_at(self._last, self._arrive)

    def cut(self) -> None:
        """Lose all current and future messages."""
        self.broken = True
        self._inside.clear()

    def _arrive(self) -> None:
        if self.broken:
            return
        if self._held:
            self._kept += 1
            return
        deliver, args = self._inside.popleft()
        deliver(*args)
