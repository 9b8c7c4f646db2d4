"""The figures and tables of the benchmark of blobsync."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmark.blobsync import runner as runner_module
from tests.benchmark.blobsync.cpu import Usage, others_share
from tests.benchmark.blobsync.entry import Case, Entry
from tests.benchmark.blobsync.goals import verdicts
from tests.benchmark.blobsync.line_process import BenchFailedError
from tests.benchmark.blobsync.runner import Runner
from tests.benchmark.blobsync.sample import Found, Sample, Series, Work

BEFORE = Usage(taken_s=0.0, ours=5.0, others={1: 7.0, 2: 3.0}, kernel=1.0, busy=50.0, stolen=0.0)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmark.blobsync.cpu.os.cpu_count", lambda: 2)


def test_run_is_undisturbed_when_only_we_and_the_kernel_worked() -> None:
    after = replace(BEFORE, taken_s=1.0, ours=6.0, kernel=1.2, busy=51.7)

    assert others_share(BEFORE, after, children_s=0.5) == 0.0


@pytest.mark.parametrize(
    "after",
    [
        replace(BEFORE, taken_s=1.0, others={1: 7.2, 2: 3.0}),
        replace(BEFORE, taken_s=1.0, others={1: 7.0, 2: 3.0, 9: 0.2}),  # it started between the two readings
        replace(BEFORE, taken_s=1.0, others={1: 7.2}),  # it ended between the two readings
        replace(BEFORE, taken_s=1.0, stolen=0.2),
        replace(BEFORE, taken_s=1.0, busy=50.23),  # by a process that /proc does not show
    ],
)
def test_run_is_disturbed_by_whoever_else_worked(after: Usage) -> None:
    assert others_share(BEFORE, after, children_s=0.0) == pytest.approx(0.1)


def _work(wall_s: float, peak_mib: int = 50) -> Work:
    return Work(wall_s=wall_s, cpu_s=0.1, peak_bytes=peak_mib * MIB)


def _series(wall_s: float, peak_mib: int = 50) -> Series:
    return Series("x", [Sample(_work(wall_s, peak_mib), 0.0, 0.0)])


def test_goal_is_met_or_missed_by_the_ratio_of_medians_and_says_when_it_was_not_measured() -> None:
    ours = {"ours-host": _series(0.08), "ours-command": _series(0.16)}
    cases: dict[str, Found] = {"small": {**ours, "s5cmd-cp": _series(1.0)}}

    found = {verdict.words: verdict for verdict in verdicts(cases, {}, 10 * MIB)}

    assert found["small: ours-host / s5cmd-cp"].outcome == "met"
    assert found["small: ours-command / s5cmd-cp"].outcome == "MISSED"
    assert found["small: ours-command / tar"].outcome == "not measured"
    peak = found["peak memory above a bare interpreter, a process, any case, MiB"]
    assert (peak.value, peak.outcome) == (40.0, "met")


def _runner(folder: Path, said: list[str]) -> Runner:
    return Runner(
        folder=folder,
        server_pid=1,
        our_pids=list,
        runs=2,
        noise_limit=0.03,
        patience=2,
        say=said.append,
    )


def _shares(monkeypatch: pytest.MonkeyPatch, *shares: float) -> None:
    left: Iterator[float] = iter(shares)
    monkeypatch.setattr(runner_module, "others_share", lambda *_args: next(left))


def test_disturbed_run_is_thrown_away_and_repeated_until_patience_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walls = iter([9.0, 1.0, 9.0, 9.0, 8.0])
    _shares(monkeypatch, 0.5, 0.01, 0.5, 0.5, 0.5)
    entry = Entry("x", "x", lambda _place: _work(next(walls)), is_command=True)

    found = _runner(tmp_path, []).run(Case("case", "case", (entry,)))["x"]

    assert [sample.work.wall_s for sample in found.samples] == [1.0, 8.0]
    assert (found.disturbed, found.accepted_disturbed) == (3, 1)


def test_contender_that_brings_other_files_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shares(monkeypatch, *[0.0] * 4)

    def wrong(place: Path) -> Work:
        (place / "a").write_text("other")
        return _work(1.0)

    bad = Entry("bad", "bad", wrong, True, prepare=Path.mkdir, tree=lambda place: place)
    good = Entry("good", "good", lambda _place: _work(1.0), is_command=True)
    measured = _runner(tmp_path, [])

    found = measured.run(Case("case", "case", (bad, good), expected={"a": "0" * 64}))

    assert list(found) == ["good"]
    assert [failed.split(" ")[:2] for failed in measured.failed] == [["case:", "bad:"]]


def test_contender_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    def fails(_place: Path) -> Work:
        raise BenchFailedError("exit status 1")

    entries = (Entry("bad", "bad", fails, True), Entry("good", "good", lambda _place: _work(1.0), True))
    said: list[str] = []

    assert list(_runner(tmp_path, said).run(Case("case", "case", entries))) == ["good"]
    assert any("exit status 1" in line for line in said)
