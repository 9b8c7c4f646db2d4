"""The order in which waiting commands are answered: one queue ("line") for each pipeline and each run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, takewhile

from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import CommandId


class CommandLines:
    """The lines. A command that waits for its release or its run blocks the commands behind it."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, dict[CommandId, None]] = defaultdict(dict)

    def __contains__(self, line: str) -> bool:
        return line in self._lines

    def join(self, queued: QueuedCommand) -> None:
        """Append a command to its lines, unless it is in them already."""
        for line in lines_of(queued):
            self._lines[line].setdefault(queued.id)

    def leave(self, queued: QueuedCommand) -> list[CommandId]:
        """Remove a command from its lines. Return the commands that are first in them now."""
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
        """True when no older command about the same pipeline or run is before it."""
        return all(self.first(line) in (None, queued.id) for line in lines_of(queued))

    def ahead_of(self, queued: QueuedCommand) -> list[CommandId]:
        """Older commands about the same pipeline or run."""
        lines = (takewhile(lambda other: other != queued.id, self._lines[line]) for line in lines_of(queued))
        return [*chain.from_iterable(lines)]

    def first(self, line: str) -> CommandId | None:
        """The oldest command of a line."""
        return next(iter(self._lines[line])) if line in self._lines else None


def lines_of(queued: QueuedCommand) -> Iterator[str]:
    """The lines of a command: its pipeline and its run. The prefix `run` keeps equal names apart.

    A rerun may have to wait for the end of a run, so it does not block its pipeline's line.
    """
    pipeline, run, waits = (getattr(queued.command, name, "") for name in ("pipeline", "run_id", "rerun_of"))
    if pipeline and not waits:
        yield pipeline
    if run:
        yield f"run {run}"
