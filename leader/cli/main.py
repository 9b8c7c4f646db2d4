"""The commands and their common options. Each command makes one call and prints the result."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

import click

from leader.cli.doctor import examine
from leader.clock import Countdown
from leader.errors import LeaderError
from leader.protocol.paths import checked_root
from leader.protocol.terms import LeaderInfo
from leader.protocol.view import ParticipantView
from leader.zookeeper.config import TlsConfig
from leader.zookeeper.operations import pause as pause_election
from leader.zookeeper.operations import read_leader, read_participants, request_abdication, request_switchover
from leader.zookeeper.operations import resume as resume_election
from leader.zookeeper.session import ZooKeeperConfig, ZooKeeperSession

F = TypeVar("F", bound=Callable[..., Any])


class LeaderExit(IntEnum):
    """Exit codes."""

    OK = 0
    PROBLEM = 1
    """`doctor` found a problem, or a wait timed out."""
    USAGE = 2
    NOT_FOUND = 3
    """There is no leader, or no such participant."""
    UNREACHABLE = 6
    DENIED = 7
    FAILED = 70


_FORM = click.Choice(["text", "json"])

_EXITS = {
    "election_config": LeaderExit.USAGE,
    "nobody_leads": LeaderExit.NOT_FOUND,
    "no_such_participant": LeaderExit.NOT_FOUND,
    "zookeeper_unreachable": LeaderExit.UNREACHABLE,
    "zookeeper_unavailable": LeaderExit.UNREACHABLE,
    "zookeeper_auth": LeaderExit.DENIED,
    "zookeeper_tls": LeaderExit.DENIED,
    "acl": LeaderExit.DENIED,
    "not_permitted": LeaderExit.DENIED,
}


@dataclass(frozen=True, slots=True)
class Election:
    """The election that a command uses.

    `as_json`: print JSON on stdout, one document for each call of `say`.
    """

    session: ZooKeeperSession
    root: str
    as_json: bool

    def say(self, data: Any, *lines: str) -> None:
        """Print `data` as JSON if `as_json`, else the lines."""
        if self.as_json:
            click.echo(json.dumps(data, sort_keys=True))
            return
        for line in lines:
            click.echo(printable(line))


def on_election(command: F) -> F:
    """Add the options of an election to a command, and pass the election as the first argument."""

    @click.option("--hosts", envvar="LEADER_HOSTS", required=True, help="ZooKeeper: host:port,host:port.")
    @click.option("--root", envvar="LEADER_ROOT", required=True, help="Path of the election, e.g. /nimbus.")
    @click.option("--auth", envvar="LEADER_AUTH", help="digest:user:password or sasl:user:password.")
    @click.option("--tls-ca", envvar="LEADER_TLS_CA", help="Use TLS; PEM file of the trusted authorities.")
    @click.option("--tls-cert", envvar="LEADER_TLS_CERT", help="Use TLS; PEM file of the client certificate.")
    @click.option("--tls-key", envvar="LEADER_TLS_KEY", help="PEM file of the certificate's key.")
    @click.option("--timeout", default=10.0, show_default=True, help="Longest wait for an answer, seconds.")
    @click.option("-o", "--output", type=_FORM, default="text", show_default=True, help="Form of the output.")
    @functools.wraps(command)
    def run(
        *args: Any,
        hosts: str,
        root: str,
        auth: str | None,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        timeout: float,
        output: str,
        **kw: Any,
    ) -> Any:
        try:
            config = ZooKeeperConfig(
                hosts=hosts,
                auth=_auth(auth),
                tls=TlsConfig(ca_file=tls_ca, cert_file=tls_cert, key_file=tls_key)
                if tls_ca or tls_cert
                else None,
                call_timeout=timedelta(seconds=min(timeout, 10.0)),
            )
            checked_root(root)
            session = ZooKeeperSession(config)
            session.start(timedelta(seconds=timeout))
        except LeaderError as exc:
            _fail(exc)
        try:
            return command(Election(session, root, output == "json"), *args, **kw)
        except LeaderError as exc:
            _fail(exc)
        finally:
            session.close(timedelta(seconds=5))

    return run  # type: ignore[return-value]  # click reads the options from the wrapper


def printable(line: str) -> str:
    """Replace control characters: other processes wrote parts of the line, and a terminal would obey them."""
    return "".join(character if character.isprintable() else "?" for character in line)


def _auth(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    scheme, _, credential = text.partition(":")
    return scheme, credential


def _fail(exc: LeaderError) -> NoReturn:
    click.echo(printable(f"error: {exc}"), err=True)
    sys.exit(_EXITS.get(exc.code, LeaderExit.FAILED))


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
    row = read_leader(election.session, election.root)
    election.say({"leader": _info(row)}, _sentence(row))
    if row is None:
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
    row = pause_election(election.session, election.root, reason)
    election.say(
        {"paused": True, "leader": _info(row)},
        f"paused: {_sentence(row)}, and no other may. If it fails, there is no leader until `resume`.",
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
    lines = [f"{'ok ' if finding.ok else 'BAD'} {finding.check}: {finding.detail}" for finding in findings]
    election.say({"findings": [asdict(finding) for finding in findings]}, *lines)
    if not all(finding.ok for finding in findings):
        sys.exit(LeaderExit.PROBLEM)


def _await_other(election: Election, before: LeaderInfo, wait_s: float) -> LeaderInfo | None:
    """Wait until there is a leader of another epoch. None if there is none in time."""
    countdown = Countdown(timedelta(seconds=wait_s))
    while countdown.remaining() > timedelta(0):
        row = read_leader(election.session, election.root)
        if row is not None and row.epoch != before.epoch:
            return row
        time.sleep(min(countdown.remaining(), _POLL).total_seconds())
    return None


def _info(info: LeaderInfo | None) -> dict[str, Any] | None:
    return None if info is None else {**asdict(info.participant), "epoch": info.epoch}


def _view(view: ParticipantView) -> dict[str, Any]:
    member = view.member
    return {
        **asdict(view.participant),
        "position": view.position,
        "is_leader": view.is_leader,
        "node": view.node,
        "ready": None if member is None or member.rank.unready == 1 else member.rank.unready == 0,
        "reasons": [] if member is None else list(member.reasons),
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
