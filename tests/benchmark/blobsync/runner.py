"""Runs the contenders of a case in turns, and counts only runs that other processes did not disturb."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmark.blobsync.content import digests
from tests.benchmark.blobsync.cpu import others_share, process_cpu_s, usage
from tests.benchmark.blobsync.entry import Case, Entry
from tests.benchmark.blobsync.line_process import BenchFailedError
from tests.benchmark.blobsync.sample import Found, Sample, Series, Work

_KEPT_BYTES = 12 << 30
"""Up to here old destinations stay until the case is over: on some file systems, files made just after many
were deleted cost more, and the other tools make more files than we do."""


@dataclass
class Runner:
    """See the module.

    Args:
        folder: Below it each run has a place of its own.
        server_pid: Whose CPU time is the server's.
        our_pids: Processes that work for us through several runs.
        noise_limit: Share of the machine that others may take in a run that counts.
        patience: Runs of one contender that are thrown away before a disturbed one is counted.
    """

    folder: Path
    server_pid: int
    our_pids: Callable[[], Sequence[int]]
    runs: int
    noise_limit: float
    patience: int
    say: Callable[[str], None]
    failed: list[str] = field(default_factory=list)

    def run(self, case: Case) -> Found:
        """All runs of all contenders. One that fails is said and left out from then on."""
        entries = list(case.entries)
        found = {entry.name: Series(entry.label) for entry in entries}
        places = self.folder / case.name
        places.mkdir()
        keep = case.run_bytes * self.runs * max(1, len(entries)) <= _KEPT_BYTES
        for number in range(self.runs):
            for entry in list(entries):
                try:
                    self._counted(case, entry, found[entry.name], places, keep)
                except BenchFailedError as failed:
                    self.say(f"  {entry.label} failed and is left out: {failed}")
                    self.failed.append(f"{case.name}: {entry.name}: {failed}")
                    entries.remove(entry)
            self.say(f"  {case.title}: {number + 1} of {self.runs} runs")
        remove(places)
        return {name: series for name, series in found.items() if series.samples}

    def _counted(self, case: Case, entry: Entry, series: Series, places: Path, keep: bool) -> None:
        for attempt in range(self.patience + 1):
            place = places / f"{entry.name}-{len(series.samples)}-{attempt}"
            sample = self._once(case, entry, place, compare=not series.samples)
            if not keep:
                remove(place)
            disturbed = sample.others_share > self.noise_limit
            if not disturbed or attempt == self.patience:
                series.samples.append(sample)
                series.accepted_disturbed += disturbed
                return
            series.disturbed += 1

    def _once(self, case: Case, entry: Entry, place: Path, *, compare: bool) -> Sample:
        entry.prepare(place)
        os.sync()  # also after the deletions of the run before
        try:
            sample = self._timed(entry, place)
            if compare and case.expected is not None and entry.tree is not None:
                _compare(entry.tree(place), case.expected)
        finally:
            entry.finish(place)
        return sample

    def _timed(self, entry: Entry, place: Path) -> Sample:
        before, server_s = usage(self.our_pids()), process_cpu_s(self.server_pid)
        work: Work = entry.run(place)
        server_s = process_cpu_s(self.server_pid) - server_s
        share = others_share(before, usage(self.our_pids()), work.cpu_s if entry.is_command else 0.0)
        return Sample(work, server_s, share)


def remove(folder: Path) -> None:
    """Delete a folder, read-only ones in it too, and let the disk know."""
    if not folder.exists():
        return
    for parent, _folders, _files in os.walk(folder):
        Path(parent).chmod(0o755)
    shutil.rmtree(folder)
    os.sync()


def _compare(tree: Path, expected: dict[str, str]) -> None:
    found = digests(tree)
    if found != expected:
        wrong = sorted(set(found.items()) ^ set(expected.items()))[:3]
        raise BenchFailedError(
            f"{tree} has {len(found)} files, not the {len(expected)} that it should have; such as {wrong}"
        )
