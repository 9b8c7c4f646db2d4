"""Runs many simulations on several processes, and prints the story of each that breaks a law."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TextIO

import structlog

from tests.leader.election.history import Violation
from tests.leader.election.mutants import MUTANTS
from tests.leader.election.simulator import Outcome, Simulator
from tests.leader.election.world import Settings

_CHUNK = 25
_STORY_LINES = 60
_MUTANT_SEEDS = 1000


@dataclass(slots=True)
class Tally:
    """The results of some seeds."""

    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    leaderships: int = 0
    slowest: float = 0.0
    """Longest time of a run from the last repair until there was no problem, in session timeouts."""
    bad: dict[int, list[Violation]] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add another's figures."""
        self.runs += other.runs
        self.faults += other.faults
        self.leaderships += other.leaderships
        self.slowest = max(self.slowest, other.slowest)
        self.bad.update(other.bad)

    def note(self, outcome: Outcome) -> None:
        """Add a run."""
        self.runs += 1
        self.faults.update(outcome.faults)
        self.leaderships += outcome.leaderships
        self.slowest = max(self.slowest, outcome.calm_after)
        if outcome.violations:
            self.bad[outcome.seed] = outcome.violations


def run_seeds(seeds: Sequence[int], mutant: str | None = None) -> Tally:
    """Run some seeds in this process, one after the other, without logs."""
    tally = Tally()
    with quiet(), _mutated(mutant):
        for seed in seeds:
            tally.note(Simulator(seed).run())
    return tally


def run_many(first: int, count: int, jobs: int, mutant: str | None = None) -> Iterator[Tally]:
    """Run seeds on `jobs` processes. Yields a tally for each group of seeds when it is done."""
    chunks = [range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK)]
    if jobs == 1:
        yield from (run_seeds(chunk, mutant) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting: set[Future[Tally]] = {pool.submit(run_seeds, chunk, mutant) for chunk in chunks}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def find(mutant: str, *, seeds: int, storm: Settings | None = None) -> tuple[int, Violation] | None:
    """The first seed below `seeds` that finds a mutant, and its outcome; by default with usual settings."""
    with quiet(), _mutated(mutant):
        for seed in range(seeds):
            violations = Simulator(seed, storm).run().violations
            if violations:
                return seed, violations[0]
    return None


class quiet(AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Suppresses log lines: a simulation would write millions."""

    def __enter__(self) -> None:
        """Silence structlog."""
        self._before = structlog.get_config()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

    def __exit__(self, *_exc: object) -> None:
        """Restore the logging."""
        structlog.configure(**self._before)


def tell(seed: int, out: TextIO, *, mutant: str | None = None, lines: int | None = _STORY_LINES) -> None:
    """Run a seed again, and print its story up to the last moment of its violations."""
    with quiet(), _mutated(mutant):
        outcome = Simulator(seed, telling=True).run()
    until = max(
        (moment.at for violation in outcome.violations for moment in violation.moments),
        default=outcome.history[-1].at,
    )
    begins = outcome.story[0][0]
    story = [line for line in outcome.story if line[0] <= until]
    for at, who, text in story if lines is None else story[-lines:]:
        print(f"{(at - begins).total_seconds():11.6f}  {who:12} {text}", file=out)
    for violation in outcome.violations:
        print(f"seed {seed}: {violation}", file=out)


def main(argv: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """The command line. Returns 0 if no law was broken; with --mutant, 0 if one was."""
    asked = _arguments(argv)
    if asked.mutants:
        return _find_all(out)
    if asked.seed is not None:
        tell(asked.seed, out, mutant=asked.mutant, lines=None)
        return 0
    began, total = time.monotonic(), Tally()
    for tally in run_many(asked.first, asked.seeds, asked.jobs, asked.mutant):
        total.add(tally)
        for seed, violations in tally.bad.items():
            print(f"\nseed {seed}: {violations[0]}", file=out)
        _progress(total, asked.seeds, began)
        if total.bad and asked.mutant:
            break
    took = time.monotonic() - began
    print(file=sys.stderr)  # noqa: T201
    _report(total, took, out)
    if total.bad:
        tell(min(total.bad), out, mutant=asked.mutant)
        print(f"The whole story: python -m tests.leader.election --seed {min(total.bad)}", file=out)
    return int(bool(total.bad) != bool(asked.mutant))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.leader.election", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="on how many processes")
    parser.add_argument("--seed", type=int, help="run this one alone and tell its whole story")
    parser.add_argument("--mutants", action="store_true", help="find all of them, one after the other")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this fault built in, until found")
    return parser.parse_args(argv)


def _find_all(out: TextIO) -> int:
    """Find every mutant, and print its seed. Returns 0 if all were found."""
    missed = 0
    for name, mutant in MUTANTS.items():
        found = find(name, seeds=_MUTANT_SEEDS, storm=mutant.storm if mutant.rare else None)
        missed += found is None
        where = "NOT FOUND" if found is None else f"seed {found[0]}: {found[1].law.value}"
        print(f"{name:36} {where}{' (a storm of its own)' if mutant.rare else ''}", file=out)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants found within {_MUTANT_SEEDS} seeds", file=out)
    return min(missed, 1)


def _progress(total: Tally, seeds: int, began: float) -> None:
    rate = total.runs / max(time.monotonic() - began, 0.001)
    text = f"\r{total.runs}/{seeds} runs, {rate:.0f}/s, {len(total.bad)} with violations"
    print(text, end="", file=sys.stderr, flush=True)  # noqa: T201


def _report(total: Tally, took_s: float, out: TextIO) -> None:
    faults = sum(total.faults.values())
    print(
        f"{total.runs} runs in {took_s:.1f} s: {len(total.bad)} with violations; {faults} faults of "
        f"{len(total.faults)} kinds, {total.leaderships} leaderships; all well again within "
        f"{total.slowest:.2f} session timeouts",
        file=out,
    )


def _mutated(mutant: str | None) -> AbstractContextManager[None]:
    return nullcontext() if mutant is None else MUTANTS[mutant].build_in()
