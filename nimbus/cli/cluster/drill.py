"""`nimbus cluster drill`: try a failover, on purpose and with a report."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output, span
from nimbus.client.api import Api
from nimbus.client.errors import NotFoundError

_POLL_S = 0.05


@click.command(
    epilog=examples(
        "nimbus cluster drill --hand-over",
        "nimbus cluster drill --kill-leader --yes     # on the leader's host, as its user",
    )
)
@click.option("--hand-over", is_flag=True, help="Ask the leader to hand over, as for an upgrade.")
@click.option("--kill-leader", is_flag=True, help="End the leader's process with SIGKILL, as a crash does.")
@click.option("--yes", is_flag=True, help="Confirm --kill-leader.")
@click.option(
    "--limit",
    type=click.FloatRange(1, 600),
    default=60.0,
    show_default=True,
    help="Longest wait, in seconds.",
)
@remote
def drill(api: Api, out: Output, limit: float, *, hand_over: bool, kill_leader: bool, yes: bool) -> int:
    """Let another scheduler lead, and report what that cost and whether anything was lost.

    Refused unless a ready scheduler waits in the queue. Running attempts go on. Exit code 1: nobody leads
    after --limit, or a run is gone.
    """
    if hand_over == kill_leader:
        raise click.UsageError("say --hand-over or --kill-leader, one of them.")
    before, live = _leader(api), _live(api)
    pid = _pid_here(before, confirmed=yes) if kill_leader else 0
    began = time.monotonic()
    if kill_leader:
        os.kill(pid, signal.SIGKILL)
    else:
        api.command("POST", "/cluster/abdicate", {"reason": "a drill", "to": ""})
    after = _await_next(api, before["epoch"], limit)
    if after is None:
        raise _failed(f"nobody leads {limit:g} s after {before['id']}: see `nimbus cluster participants`")
    seen_s = time.monotonic() - began
    lost = sorted(run for run in live - _live(api) if not _is_known(api, run))
    term = _term(api, after["epoch"], began + limit)
    report = {
        "kind": "kill" if kill_leader else "hand-over",
        "before": before["id"],
        "after": after["id"],
        "epoch": after["epoch"],
        # Of a kill, the history knows only when the leader last reported.
        "without_leader_s": round(seen_s, 3) if kill_leader else term.get("gap_s"),
        "takeover_s": term.get("takeover_s"),
        "adopted": term.get("adopted"),
        "runs_before": len(live),
        "runs_lost": lost,
    }
    if not out.printed_json(report):
        out.table(
            ("what", "is"),
            [(name.removesuffix("_s").replace("_", " "), _said(value)) for name, value in report.items()],
        )
    if lost:
        raise _failed(f"{len(lost)} runs that were live are unknown now: {', '.join(lost[:5])}")
    return Exit.OK


def _failed(message: str) -> CliError:
    return CliError(message, code="drill_failed", exit_code=Exit.RUN_FAILED)


def _leader(api: Api) -> dict[str, Any]:
    """The leader's row of the participants. Refused if nobody leads, or no ready scheduler could follow."""
    rows = api.get("/participants")["participants"]
    leader = next((row for row in rows if row["is_leader"]), None)
    if leader is None or not any(row["ready"] for row in rows if row is not leader):
        lacks = "nobody leads" if leader is None else "no other scheduler is ready to lead"
        raise CliError(f"no drill: {lacks}; nothing was done", code="drill_refused", exit_code=Exit.REFUSED)
    row: dict[str, Any] = leader
    return row


def _pid_here(leader: dict[str, Any], *, confirmed: bool) -> int:
    """The leader's process, which must be on this machine."""
    if not confirmed:
        raise click.UsageError(
            f"--kill-leader ends {leader['id']} (process {leader['pid']}): confirm with --yes."
        )
    if leader["hostname"] != socket.gethostname():
        raise CliError(
            f"{leader['id']} leads on {leader['hostname']}: run the drill there; nothing was done",
            code="drill_refused",
            exit_code=Exit.REFUSED,
        )
    return int(leader["pid"])


def _await_next(api: Api, epoch: int, limit_s: float) -> dict[str, Any] | None:
    """The leader of a later epoch; None: none came in time."""
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        row = api.leader()
        if row is not None and row["epoch"] > epoch:
            return row
        time.sleep(_POLL_S)
    return None


def _live(api: Api) -> set[str]:
    states = ("running", "queued", "stopping")
    return {row["id"] for state in states for row in api.listed("/runs", "runs", 500, state=state)["runs"]}


def _is_known(api: Api, run: str) -> bool:
    try:
        api.get(("runs", run))
    except NotFoundError:
        return False
    return True


def _term(api: Api, epoch: int, until: float) -> dict[str, Any]:
    """The record of a term, once the leader has taken over; empty: not in time."""
    while time.monotonic() < until:
        terms = api.listed("/cluster/history", "terms", 5)["terms"]
        row: dict[str, Any] | None = next((row for row in terms if row["epoch"] == epoch), None)
        if row is not None and row["takeover_s"] is not None:
            return row
        time.sleep(_POLL_S)
    return {}


def _said(value: object) -> str:
    if isinstance(value, float):
        return span(value)
    if isinstance(value, dict):
        return ", ".join(f"{number} {name}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "unknown" if value is None else str(value)
