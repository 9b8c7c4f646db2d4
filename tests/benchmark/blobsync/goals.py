"""The goals, and whether they were met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.benchmark.blobsync.sample import Found, counted


@dataclass(frozen=True)
class _Ratio:
    """Upper limit for our median wall time, divided by that of another contender in the same case."""

    case: str
    ours: str
    other: str
    limit: float


@dataclass(frozen=True)
class Verdict:
    """One goal.

    Args:
        value: In the unit that `words` names; None: not measured.
        note: Why it was not measured.
    """

    words: str
    limit: float
    value: float | None
    note: str = ""

    @property
    def outcome(self) -> str:
        if self.value is None:
            return self.note or "not measured"
        return "met" if self.value <= self.limit else "MISSED"


_RATIOS = (
    _Ratio("small", "ours-command", "s5cmd-cp", 0.15),
    _Ratio("small", "ours-host", "s5cmd-cp", 0.09),
    _Ratio("small", "ours-command", "tar", 0.5),
    _Ratio("medium", "ours-host", "s5cmd-cp-sync", 1.0),
    _Ratio("large", "ours-command", "s5cmd-cp-sync", 0.85),
    _Ratio("large", "ours-command-sha256", "s5cmd-cp-sync", 1.15),
    _Ratio("nothing", "ours-host", "s5cmd-sync", 0.02),
    _Ratio("nothing", "ours-host", "rclone-tuned", 0.06),
    _Ratio("changed", "ours-host", "s5cmd-sync", 0.08),
    _Ratio("rehash", "ours-host", "rclone-checksum", 0.17),
)
_READINESS_US, _OPEN_MS, _MOVED_SHARE, _PEAK_MIB = 100.0, 300.0, 0.02, 64.0


def verdicts(cases: Mapping[str, Found], moved: Mapping[str, int], bare_bytes: int) -> list[Verdict]:
    """All goals, in the order in which they were set.

    Args:
        cases: The measurements of each case, by its name.
        moved: The result of `bytes_moved`; empty: not measured.
        bare_bytes: Peak memory of an interpreter that does nothing.
    """
    return [
        *(_ratio(cases, goal) for goal in _RATIOS),
        Verdict("second query of readiness, us", _READINESS_US, _wall(cases, "readiness", "ours-host", 1e6)),
        Verdict("a store of 100,000 opened, ms", _OPEN_MS, _wall(cases, "open", "ours-open", 1e3)),
        Verdict(
            "a store of 100,000 opened, until all is reported ready, ms",
            _OPEN_MS,
            _wall(cases, "open", "ours-open-ready", 1e3),
        ),
        *(
            Verdict(
                f"bytes that {word} transfers for 1 % changed / bytes of the files",
                _MOVED_SHARE,
                moved[f"{word}_changed"] / moved["files"] if moved else None,
            )
            for word in ("publish", "sync")
        ),
        *_peaks(cases, bare_bytes),
    ]


def _ratio(cases: Mapping[str, Found], goal: _Ratio) -> Verdict:
    ours, other = _wall(cases, goal.case, goal.ours, 1.0), _wall(cases, goal.case, goal.other, 1.0)
    value = None if ours is None or other is None else ours / other
    return Verdict(f"{goal.case}: {goal.ours} / {goal.other}", goal.limit, value)


def _wall(cases: Mapping[str, Found], case: str, name: str, factor: float) -> float | None:
    series = cases.get(case, {}).get(name)
    return None if series is None or not series.samples else series.wall_s * factor


def _peaks(cases: Mapping[str, Found], bare_bytes: int) -> Iterator[Verdict]:
    """The largest peak of our commands, and of our process, over all cases."""
    for kind, words in (("ours-command", "a command"), ("ours-host", "a process")):
        peaks = [
            (series.peak_bytes - bare_bytes) / (1 << 20)
            for found in cases.values()
            for name, series in found.items()
            if name.startswith(kind) and counted(found)
        ]
        yield Verdict(
            f"peak memory above a bare interpreter, {words}, any case, MiB",
            _PEAK_MIB,
            max(peaks) if peaks else None,
        )
