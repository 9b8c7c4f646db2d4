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
        new, moved = list[CommandId](), list[CommandId]()
        for write in writes:
            match write:
                case w.PutCommand(queued) if write.is_new:
                    self._queued(queued)
                    new.append(CommandId(queued.id.rpartition("-")[0]))
                case w.PutCommand(queued):
                    self._moved(queued.id, queued.command)
                    moved.append(queued.id)
                case w.ConsumeCommand(outcome):
                    self._answered(outcome)
                    moved.append(outcome.command)
                case _:
                    pass
        hold(
            Law.SELECTION, set(new) <= set(moved), set(new) - set(moved), "is queued apart from its position"
        )
        for of in set(new):  # a leader that was stopped within a turn may take two steps in one transaction
            steps = moved.count(of)
            hold(Law.SELECTION, new.count(of) <= selections.PARTS_AT_ONCE * steps, new.count(of), "at once")

    def _answered(self, outcome: c.CommandOutcome) -> None:
        asked = self._submitted.get(outcome.command)
        if outcome.accepted and isinstance(asked, c.ActOnSelection):
            made = self._made.get(outcome.command, 0)
            hold(Law.SELECTION, made == len(asked.targets), outcome.command, "is answered after", made)

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
