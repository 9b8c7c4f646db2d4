"""Reads of records with one node each: terms, alerts, commands, settings."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nimbus import records
from nimbus.adapters.store.board import UNKNOWN_TIME
from nimbus.adapters.store.calls import Calls, readable, readable_record
from nimbus.adapters.store.paths import Paths
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import QueuedCommand, Unreadable
from nimbus.domain.ids import CommandId
from nimbus.ports import Enqueue
from nimbus.records import UnreadableRecordError

NEWEST = 2
"""How many a new leader needs: the previous one, and its own if it reads the state again."""
OLD_AT_ONCE = 100


def read_newest_terms(calls: Calls, paths: Paths, most: int = NEWEST) -> tuple[Term, ...]:
    """The newest terms, newest first."""
    return _read_terms(calls, paths, (calls.children(paths.terms) or ())[-most:])[::-1]


def read_old_terms(calls: Calls, paths: Paths, most: int) -> tuple[Term, ...]:
    """Terms beyond the newest `most`, oldest first."""
    return _read_terms(calls, paths, (calls.children(paths.terms) or ())[:-most][:OLD_AT_ONCE])


def _read_terms(calls: Calls, paths: Paths, names: tuple[str, ...]) -> tuple[Term, ...]:
    return tuple(readable(records.TERM, calls.read_all(paths.terms, names), paths.terms))


def read_alerts(calls: Calls, paths: Paths) -> tuple[Alert, ...]:
    """All readable alerts, oldest first."""
    alerts = read_all(calls, paths.alerts, records.ALERT)
    return tuple(sorted(alerts, key=lambda alert: (alert.raised_at, alert.id)))


def queued_commands(paths: Paths, nodes: Iterable[tuple[str, bytes]]) -> tuple[QueuedCommand, ...]:
    """Commands from their nodes, including unreadable ones."""
    return tuple(_queued(CommandId(name), data, f"{paths.commands}/{name}") for name, data in nodes)


def body_of(queued: QueuedCommand) -> records.CommandBody:
    """A queued command as it is stored."""
    if isinstance(queued.command, Unreadable):
        raise TypeError(f"{queued.id} cannot be written again: {queued.command.reason}")
    return records.CommandBody(
        command=queued.command,
        submitted_at=queued.submitted_at.isoformat(),
        submitted_by=queued.submitted_by,
        asked_by=queued.asked_by,
        key=queued.key,
        if_match=queued.if_match,
    )


def _queued(command: CommandId, data: bytes, place: str) -> QueuedCommand:
    try:
        body = records.COMMAND.decode(data, place)
        submitted_at = datetime.fromisoformat(body.submitted_at)
    except (UnreadableRecordError, ValueError) as exc:
        return QueuedCommand(id=command, command=Unreadable(reason=str(exc)), submitted_at=UNKNOWN_TIME)
    return QueuedCommand(
        id=command,
        command=body.command,
        submitted_at=submitted_at,
        submitted_by=body.submitted_by,
        asked_by=body.asked_by,
        key=body.key,
        if_match=body.if_match,
    )


def read_settings(calls: Calls, paths: Paths, changed: Enqueue | None = None) -> ClusterSettings:
    """Pools and cordoned workers; an unreadable record counts as empty."""
    data = calls.get(paths.settings, changed) or None
    return readable_record(records.SETTINGS, data, paths.settings) or ClusterSettings()


def read_all(
    calls: Calls, parent: str, codec: records.Codec[records.T], changed: Enqueue | None = None
) -> tuple[records.T, ...]:
    """All records below `parent`; an unreadable one is logged and left out."""
    return tuple(readable(codec, calls.records(parent, changed), parent))
