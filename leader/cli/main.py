"""The commands. Each makes one call and prints the result."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import click

from leader.cli.connection import Election, LeaderExit, on_election
from leader.cli.doctor import examine
from leader.clock import Countdown
from leader.protocol.terms import LeaderInfo
from leader.protocol.view import ParticipantView
from leader.zookeeper.operations import pause as pause_election
from leader.zookeeper.operations import read_leader, read_participants, request_abdication, request_switchover
from leader.zookeeper.operations import resume as resume_election

_POLL = timedelta(milliseconds=200)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Show and control an election on ZooKeeper.

    Hosts and root may come from LEADER_HOSTS and LEADER_ROOT, a credential from LEADER_AUTH.

    Exit codes: 0 done, 1 a problem was found or a wait timed out, 2 wrong usage, 3 no leader or no such
    participant, 6 ZooKeeper not reachable, 7 not allowed.
    """


@main.command()
@on_election
def participants(election: Election) -> None:
    """List the queue, oldest first: which participant leads, and which are ready."""
    views = read_participants(election.session, election.root)
    election.say({"participants": [_view(view) for view in views]}, *_table(views))


@main.command()
@on_election
def leader(election: Election) -> None:
    """Show the leader. Exit code 3 if there is none."""
    found = read_leader(election.session, election.root)
    election.say({"leader": _info(found)}, _sentence(found))
    if found is None:
        sys.exit(LeaderExit.NOT_FOUND)


@main.command()
@click.argument("participant")
@click.option("--reason", default="asked by an operator", show_default=True, help="For the log.")
@click.option("--wait", default=30.0, show_default=True, help="Longest wait for the new leader, seconds.")
@on_election
def switchover(election: Election, participant: str, reason: str, wait: float) -> None:
    """Hand leadership to PARTICIPANT. The leader first finishes its work; the successor's guard decides."""
    before = request_switchover(election.session, election.root, participant, reason)
    after = _await_other(election, before, wait)
    election.say({"before": _info(before), "leader": _info(after)}, _sentence(after))
    if after is None or after.participant.id != participant:
        click.echo(f"error: {participant} did not take the lead within {wait:g} s", err=True)
        sys.exit(LeaderExit.PROBLEM)


@main.command()
@click.option("--reason", default="asked by an operator", show_default=True, help="For the log.")
@click.option("--wait", default=30.0, show_default=True, help="Longest wait for the new leader, seconds.")
@on_election
def abdicate(election: Election, reason: str, wait: float) -> None:
    """Ask the leader to step down for the next in line. The leader first finishes its work."""
    before = request_abdication(election.session, election.root, reason)
    after = _await_other(election, before, wait)
    election.say({"before": _info(before), "leader": _info(after)}, _sentence(after))
    if after is None:
        click.echo(f"error: no participant took the lead within {wait:g} s", err=True)
        sys.exit(LeaderExit.PROBLEM)


@main.command()
@click.option(
    "--reason",
    default="asked by an operator",
    show_default=True,
    help="Shown by the leader and the next in line.",
)
@on_election
def pause(election: Election, reason: str) -> None:
    """Forbid any change of leader until `resume`.

    A pause does not keep the leader alive: if the leader dies or loses its session, there is NO leader until
    it is back under the same id, or the pause ends.
    """
    found = pause_election(election.session, election.root, reason)
    election.say(
        {"paused": True, "leader": _info(found)},
        f"paused: {_sentence(found)}, and no other may. If it fails, there is no leader until `resume`.",
    )


@main.command()
@on_election
def resume(election: Election) -> None:
    """End a pause."""
    was = resume_election(election.session, election.root)
    election.say({"paused": False, "was_paused": was}, "resumed" if was else "there was no pause")


@main.command()
@on_election
def doctor(election: Election) -> None:
    """Check the election; exit code 1 if there is a problem. Changes nothing, needs no leader."""
    findings = examine(election.session, election.root)
    lines = [f"{'ok ' if one.ok else 'BAD'} {one.check}: {one.detail}" for one in findings]
    data = [{"check": one.check, "ok": one.ok, "detail": one.detail} for one in findings]
    election.say({"findings": data}, *lines)
    if not all(one.ok for one in findings):
        sys.exit(LeaderExit.PROBLEM)


def _await_other(election: Election, before: LeaderInfo, wait_s: float) -> LeaderInfo | None:
    """Wait until there is a leader of another epoch. None if there is none in time."""
    countdown = Countdown(timedelta(seconds=wait_s))
    while countdown.remaining() > timedelta(0):
        found = read_leader(election.session, election.root)
        if found is not None and found.epoch != before.epoch:
            return found
        time.sleep(min(countdown.remaining(), _POLL).total_seconds())
    return None


def _info(info: LeaderInfo | None) -> dict[str, Any] | None:
    if info is None:
        return None
    who = info.participant
    return {"id": who.id, "host": who.host, "port": who.port, "boot_id": who.boot_id, "epoch": info.epoch}


def _view(view: ParticipantView) -> dict[str, Any]:
    card, who = view.card, view.participant
    return {
        "id": who.id,
        "host": who.host,
        "port": who.port,
        "boot_id": who.boot_id,
        "position": view.position,
        "is_leader": view.is_leader,
        "node": view.node,
        "ready": None if card is None or card.rank.unready == 1 else card.rank.unready == 0,
        "reasons": [] if card is None else list(card.reasons),
    }


def _sentence(info: LeaderInfo | None) -> str:
    if info is None:
        return "there is no leader"
    who = info.participant
    return f"{who.id} at {who.host}:{who.port} leads in epoch {info.epoch}"


def _table(views: list[ParticipantView]) -> list[str]:
    if not views:
        return ["the queue is empty"]
    rows = [("position", "id", "address", "leads", "ready")]
    for view in views:
        data = _view(view)
        ready = {True: "yes", False: "no: " + "; ".join(data["reasons"]), None: "not known"}[data["ready"]]
        address = f"{data['host']}:{data['port']}" if data["host"] else "unknown"
        rows.append((str(view.position), data["id"], address, "yes" if view.is_leader else "", ready))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
