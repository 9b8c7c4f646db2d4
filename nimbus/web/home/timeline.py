"""The runs of the last hours on a time axis, with the fires to come at its right. Pure.

Places are percentages of a drawing, so that it is as wide as its column and text keeps its form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from markupsafe import Markup

from nimbus.domain.runs.run import ListedRun, RunState
from nimbus.domain.wording import counted
from nimbus.web.pages import segment

_PAST = 80
"""Percent of the axis that have passed."""
_STEPS = {1: (1, 15), 6: (5, 60), 24: (10, 180)}
"""By hours that are shown: minutes in which the axis moves, and between two ticks."""
_SINGLE, _BINS, _LEAST, _FIRES = 24, 12, 0.35, 12
"""Limit of runs that are drawn one by one, parts of the axis if there are more, least width in percent."""
_SVG = Markup('<svg class="lane" width="100%" height="{h}" role="group" aria-label="{said}">{of}</svg>')
_TICKS = Markup('<g id="ticks">{}</g>')
_TICK = Markup('<line class="tick" x1="{x}%" x2="{x}%" y1="0" y2="40"/>')
_LABEL = Markup('<text class="{}" x="{}%" y="12">{}</text>')
_NOW = Markup('<line class="now" x1="80%" x2="80%" y1="0" y2="40"/>')
_USE = Markup('<use href="#ticks"/>')
_BOX = Markup('<rect class="{}" x="{}%" width="{}%" y="{}" height="{}"><title>{}</title></rect>')
_LINK = Markup('<a href="/ui/runs/{}">{}</a>')
_COUNT = Markup('<text x="{}%" y="14">{}</text>')
_FIRE = Markup('<circle class="fire" cx="{}%" cy="10" r="4"><title>{}</title></circle>')


@dataclass(frozen=True, slots=True)
class Axis:
    """A time axis: `hours` until now, and a quarter of that beyond."""

    now: datetime
    """The end of the step that lasts, so that a page changes only with the steps."""
    hours: int
    zone: tzinfo = UTC

    @classmethod
    def of(cls, now: datetime, hours: int, zone: tzinfo = UTC) -> Axis:
        """The axis of `hours`, which are 1, 6 or 24."""
        step = _STEPS[hours][0]
        begun = now.replace(minute=now.minute // step * step, second=0, microsecond=0)
        return cls(begun + timedelta(minutes=step), hours, zone)

    @property
    def begin(self) -> datetime:
        """The left edge."""
        return self.now - timedelta(hours=self.hours)

    @property
    def end(self) -> datetime:
        """The right edge."""
        return self.now + timedelta(hours=self.hours) / 4

    def clock(self, moment: datetime) -> str:
        """A time of day."""
        return f"{moment.astimezone(self.zone):%H:%M}"

    def at(self, moment: datetime) -> float:
        """The place of a moment in percent, within the axis."""
        share = (moment - self.begin) / timedelta(hours=self.hours)
        return round(min(max(share * _PAST, 0), 100), 2)


def head(axis: Axis) -> Markup:
    """The axis with its hours and `now`; every lane uses its ticks."""
    every = timedelta(minutes=_STEPS[axis.hours][1])
    midnight = axis.begin.astimezone(axis.zone).replace(hour=0, minute=0).astimezone(UTC)
    first = midnight + every * -(-(axis.begin - midnight) // every)
    ticks = [first + every * number for number in range(int((axis.end - first) / every) + 1)]
    labels = (
        _LABEL.format("", x, _label(axis, tick))
        for tick in ticks
        if 2 < (x := axis.at(tick)) < 98 and abs(x - _PAST) > 4
    )
    marks = Markup("").join(_TICK.format(x=axis.at(tick)) for tick in ticks)
    return _SVG.format(
        h=18,
        said=f"from {axis.clock(axis.begin)} to {axis.clock(axis.end)}",
        of=_TICKS.format(marks + _NOW) + Markup("").join(labels) + _LABEL.format("now", _PAST, "now"),
    )


def _label(axis: Axis, tick: datetime) -> str:
    local = tick.astimezone(axis.zone)
    return axis.clock(tick) if local.hour or local.minute else f"{local:%b} {local.day}"


def lane(runs: Sequence[ListedRun], fires: Iterable[datetime], axis: Axis) -> Markup:
    """The runs of one pipeline and its next fires. More than a few runs are counted in parts of the axis."""
    drawn = _single(runs, axis) if len(runs) <= _SINGLE else _counted(runs, axis)
    rings = Markup("").join(
        _FIRE.format(axis.at(fire), axis.clock(fire)) for fire in fires if fire < axis.end
    )
    return _SVG.format(h=20, said=said(runs), of=_USE + drawn + rings)


def said(runs: Sequence[ListedRun]) -> str:
    """How many runs there are, and how many have failed."""
    failed = sum(run.state is RunState.FAILED for run in runs)
    return counted(len(runs), "run") + (f", {failed} failed" if failed else "")


def _single(runs: Iterable[ListedRun], axis: Axis) -> Markup:
    return Markup("").join(_bar(run, axis) for run in runs)


def _bar(run: ListedRun, axis: Axis) -> Markup:
    began = run.started_at or run.created_at
    x = axis.at(began)
    wide = max(_LEAST, round(axis.at(run.finished_at or axis.now) - x, 2))
    y, high = (2, 16) if run.state is RunState.FAILED else (6, 8)
    box = _BOX.format(run.state.value, x, wide, y, high, f"{axis.clock(began)}, {run.state.value}")
    return box if run.state is RunState.SUCCEEDED else _LINK.format(segment(run.id), box)


def _counted(runs: Iterable[ListedRun], axis: Axis) -> Markup:
    bins: dict[int, list[ListedRun]] = {}
    for run in runs:
        place = axis.at(run.started_at or run.created_at) * _BINS / _PAST
        bins.setdefault(min(int(place), _BINS - 1), []).append(run)
    return Markup("").join(_bin(number, of) for number, of in sorted(bins.items()))


def _bin(number: int, runs: Sequence[ListedRun]) -> Markup:
    wide, failed = _PAST / _BINS, sum(run.state is RunState.FAILED for run in runs)
    x = round(number * wide, 2)
    kind = "failed" if failed else "succeeded"
    text = f"✕{failed}/{len(runs)}" if failed else str(len(runs))
    box = _BOX.format(f"bin {kind}", x, round(wide - 0.2, 2), 2, 16, said(runs))
    return box + _COUNT.format(round(x + wide / 2, 2), text)


def load(most: Sequence[int], slots: int, known: float) -> Markup:
    """How many slots were used over the time that has passed, with the slots of all workers as the scale.

    `most`: attempts that were open at once, by parts of the axis; `known`: percent of it with unknown load.
    """
    scale, wide = max(*most, slots, 1), _PAST / len(most)
    bars = (
        _BOX.format("load", round(number * wide, 2), round(wide - 0.1, 2), 24 - high, high, f"at most {each}")
        for number, each in enumerate(most)
        if number * wide >= known and (high := round(22 * each / scale))
    )
    hidden = _BOX.format("unknown", 0, known, 0, 24, "not known") if known else Markup("")
    said = f"slots in use, at most {max(most)} of {slots}"
    return _SVG.format(h=24, said=said, of=_USE + hidden + Markup("").join(bars))
