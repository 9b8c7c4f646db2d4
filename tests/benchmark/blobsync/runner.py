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
"""Old destinations stay until the case is over, up to this total size. On some file systems it costs more to
create files right after many were deleted, and the other tools create more files than blobsync."""


@dataclass
class Runner:
    """See the module.

    Args:
        folder: Each run gets a new folder below it.
        server_pid: Pid of the S3 server.
        our_pids: Returns the pids of our processes that live longer than one run.
        noise_limit: Largest share of CPU time that other processes may use in a counted run, 0..1.
        patience: Number of disturbed runs that are discarded before one is counted.
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
        """Run all contenders. A contender that fails is reported, and left out from then on."""
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
        os.sync()  # also because of the deletions of the previous run
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
    """Delete a folder with its read-only folders, and flush the deletion to the disk."""
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
            f"{tree} has {len(found)} files, expected {len(expected)}; wrong are for example {wrong}"
        )
