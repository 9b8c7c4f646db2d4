"""What all parts of a simulated run share: the time, the dice, the history; and pipes that keep the order."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from tests.election.history import Kind, Moment
from tests.virtual_clock import VirtualClock

ZERO = timedelta(0)

_RANDOM = re.compile(r"_c_[0-9a-f-]{36}-")
"""In the name of a latch node: a UUID that the seed does not decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How large and how stormy a run is.

    Args:
        participants: How many take part: one of these numbers.
        servers: How many ZooKeeper servers there are, ditto; the first leads the ensemble.
        tick: ZooKeeper's tickTime.
        session_ticks: Session timeouts to choose from, in ticks.
        sync_ticks: How long a follower without its leader goes on, in ticks: ZooKeeper's syncLimit.
        margins: `step_down_margin`, as a part of the session timeout: one of these.
        drift: By how much each participant's clock may run too fast or too slow.
        faults: How many faults there are, at least and at most.
        kinds: The only kinds of faults that occur, such as "black hole"; all of them if empty.
        gap: Mean time between them, as a part of the session timeout.
        bound: How soon after the last one somebody must lead, in session timeouts.
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
        seed: Decides everything that happens.
        telling: Whether to keep a story for people.
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
        """After the last fault: guards are content, nothing is lost or late on purpose."""

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
        """Write into the history that something happens now."""
        note = _RANDOM.sub("", note)
        self.history.append(Moment(self.clock.now, who, kind, epoch, until, boot, order, note))
        if self.telling and kind is not Kind.OBSERVED:
            self.tell(
                who, f"{kind.value.upper()}{'' if epoch is None else f' epoch {epoch}'} {note}".rstrip()
            )

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story. Callers ask `telling` first, for words cost time."""
        self.story.append((self.clock.now, who, text))

    def between(self, least_s: float, most_s: float) -> timedelta:
        """A random time."""
        return timedelta(seconds=least_s + (most_s - least_s) * self.rng.random())

    def chance(self, probability: float) -> bool:
        """Whether something improbable happens."""
        return self.rng.random() < probability


class Channel:
    """One direction of a connection: what goes in comes out later, in order, or not at all."""

    def __init__(self, world: World, delay: Callable[[], timedelta], *, held: bool = False) -> None:
        self._world, self._delay, self._held = world, delay, held
        self._inside: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._last = ZERO
        self._kept = 0
        self.broken = False

    def send(self, deliver: Callable[..., None], *args: Any) -> None:
        """Put something in; `deliver` is called when it comes out."""
        if self.broken:
            return
        self._inside.append((deliver, args))
        self._last = max(self._last, self._world.clock.now + self._delay())
        self._world.clock.call_at(self._last, self._arrive)

    @property
    def empty_by(self) -> timedelta:
        """When all that is inside now has come out, if nothing holds it."""
        return self._last

    def hold(self) -> None:
        """Let nothing out: a black hole, as long as nobody opens it."""
        self._held = True

    def release(self) -> None:
        """Let out what was held: TCP sends again."""
        self._held = False
        kept, self._kept = self._kept, 0
        for _ in range(kept):
            self._last = max(self._last, self._world.clock.now + self._delay())
            self._world.clock.call_at(self._last, self._arrive)

    def cut(self) -> None:
        """Lose what is inside, and all that will be put in."""
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
