"""Runs many seeds on several processes, prints the last steps of a failing seed, and searches for mutants."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TextIO

from tests.leader.election.runner import quiet
from tests.nimbus.simulation.catalog import NEWEST_SCHEMA
from tests.nimbus.simulation.laws import Law
from tests.nimbus.simulation.mutants import MUTANTS
from tests.nimbus.simulation.simulation import Outcome, simulate

MUTANT_SEEDS = 2000
_CHUNK = 50


@dataclass(slots=True)
class Tally:
    """The results of some seeds."""

    seeds: int = 0
    steps: int = 0
    met: Counter[str] = field(default_factory=Counter)
    """How often each kind of event happened."""
    bad: dict[int, str] = field(default_factory=dict)

    def note(self, outcome: Outcome) -> None:
        """Add a seed."""
        ledger = outcome.world.ledger
        self.seeds += 1
        self.steps += outcome.step
        self.met.update(end.outcome.value for end in ledger.attempts.ends.values())
        self.met.update(code.code for code in ledger.outcomes.values())
        self.met["leaderships"] += outcome.world.zookeeper.world.epoch
        self.met["queued runs"] += len(ledger.runs.queued)
        self.met["followed calendars"] += ledger.schedules.followed
        self.met["rewound"] += ledger.schedules.rewound
        self.met["queued again"] += len(ledger.runs.queued_again)
        self.met["raised schemas"] += outcome.world.zookeeper.world.schema == NEWEST_SCHEMA
        self.met["leaders at rest"] += outcome.world.rests
        self.met["runs"] += len(ledger.runs.all)
        self.met["versions"] += ledger.datasets.published.total()
        self.met["pins"] += sum(len(run.pins) for run in ledger.runs.all.values())
        self.met["versions that left"] += ledger.datasets.left
        self.met["teams that were compared"] += ledger.shares.compared
        self.met["late versions"] += ledger.datasets.late
        self.met["versions read as new"] += ledger.datasets.news
        self.met["parts of child runs"] += ledger.datasets.fanned_in
        self.met.update(ledger.datasets.by_commands)
        self.met["starts by data"] += ledger.due.starts
        self.met["child runs"] += len(ledger.children.created)
        self.met["refusals in history"] += len(outcome.world.storage.refusals)
        self.met["executions"] += len(ledger.executions)
        if outcome.broken is not None:
            self.bad[outcome.seed] = f"step {outcome.step}: {outcome.broken}"

    def add(self, other: Tally) -> None:
        """Add the figures of another tally."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.met += other.met
        self.bad |= other.bad


def run_seeds(seeds: Sequence[int]) -> Tally:
    """Run some seeds in this process, one after the other, without logs."""
    tally = Tally()
    with quiet():
        for seed in seeds:
            tally.note(simulate(seed))
    return tally


def run_many(first: int, count: int, jobs: int) -> Iterator[Tally]:
    """Run seeds on `jobs` processes; yield a tally for each few of them, in order."""
    chunks = [range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK)]
    if jobs == 1:
        yield from map(run_seeds, chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seeds, chunks)


def find(mutant: str, seeds: int) -> tuple[int, Law] | None:
    """The first seed below `seeds` that finds a mutant, and the broken law.

    NEVER_FAILS does not count: a mutant that no longer fits the real code raises, and shows nothing.
    """
    with quiet(), MUTANTS[mutant]():
        for seed in range(seeds):
            broken = simulate(seed).broken
            if broken is not None and broken.law is not Law.NEVER_FAILS:
                return seed, broken.law
    return None


def find_all(seeds: int, jobs: int, out: TextIO) -> int:
    """Find every mutant, and print how. Returns 0 if all were found."""
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for name, found in zip(MUTANTS, pool.map(find, MUTANTS, [seeds] * len(MUTANTS)), strict=True):
            missed += found is None
            where = "NOT FOUND" if found is None else f"{found[0] + 1:4} seeds: {found[1].value}"
            print(f"{name:38} {where}", file=out, flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants found within {seeds} seeds", file=out)
    return min(missed, 1)


def tell(seed: int, out: TextIO, *, mutant: str | None = None, lines: int | None = 40) -> int:
    """Run a seed; print its last steps (`lines` None: all) and the broken law. Returns 0 without one."""
    mutated: AbstractContextManager[None] = nullcontext() if mutant is None else MUTANTS[mutant]()
    with quiet(), mutated:
        outcome = simulate(seed, lines=lines)
    print("\n".join(outcome.world.story.tell()), file=out)
    verdict = "broke no law" if outcome.broken is None else str(outcome.broken)
    print(f"seed {seed}, step {outcome.step}: {verdict}", file=out)
    return int(outcome.broken is not None)


def main(argv: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """The command line. Returns 0 if no law was broken; with --mutants, if all were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.nimbus.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="on how many processes")
    parser.add_argument("--seed", type=int, help="play this one alone and tell its whole story")
    parser.add_argument("--mutants", action="store_true", help="find all of them")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with --seed: with this fault built in")
    asked = parser.parse_args(argv)
    if asked.mutants:
        return find_all(MUTANT_SEEDS, asked.jobs, out)
    if asked.seed is not None:
        return tell(asked.seed, out, mutant=asked.mutant, lines=None)
    began, total = time.monotonic(), Tally()
    for tally in run_many(asked.first, asked.seeds, asked.jobs):
        total.add(tally)
        for seed, broken in tally.bad.items():
            print(f"seed {seed}, {broken[:500]}", file=out, flush=True)
    took_s = time.monotonic() - began
    met = ", ".join(f"{count} {what}" for what, count in total.met.most_common())
    print(
        f"{total.seeds} seeds, {total.steps} steps in {took_s:.1f} s: {len(total.bad)} broke a law", file=out
    )
    print(f"met: {met}", file=out)
    if total.bad:
        tell(min(total.bad), out)
        print(f"The whole story: python -m tests.nimbus.simulation --seed {min(total.bad)}", file=out)
    return int(bool(total.bad))
