"""Injects faults for a while, lets the election recover after each, and reports the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

from nimbus.localstack.errors import LocalStackError
from tests.leader.chaos.election.election_faults import KINDS, PARTICIPANT_KINDS, draw, strike
from tests.leader.chaos.election.election_laws import Due, judge
from tests.leader.chaos.election.fault_records import Draw, Struck
from tests.leader.chaos.election.participant import now_ns
from tests.leader.chaos.election.stage import Stage, pause

SLACK = timedelta(seconds=3)
"""Extra time for reconnects (at most 1 s of back-off) and a busy machine."""
ENSEMBLE_SLACK = timedelta(seconds=8)
"""Time for the ensemble's own election: six ticks until a silent server is excluded, six until a leader
without a majority steps down, and the votes."""

WIPED_FROM = timedelta(minutes=1)
"""Shortest length in which the ensemble is also wiped once, which takes up to ten seconds."""

_PAIRED = 0.3
_POLL_S = 0.03


@dataclass(frozen=True, slots=True)
class Round:
    """One fault, or two at once, and the recovery from it."""

    faults: tuple[Struck, ...]
    began_ns: int
    ended_ns: int

    @property
    def kind(self) -> str:
        """Name of the fault in the report."""
        return "two at once" if len(self.faults) > 1 else self.faults[0].kind


@dataclass(slots=True)
class Outcome:
    """All faults and findings."""

    seed: int
    session: timedelta
    rounds: list[Round] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def plan(rng: Random, session: timedelta) -> Iterator[list[Draw]]:
    """Every kind once, in random order, repeatedly. From the second time on, often two kinds at once."""
    paired = 0.0
    while True:
        kinds = [kind for kind in KINDS if kind != "wiped"]
        rng.shuffle(kinds)
        for kind in kinds:
            draws = [draw(kind, rng, session)]
            second = draw(rng.choice(PARTICIPANT_KINDS), rng, session)
            if rng.random() < paired and second.kind not in ("latch_deleted", "leader_node_deleted"):
                draws.append(second)
            yield draws
        paired = _PAIRED


class Driver:
    """See the module. Main thread only.

    Args:
        stage: A started stage.
        seed: Seed of all random choices.
    """

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._rng = stage, Random(seed)
        self._outcome = Outcome(seed, stage.session)
        self._dues: list[Due] = []

    def run(self, length: timedelta) -> Outcome:
        """Inject faults for `length`, end the participants, check the histories."""
        outcome = self._outcome
        try:
            self._play(length)
        except LocalStackError as exc:
            outcome.wrong.append(f"the play could not go on: {exc}")
        outcome.wrong += self._stage.end()
        played = [moment for each in outcome.rounds for fault in each.faults for moment in fault.moments]
        outcome.wrong += judge(self._stage.lines(), played, self._dues, _ns(self._stage.session))
        return outcome

    def _play(self, length: timedelta) -> None:
        began = now_ns()
        length_ns = _ns(length)
        wipe = draw("wiped", self._rng, self._stage.session)
        wiped = length < WIPED_FROM  # a short play has no time for it
        for draws in plan(self._rng, self._stage.session):
            spent = now_ns() - began
            if spent > length_ns:
                break
            if not wiped and spent > length_ns / 2:
                self._round([wipe])
                wiped = True
            self._round(draws)

    def _round(self, draws: list[Draw]) -> None:
        began_ns = now_ns()
        struck: list[Struck] = []
        for drawn in draws:
            spared = frozenset(fault.target for fault in struck)
            struck.append(strike(self._stage, replace(drawn, spared=spared)))
        self._hold(struck, draws)
        self._recover(struck)
        self._outcome.rounds.append(Round(tuple(struck), began_ns, now_ns()))

    def _hold(self, struck: list[Struck], draws: list[Draw]) -> None:
        """Hold each fault for its duration, then end it."""
        open_ = sorted(zip(struck, draws, strict=True), key=lambda pair: pair[0].by_ns + _ns(pair[1].hold))
        for fault, drawn in open_:
            while now_ns() < fault.by_ns + _ns(drawn.hold):
                self._stage.read()
                pause(_POLL_S)
            fault.mend()
            fault.mended_ns = now_ns()

    def _recover(self, struck: list[Struck]) -> None:
        """Wait until a participant leads, within the bound, and later until all queue again."""
        stage, what = self._stage, " and ".join(f"{fault.kind} of {fault.target}" for fault in struck)
        bound = self._bound(struck)
        mended_ns = max(fault.mended_ns for fault in struck)
        if not stage.wait(bound * 2, lambda: stage.leading(mended_ns)):
            self._outcome.wrong.append(f"nobody leads long after {what}")
        if not stage.wait(bound * 2 + stage.session, lambda: not stage.absent() and stage.leading()):
            for member in stage.absent():
                self._outcome.wrong.append(f"{member.name} has not one latch long after {what}")
                member.kill()  # so that it does not affect later checks
        for member in stage.members:
            if not member.running:
                if member.wanted:
                    self._outcome.wrong.append(f"{member.name} ended by itself after {what}")
                member.spawn()
        alone = len(struck) == 1 and struck[0].kind != "wiped"
        from_ns = struck[0].by_ns if alone else mended_ns
        self._dues.append(Due(what, from_ns, now_ns(), _ns(bound)))

    def _bound(self, struck: list[Struck]) -> timedelta:
        bound = self._stage.session + self._stage.tick + SLACK
        if any(KINDS[fault.kind].of_servers for fault in struck):
            bound += ENSEMBLE_SLACK
        return bound


def _ns(length: timedelta) -> int:
    return length // timedelta(microseconds=1) * 1000
