"""The checkpoint at an attempt's start, in random histories of attempts that are killed or fenced.

The laws: the next attempt gets each checkpoint that the board has accepted; later checkpoints of a fenced
attempt are never visible; and the checkpoint at an attempt's start equals that of any other read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.attempts.slots import Claim, End, earlier, inherited
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptWithdrawnError
from tests.nimbus.bench_board import BenchBoard

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = st.one_of(
    st.sampled_from(["open", "claim", "fence", "fail"]),
    st.tuples(st.just("keep"), st.integers(1, 4)),
)


@dataclass
class History:
    """Attempts of one task, on a board and in a model."""

    board: BenchBoard
    number: int = 0
    values: int = 0
    claimed: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    newest: dict[int, str] = field(default_factory=dict)
    """The last accepted checkpoint by attempt: while it ran, or with its END."""
    told: dict[int, str | None] = field(default_factory=dict)
    """The checkpoints with which attempts began."""

    def step(self, name: str, zombie: int) -> None:
        attempt = self.number
        if name == "open" and (attempt == 0 or attempt in self.ended):
            self.number += 1
            self.board.add_attempt(str(_id(self.number)))
            self.told[self.number] = self.look(self.number)
        elif name == "claim" and attempt and attempt not in self.claimed | self.ended:
            self.board.claim(Claim(attempt=str(_id(attempt)), claimed_at=NOW, nonce=str(attempt)))
            self.claimed.add(attempt)
        elif name in ("fence", "fail") and attempt in self.claimed - self.ended:
            self.end(attempt, brings=name == "fail")
        elif name == "keep" and zombie in self.claimed:
            self.keep(zombie)

    def end(self, attempt: int, *, brings: bool) -> None:
        value = self.value() if brings else None
        end = End(
            attempt=str(_id(attempt)),
            outcome=Outcome.FAILED,
            written_by="runner",
            ended_at=NOW,
            checkpoint=value,
            nonce=str(attempt) if brings else None,
        )
        assert self.board.end(end) == end
        self.ended.add(attempt)
        if value is not None:
            self.newest[attempt] = value

    def keep(self, attempt: int) -> None:
        value = self.value()
        try:
            self.board.keep_checkpoint(_id(attempt), str(attempt), value)
        except AttemptWithdrawnError:
            assert attempt in self.ended
        else:
            assert attempt not in self.ended, "a fenced attempt's checkpoint was accepted"
            self.newest[attempt] = value

    def value(self) -> str:
        self.values += 1
        return str(self.values)

    def look(self, number: int) -> str | None:
        return inherited(self.board.read_all(dict.fromkeys(earlier(_id(number)))))

    def check(self) -> None:
        for number, told in self.told.items():
            before = [self.newest[one] for one in range(1, number) if one in self.newest]
            assert told == (before[-1] if before else None) == self.look(number)


def _id(number: int) -> AttemptId:
    return AttemptId(RunId("r"), TaskName("t"), number)


@contextmanager
def history() -> Iterator[History]:
    with tempfile.TemporaryDirectory() as folder, closing(BenchBoard(Path(folder, "board.db"))) as board:
        yield History(board)


@given(steps=st.lists(STEPS, min_size=8, max_size=30))
def test_next_attempt_begins_with_the_last_accepted_checkpoint_and_no_later_one(
    steps: list[str | tuple[str, int]],
) -> None:
    with history() as made:
        for step in ["open", "claim", *steps]:
            name, zombie = step if isinstance(step, tuple) else (step, 0)
            made.step(name, zombie)
            made.check()
