"""The law of selections: each target gets one command, in the transaction that moves past it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.ids import CommandId
from nimbus.engine.rules.commands import selections
from tests.nimbus.simulation.laws import Law, hold


class SelectionLaws:
    """See the module."""

    def __init__(self, submitted: dict[CommandId, c.Command]) -> None:
        self._submitted = submitted
        self._made: dict[CommandId, int] = {}
        """How many commands each has."""

    def committed(self, writes: Sequence[w.Write]) -> None:
        """Record the writes of a transaction, which may have several decisions."""
        new = [write.queued for write in writes if isinstance(write, w.PutCommand) and write.is_new]
        for queued in new:
            self._queued(queued)
        for write in writes:
            if isinstance(write, w.PutCommand) and not write.is_new:
                self._moved(write.queued.id, write.queued.command)
            elif isinstance(write, w.ConsumeCommand) and write.outcome.accepted:
                asked = self._submitted.get(write.outcome.command)
                if isinstance(asked, c.ActOnSelection):
                    made = self._made.get(write.outcome.command, 0)
                    all_of_it = made == len(asked.targets)
                    hold(Law.SELECTION, all_of_it, write.outcome.command, "is answered after", made)
        parents = {queued.id.rpartition("-")[0] for queued in new}
        moved = {
            write.queued.id if isinstance(write, w.PutCommand) else write.outcome.command
            for write in writes
            if isinstance(write, w.ConsumeCommand) or (isinstance(write, w.PutCommand) and not write.is_new)
        }
        hold(Law.SELECTION, parents <= moved, parents - moved, "is queued apart from its position")
        hold(Law.SELECTION, len(new) <= selections.PARTS_AT_ONCE * max(1, len(parents)), len(new), "at once")

    def _queued(self, queued: c.QueuedCommand) -> None:
        of, _, number = queued.id.rpartition("-")
        selection, made = CommandId(of), self._made.get(CommandId(of), 0)
        asked = self._submitted.get(selection)
        hold(Law.SELECTION, isinstance(asked, c.ActOnSelection), queued.id, "is of no selection")
        assert isinstance(asked, c.ActOnSelection)
        hold(Law.SELECTION, int(number) == made < len(asked.targets), queued.id, "after", made)
        target = next(islice(asked.targets, made, None))
        hold(Law.SELECTION, _about(queued.command) == target, queued.id, "is not about", target)
        hold(Law.SELECTION, queued.submitted_by == "ann", queued.id, "is of somebody else")
        self._made[selection] = made + 1
        assert not isinstance(queued.command, c.Unreadable)
        self._submitted[queued.id] = queued.command

    def _moved(self, selection: CommandId, left: c.Command | c.Unreadable) -> None:
        asked, made = self._submitted[selection], self._made[selection]
        assert isinstance(asked, c.ActOnSelection)
        assert isinstance(left, c.ActOnSelection)
        rest = list(asked.targets)[made:]
        hold(
            Law.SELECTION, (left.queued, list(left.targets)) == (made, rest), selection, "goes on with", left
        )


def _about(command: c.Command | c.Unreadable) -> str:
    match command:
        case c.StartRun(selection=again) if again is not None:
            return str(again.reuse)
        case c.StopRun(run_id=name) | c.PauseRun(run_id=name) | c.ResumeRun(run_id=name):
            return str(name)
        case c.PausePipeline(pipeline=name) | c.ActivatePipeline(pipeline=name):
            return str(name)
        case _:
            return ""
