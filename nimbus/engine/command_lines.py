"""The order in which waiting commands are answered: in lines, one for each pipeline and each run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, takewhile

from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import CommandId


class CommandLines:
    """A command that waits for its release, or for its run to be built, holds back those behind it."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, dict[CommandId, None]] = defaultdict(dict)

    def __contains__(self, line: str) -> bool:
        return line in self._lines

    def join(self, queued: QueuedCommand) -> None:
        """Stand behind all that are in its lines, unless it stands there already."""
        for line in lines_of(queued):
            self._lines[line].setdefault(queued.id)

    def leave(self, queued: QueuedCommand) -> list[CommandId]:
        """Stand in no line. Who is first now in those that it was in."""
        firsts = []
        for line in lines_of(queued):
            rest = self._lines[line]
            rest.pop(queued.id, None)
            if rest:
                firsts.append(next(iter(rest)))
            else:
                del self._lines[line]
        return firsts

    def is_first(self, queued: QueuedCommand) -> bool:
        """Whether no older command about the same pipeline, or the same run, stands before it."""
        return all(self.first(line) in (None, queued.id) for line in lines_of(queued))

    def ahead_of(self, queued: QueuedCommand) -> list[CommandId]:
        """Older commands about the same pipeline, or the same run."""
        lines = (takewhile(lambda other: other != queued.id, self._lines[line]) for line in lines_of(queued))
        return [*chain.from_iterable(lines)]

    def first(self, line: str) -> CommandId | None:
        """The oldest command of a line."""
        return next(iter(self._lines[line])) if line in self._lines else None

    def listed(self) -> dict[str, list[CommandId]]:
        """All lines, each in its order."""
        return {name: list(line) for name, line in self._lines.items()}


def lines_of(queued: QueuedCommand) -> Iterator[str]:
    """The pipeline and the run that a command is about; a run's name may be that of a pipeline.

    A rerun may have to wait for the end of a run. It holds up no other command of its pipeline.
    """
    pipeline, run, waits = (getattr(queued.command, name, "") for name in ("pipeline", "run_id", "rerun_of"))
    if pipeline and not waits:
        yield pipeline
    if run:
        yield f"run {run}"
