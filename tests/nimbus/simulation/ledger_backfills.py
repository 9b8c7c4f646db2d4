"""The laws of backfills: each date is handled once, in its run's transaction, within the parallel limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from nimbus.definition.backfill_dates import dates_left
from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.ids import BackfillId
from nimbus.domain.pipelines.backfill import Backfill, BackfillState
from nimbus.domain.runs.run import Run
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.ledger_runs import RunLaws


class BackfillLaws:
    """See the module."""

    def __init__(self, runs: RunLaws) -> None:
        self._runs = runs
        self._all: dict[BackfillId, Backfill] = {}
        self.started: dict[BackfillId, dict[datetime, Run]] = {}
        """The run of each date."""

    def written(self, write: w.Write, then: Sequence[w.Write]) -> None:
        """Record one write. `then`: the later writes of its transaction."""
        match write:
            case w.PutBackfill(backfill, None):
                self._all[backfill.id], self.started[backfill.id] = backfill, {}
            case w.PutBackfill(backfill, _):
                self._moved(self._all[backfill.id], backfill, then)
                self._all[backfill.id] = backfill
            case w.RemoveBackfill(backfill):
                del self._all[backfill.id]
            case w.CreateRun(run) if run.backfill is not None:
                self._created(run)

    def is_done(self, command: c.CreateBackfill | c.ControlBackfill) -> bool:
        """True if the records show the effect of an accepted command."""
        if isinstance(command, c.ControlBackfill):
            return self._all[command.backfill].state is command.to
        return command.backfill in self._all

    def check(self) -> None:
        """After a commit: the counts equal those of the runs."""
        for backfill in self._all.values():
            runs = [self._runs.all[run.id] for run in self.started[backfill.id].values()]
            states = [run.state.value for run in runs]
            counts = {name: getattr(backfill, name) for name in ("succeeded", "failed", "stopped")}
            found = {name: states.count(name) for name in counts}
            hold(Law.BACKFILL_ONCE, counts == found, backfill.id, "counts", counts, "and has", found)
            live = sum(not run.state.is_final for run in runs)
            most = backfill.request.max_parallel
            hold(Law.BACKFILL_WINDOW, live <= most, backfill.id, "has", live, "live runs of", most)

    def _moved(self, before: Backfill, after: Backfill, then: Sequence[w.Write]) -> None:
        hold(Law.BACKFILL_ONCE, not before.state.is_over or after.state is before.state, after.id, "goes on")
        new = (after.started - before.started) + (after.skipped - before.skipped)
        passed: list[datetime] = []
        for date in dates_left(before):
            if before.position == after.position or (passed and passed[-1] == after.position):
                break
            passed.append(date)
        counted = len(passed) == new or after.request.as_one_run
        hold(Law.BACKFILL_ONCE, counted, after.id, "passes", passed, "and counts", new)
        # A transaction may contain several decisions: writes after the next position belong to another one.
        own_part = takewhile(lambda write: not isinstance(write, w.PutBackfill), then)
        created = [write.run for write in own_part if isinstance(write, w.CreateRun)]
        own = [run for run in created if run.backfill == after.id]
        hold(Law.BACKFILL_ONCE, len(own) == after.started - before.started, after.id, "starts", own)
        hold(Law.BACKFILL_ONCE, all(run.logical_date == after.position for run in own), after.id, own)
        if after.state is BackfillState.FINISHED and before.state is not after.state:
            left = list(dates_left(replace(after, position=before.position)))
            hold(Law.BACKFILL_ONCE, not left, after.id, "ends without", left)

    def _created(self, run: Run) -> None:
        assert run.backfill is not None
        dates = self.started[run.backfill]
        hold(Law.BACKFILL_ONCE, run.logical_date not in dates, run.id, "is started again")
        hold(Law.BACKFILL_ONCE, run.release == self._all[run.backfill].release, run.id, "has another release")
        dates[run.logical_date] = run
