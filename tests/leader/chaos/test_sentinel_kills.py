"""Leaders are killed with SIGKILL: the time until the successor is confirmed, with and without a sentinel.

NIMBUS_SENTINEL_KILLS: kills with a sentinel; a tenth of that, at least one, without. 100 for the record.
"""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from leader import boottime
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.nimbus.chaos.cluster import moment
from tests.report import number_from, say

KILLS = number_from("NIMBUS_SENTINEL_KILLS", 3)
WITH_S, WITHOUT_S = 10.0, 2.0
"""Session timeouts: a long one, so that only the sentinel can explain a fast takeover, and a short one."""
TICK_S = 0.5
AIM_MS = 50.0
PARTICIPANT = Path(__file__).with_name("sentinel_participant.py")

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120 + 6 * KILLS)]


class Participant:
    """The process `sentinel_participant.py`, and its output."""

    def __init__(
        self, hosts: str, root: str, name: str, *, timeout_s: float, sentinel: bool, log: Path
    ) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(PARTICIPANT),
                    hosts,
                    root,
                    name,
                    str(timeout_s),
                    "yes" if sentinel else "no",
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def leads(self) -> tuple[int, float]:
        """Wait until it leads. Returns the epoch, and the time since when."""
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words[:1] == ["leads"], words
        return int(words[1]), float(words[2])

    def kill(self) -> float:
        at = boottime().total_seconds()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return at


@pytest.fixture
def observer(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.hosts)
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


class Succession:
    """A leader and its successor. Killed leaders are replaced."""

    def __init__(
        self,
        start: Callable[[str], Participant],
        queue_length: Callable[[], int],
        eventually: Callable[..., None],
    ) -> None:
        self._start, self._length, self._eventually = start, queue_length, eventually
        self._names = (f"p{number}" for number in itertools.count())
        self._living: list[Participant] = []

    def takeovers_ms(self, kills: int, rng: random.Random) -> list[float]:
        """Kill leaders. Returns the times in ms from each kill to the successor's confirmation."""
        self._join()
        epoch, _ = self._living[0].leads()
        taken = []
        for _ in range(kills):
            self._join()
            moment(rng.uniform(0.1, 0.5))  # pings and proofs of leadership are at any stage
            killed_at = self._living.pop(0).kill()
            before, (epoch, led_at) = epoch, self._living[0].leads()
            assert epoch > before
            taken.append((led_at - killed_at) * 1000)
        return taken

    def _join(self) -> None:
        wanted = len(self._living) + 1
        self._living.append(self._start(next(self._names)))
        self._eventually(lambda: self._length() == wanted, what=f"{wanted} in the queue")

    def end(self) -> None:
        for participant in self._living:
            participant.kill()


@pytest.fixture
def succession(
    zookeeper: ZooKeeperServer,
    zk_root: str,
    observer: KazooClient,
    eventually: Callable[..., None],
    tmp_path: Path,
) -> Iterator[Callable[[bool], Succession]]:
    made: list[Succession] = []

    def length() -> int:
        try:
            return len(observer.get_children(f"{zk_root}/leader-lock"))
        except NoNodeError:
            return 0

    def make(sentinel: bool) -> Succession:
        def start(name: str) -> Participant:
            return Participant(
                zookeeper.hosts,
                zk_root,
                name,
                timeout_s=WITH_S if sentinel else WITHOUT_S,
                sentinel=sentinel,
                log=tmp_path / "participants.log",
            )

        made.append(Succession(start, length, eventually))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_successor_of_a_killed_leader_does_not_wait_for_the_session_to_time_out(
    succession: Callable[[bool], Succession], capsys: pytest.CaptureFixture[str]
) -> None:
    seed = number_from("NIMBUS_CHAOS_SEED", random.randrange(1 << 30))

    taken = succession(True).takeovers_ms(KILLS, random.Random(seed))

    say(capsys, [f"with a sentinel, session {WITH_S:g} s: {spread(taken)}; aim: p99 {AIM_MS:g} ms"])
    assert max(taken) < WITH_S * 1000 / 4


def test_successor_of_a_leader_killed_without_a_sentinel_leads_when_the_session_has_timed_out(
    succession: Callable[[bool], Succession], capsys: pytest.CaptureFixture[str]
) -> None:
    seed = number_from("NIMBUS_CHAOS_SEED", random.randrange(1 << 30))
    bound_ms = (WITHOUT_S + TICK_S + 0.2) * 1000

    taken = succession(False).takeovers_ms(max(1, KILLS // 10), random.Random(seed))

    say(capsys, [f"without, session {WITHOUT_S:g} s: {spread(taken)}; aim: at most {bound_ms:g} ms"])
    assert min(taken) > WITHOUT_S * 1000 / 4  # so the sentinel makes the difference
    assert max(taken) < 2 * bound_ms


def spread(taken_ms: Sequence[float]) -> str:
    """The number of kills, and the times of the takeovers."""
    ordered = sorted(taken_ms)

    def percentile(part: float) -> float:
        return ordered[math.ceil(part * len(ordered)) - 1]  # nearest rank

    return (
        f"{len(ordered)} kills, to the successor confirmed: p50 {percentile(0.5):.1f} ms, "
        f"p99 {percentile(0.99):.1f} ms, worst {ordered[-1]:.1f} ms"
    )
