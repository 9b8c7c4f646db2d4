"""Updates waiting commands, and the results of their effects."""

from __future__ import annotations

from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.commands import (
    Abdication,
    ActivatePipeline,
    CreateBackfill,
    PublishRelease,
    QueuedCommand,
    StartRun,
    is_urgent,
)
from nimbus.domain.ids import CommandId, RunId
from nimbus.domain.pipeline import PipelineSpec
from nimbus.engine.agenda import ABOUT_ABDICATION, Subject, about_command
from nimbus.engine.refusal import Refusal
from nimbus.engine.state.facts import Facts


class WaitingCommands(Facts):
    """Waiting commands, in the lines in which they are answered."""

    def put_abdication(self, abdication: Abdication | None) -> None:
        """Set the last accepted abdication."""
        self.abdication = abdication
        self.agenda.add(ABOUT_ABDICATION)

    def put_command(self, queued: QueuedCommand) -> None:
        """Add a waiting command."""
        if queued.id not in self.commands:
            self.commands[queued.id] = queued
            if isinstance(queued.command, StartRun) and queued.command.rerun_of is not None:
                self._reruns[queued.command.rerun_of][queued.id] = None
            self.line_up(queued.id)

    def line_up(self, command: CommandId) -> None:
        """Append a command to its lines, and put it on the agenda. One that is set aside gets no line."""
        if about_command(command) in self.set_aside or command not in self.commands:
            return
        self.lines.join(self.commands[command])
        self._look_at_command(command)

    def _leave_lines(self, command: CommandId) -> None:
        """Remove a command from its lines, and put the commands that are first now on the agenda."""
        for first in self.lines.leave(self.commands[command]):
            self._look_at_command(first)

    def _look_at_command(self, command: CommandId) -> None:
        self.agenda.add(about_command(command), urgent=is_urgent(self.commands[command].command))

    def drop_command(self, command: CommandId) -> None:
        """Remove a command that has left the queue."""
        subject = about_command(command)
        self.agenda.forget(subject)
        self.building.discard(subject)
        self.built.pop(subject, None)
        self.purges.forget(command)
        if command in self.commands:
            self._leave_lines(command)
            queued = self.commands.pop(command)
            if isinstance(queued.command, StartRun) and queued.command.rerun_of is not None:
                self._forget_rerun(queued.command.rerun_of, command)
            if isinstance(queued.command, PublishRelease | ActivatePipeline | CreateBackfill):
                self.prepared.pop(queued.command.pipeline, None)

    def _forget_rerun(self, run: RunId, command: CommandId) -> None:
        self._reruns[run].pop(command, None)
        if not self._reruns[run]:
            del self._reruns[run]

    def put_aside(self, subject: Subject, why: str) -> None:
        """Call no rule for a subject for a while. Commands behind a command that is set aside may pass."""
        self.set_aside[subject] = why
        if subject.kind == "command" and subject.command in self.commands:
            self._leave_lines(subject.command)

    def release_prepared(self, release: ReleaseOf, result: PipelineSpec | Refusal) -> None:
        """Record that a release is on this disk, or is not available."""
        if self.preparing.get(release.pipeline) != release:
            return  # an earlier reign started it
        del self.preparing[release.pipeline]
        self.prepared[release.pipeline] = release, result
        if (first := self.lines.first(release.pipeline)) is not None:
            self._look_at_command(first)

    def purge_stored(self, command: CommandId, answer: Refusal | None) -> None:
        """Record that the order of a purge command is stored, or refused."""
        if self.purges.stored(command, answer):
            self.agenda.add(about_command(command))
