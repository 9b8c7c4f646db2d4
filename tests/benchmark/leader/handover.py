"""Measures hand-overs: the leader closes, the next in the queue leads, the closed one joins at the end."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.benchmark.leader.contenders import Contender
from tests.benchmark.leader.host_process import HostFailedError, HostGroup

_JOIN_LIMIT_S = 30.0
_POLL_S = 0.003


@dataclass
class Round:
    """One hand-over, in ns of the common clock; `old` is the participant that led before."""

    old: int
    called_ns: int
    returned_ns: int
    led_ns: int

    @property
    def took_ms(self) -> float:
        return (self.led_ns - self.called_ns) / 1e6


@dataclass
class Queue:
    """The participants of one contender, in the order of their queue.

    Args:
        observer: Reads the queue of every contender in the same way.
        pause_s: Pause after each join, so that the machine is idle when the next round starts.
    """

    contender: Contender
    group: HostGroup
    observer: KazooClient
    pause_s: float
    order: deque[int] = field(default_factory=deque)
    _epoch: int = -1

    def grow(self, participants: int) -> None:
        """Add participants at the end once number 0 leads, so that neighbours are in different processes."""
        while self.order and self.order[0] != 0:
            self.round()
        for number in range(len(self.order), participants):
            self.join(number)

    def join(self, number: int) -> None:
        """Add a participant at the end, and wait until ZooKeeper has it."""
        self.order.append(number)
        self.group.host_of(number).send(f"join {number}")
        if len(self.order) == 1:
            self._led(self.group.expect({"leads"}), number)
        until = time.monotonic() + _JOIN_LIMIT_S
        while self.length() != len(self.order):
            if time.monotonic() > until:
                raise HostFailedError(
                    f"{self.contender.name}: {self.length()} in the queue, not {len(self.order)}"
                )
            time.sleep(_POLL_S)

    def length(self) -> int:
        """Length of the queue in ZooKeeper."""
        try:
            return len(self.observer.get_children(self.contender.queue))
        except NoNodeError:
            return 0

    def hand_over(self) -> Round:
        """Close the leader, and wait for the next one. The old leader is not in the queue afterwards."""
        old = self.order.popleft()
        self.group.host_of(old).send(f"close {old}")
        answers = {"leads": [""], "closed": [""]}
        for _ in answers:
            answer = self.group.expect(set(answers))
            answers[answer[0]] = answer
        closed, leads = answers["closed"], answers["leads"]
        self._led(leads, self.order[0])
        return Round(old=old, called_ns=int(closed[2]), returned_ns=int(closed[3]), led_ns=int(leads[2]))

    def round(self) -> Round:
        """Hand over, then let the old leader join again."""
        done = self.hand_over()
        self.join(done.old)
        time.sleep(self.pause_s)
        return done

    def warm_up(self, rounds: int) -> None:
        """Rounds without a pause, which are not counted."""
        for _ in range(rounds):
            self.join(self.hand_over().old)

    def _led(self, answer: list[str], wanted: int) -> None:
        """Check that the right participant leads, in a later epoch than the previous leader."""
        number, epoch = int(answer[1]), int(answer[3])
        if number != wanted:
            raise HostFailedError(f"{self.contender.name}: participant {number} leads, but {wanted} was next")
        if self.contender.name == "ours" and epoch <= self._epoch:
            raise HostFailedError(f"epoch {epoch} follows epoch {self._epoch}")
        self._epoch = epoch
