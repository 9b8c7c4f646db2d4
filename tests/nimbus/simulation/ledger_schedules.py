"""The laws of schedules: each move of a pipeline's position handles all fire times that it passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from nimbus.definition.cron import fires_between, next_fire
from nimbus.domain import writes as w
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.pipeline import CatchUp, Schedule, WhenFull
from nimbus.domain.runs.run import Run, RunCause
from tests.nimbus.simulation.catalog import CALENDAR, STREAM, first_records
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.ledger_runs import RunLaws
    from tests.nimbus.simulation.world import World


class ScheduleLaws:
    """See the module."""

    def __init__(self, world: World, runs: RunLaws) -> None:
        self._world, self._runs = world, runs
        self.pipelines: dict[PipelineName, PipelineRecord] = first_records()
        self.waited: set[RunId] = set()
        """Runs that could not be built at first: newer fire times may have passed since."""
        self.rewound = 0
        """How often a position was set back."""
        self.followed = 0
        """How often a pipeline took over a changed calendar."""
        self._fired: set[tuple[PipelineName, str, datetime]] = set()

    @property
    def settings(self) -> ClusterSettings:
        """As the leaders have written them."""
        return self._world.ledger.settings

    def written(
        self,
        write: w.CreatePipeline | w.PutPipeline | w.RemovePipelineRecord,
        then: Sequence[w.Write],
    ) -> None:
        """Record one write. `then`: the later writes of its transaction."""
        match write:
            case w.CreatePipeline(record):
                self._forget(record.name)  # the name is used again: its position starts anew
                self.pipelines[record.name] = record
            case w.PutPipeline(record, _):
                before = self.pipelines[record.name]
                self.pipelines[record.name] = record
                follows = next((one for one in then if not _is_beside(one)), None)
                if isinstance(follows, w.ConsumeCommand):
                    self._asked(before, record)
                else:
                    self._moved(before, record, follows)
            case w.RemovePipelineRecord(record):
                del self.pipelines[record.name]

    def started(self, run: Run) -> None:
        """Record a new run. A scheduled run must be in the transaction that moves the position."""
        if run.cause is RunCause.SCHEDULE:
            name = run.submitted_by.removeprefix("schedule").strip()
            fire = run.pipeline, name, run.logical_date
            working = self.settings.days_of(CALENDAR) if name else None
            sound = working is None or working.is_working(run.logical_date.date())
            hold(Law.CALENDAR, sound, run.id, "is on a day off")
            hold(Law.FIRE_ONCE, fire in self._fired, run.id, "starts apart from the position")

    def _asked(self, before: PipelineRecord, record: PipelineRecord) -> None:
        """Record a command's change: fire times during a pause are not caught up."""
        old, new, now = before.schedule_position, record.schedule_position, record.updated_at
        if record.rewound_from != before.rewound_from:
            schedules = before.profile.schedules
            least = all(
                record.position_of(one) == min(now, before.position_of(one) or now) for one in schedules
            )
            furthest = before.furthest or now
            back = least and now < furthest <= (record.rewound_from or furthest)
            hold(Law.FIRE_ONCE, back, record.name, "is set back from", old, "to", new, "at", now)
            self.rewound += 1
        known = {one.name: one.times for one in before.profile.schedules}
        for one in record.profile.schedules if record.release != before.release else ():
            old, new = before.position_of(one), record.position_of(one)
            same = before.state is PipelineState.ACTIVE and known.get(one.name) == one.times
            kept = new is not None and new == (old if same and old else max(now, old or now))
            hold(
                Law.FIRE_ONCE,
                kept,
                record.name,
                one.name,
                "is activated at",
                now,
                "and moves from",
                old,
                "to",
                new,
            )
        if record.state is PipelineState.ACTIVE and before.state is not PipelineState.ACTIVE:
            kept = new is not None and new == (now if old is None else max(now, old))
            hold(Law.FIRE_ONCE, kept, record.name, "is activated at", now, "and moves from", old, "to", new)

    def _moved(self, before: PipelineRecord, record: PipelineRecord, then: w.Write | None) -> None:
        if record == replace(before, pinned=record.pinned):
            return  # a backfill is over
        profile = before.profile.with_days(self.settings.days_of)
        if profile != before.profile:
            follows = record == replace(before, profile=profile)
            hold(Law.CALENDAR, follows, record.name, "does not follow the calendar before all else")
            self.followed += 1
            return
        moved = [
            one for one in record.profile.schedules if before.position_of(one) != record.position_of(one)
        ]
        hold(Law.FIRE_ONCE, len(moved) == 1, record.name, "moves", [one.name for one in moved])
        (schedule,) = moved
        name, old, new = record.name, before.position_of(schedule), record.position_of(schedule)
        sound = record.state is PipelineState.ACTIVE and schedule and old and new and old < new
        hold(Law.FIRE_ONCE, sound, name, record.state, "moves from", old, "to", new)
        assert old is not None
        assert new is not None
        passed = fires_between(schedule, old, new, 1000)
        hold(Law.FIRE_ONCE, passed[-1:] == (new,), name, "stands at", new, "which is no fire time after", old)
        run = then.run if isinstance(then, w.CreateRun) else None
        if run is not None and run.cause is RunCause.SCHEDULE and run.pipeline == name:
            hold(Law.FIRE_ONCE, run.logical_date == new, name, "fires", run.logical_date, "at", new)
            fire = name, schedule.name, new
            hold(Law.FIRE_ONCE, fire not in self._fired, name, "fires twice for", new)
            self._fired.add(fire)
        else:
            run = None
        too_old = self._listed(before, record, schedule, len(passed) - (run is not None))
        # CatchUp.NONE drops late fire times.
        if run is None and not too_old and schedule.catchup is not CatchUp.NONE:
            by_hand = any(
                known.pipeline == name and known.logical_date == new for known in self._runs.live.values()
            )
            by_hand |= (
                name,
                schedule.name,
                new,
            ) in self._fired  # it was fired before the position was set back
            may_skip = by_hand or self._may_skip(record)
            hold(Law.FIRE_MISSED, may_skip, name, "passes", new, "and starts nothing")
        if schedule.catchup is CatchUp.ALL and not too_old:
            hold(Law.FIRE_MISSED, len(passed) == 1, name, "passes over", passed[:-1])
        elif run is not None:
            later = next_fire(schedule, new)
            newest = later is None or later > run.created_at or run.id in self.waited
            hold(Law.FIRE_ONCE, newest, name, "fires", new, "though", later, "had passed")

    def _listed(
        self, before: PipelineRecord, record: PipelineRecord, schedule: Schedule, expected: int
    ) -> bool:
        """Record the skipped fire times of a move. True if they were too old to be caught up."""
        counted = record.skips.total - before.skips.total
        hold(Law.FIRE_LISTED, counted == expected, record.name, "lists", counted, "of", expected)
        if not counted or "catchup_window" not in record.skips.listed[-1].reason:
            return False
        skipped = record.skips.listed[-1]
        hold(Law.FIRE_LISTED, skipped.schedule == schedule.name, record.name, "lists", skipped)
        late = schedule.catchup_window and skipped.at - skipped.last > schedule.catchup_window
        hold(Law.FIRE_MISSED, late, record.name, "skips", skipped.last, "as too old at", skipped.at)
        return True

    def _may_skip(self, record: PipelineRecord) -> bool:
        concurrency = record.profile.concurrency
        if concurrency is None or concurrency.when_full is not WhenFull.SKIP:
            return False
        live = [run for run in self._runs.live.values() if not run.state.is_final]
        own = [run for run in live if run.pipeline == record.name]
        return any(run.cause is RunCause.SCHEDULE for run in own)

    def _forget(self, name: PipelineName) -> None:
        self._fired = {fired for fired in self._fired if fired[0] != name}

    def check_none_missed(self, now: datetime, begun: Collection[PipelineName]) -> None:
        """While a leader rests, no active schedule is behind its clock, unless its run is being built."""
        for name, record in self.pipelines.items():
            if name in begun:
                continue
            profile = record.profile.with_days(self.settings.days_of)
            hold(Law.CALENDAR, profile == record.profile, name, "does not follow the calendar")
            for schedule in record.profile.schedules if record.is_scheduled else ():
                if (position := record.position_of(schedule)) is not None:
                    due = next_fire(schedule, position)
                    hold(Law.FIRE_MISSED, due is None or due > now, name, "was not started for", due)

    def check_calendars(self) -> None:
        """No calendar is removed while a pipeline follows it."""
        for record in self.pipelines.values():
            for one in record.profile.schedules:
                kept = one.calendar is None or one.calendar in self.settings.calendars
                hold(Law.CALENDAR, kept, record.name, "follows", one.calendar, "which is removed")


def _is_beside(write: w.Write) -> bool:
    """True of what an activation writes beside the record: the runs of `stream`, and what is due."""
    if isinstance(write, w.PutDue):
        return True
    return isinstance(write, w.CreateRun | w.PutRun) and write.run.pipeline == STREAM.name
