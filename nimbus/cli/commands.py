"""`nimbus command`: commands that were sent. `nimbus select`: one command for many runs or pipelines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import confirm, examples, filters, remote, report_command
from nimbus.cli.output import Columns, Output, clock
from nimbus.domain.wording import counted

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def command() -> None:
    """See the commands that were sent to the leader."""


@command.command(name="list", epilog=examples("nimbus command list --refused --pipeline sales"))
@click.option("--refused", is_flag=True, help="Refusals alone.")
@click.option("--pipeline", metavar="NAME", help="Only about this pipeline.")
@click.option("--kind", metavar="KIND", help="Only of this kind, such as start_run.")
@click.option("--by", metavar="NAME", help="Only commands of NAME, spelled as in the list.")
@click.option("--of", metavar="COMMAND", help="Only of this selection: a command for each of its targets.")
@click.option("--limit", type=click.IntRange(1, 25_000), default=20, show_default=True)
@remote
def list_(
    api: Api, out: Output, refused: bool, kind: str | None, by: str | None, limit: int, **about: str | None
) -> None:
    """List commands, newest first, as long as history is kept: sender, origin, reason and outcome."""
    only = "true" if refused else None
    about |= {"kind": kind, "submitted_by": by}
    answer = api.listed("/commands", "commands", limit, refused=only, **about)
    columns: Columns = {
        "command": "command_id",
        "status": "status",
        "kind": "kind",
        "pipeline": "pipeline",
        "run": "run_id",
        "by": "submitted_by",
        "from": "address",
        "at": lambda row: clock(row["at"]),
        "epoch": "epoch",
        "code": "code",
        "reason": "reason",
        "message": "message",
    }
    out.listed(answer, "commands", columns)
    if not (out.as_json or answer["history_complete"]):
        out.note("history did not answer: old commands may be missing from this list.")


_PATIENCE_S = 60.0
_PAUSE_S = 0.5


@click.command(
    epilog=examples(
        "nimbus select stop --tag finance --state running --reason incident --dry-run",
        "nimbus select rerun --owner finance --state failed --from 2026-03-01 --reason 'disk was full'",
        "nimbus select pause --pipelines --tag nightly --reason maintenance",
        "nimbus select rerun sums-1 sums-2 --scope all --reason 'wrong input'",
    )
)
@click.argument("action", type=click.Choice(["stop", "rerun", "pause", "resume"]))
@click.argument("names", nargs=-1)
@click.option("--pipelines", is_flag=True, help="Select pipelines, not runs: pause, resume.")
@filters
@click.option("--state", metavar="STATE", help="Only runs in this state.")
@click.option("--from", "first", metavar="DATE", help="Only runs created then or later.")
@click.option("--to", "last", metavar="DATE", help="Only runs created until then.")
@click.option("--scope", type=click.Choice(["failed", "all"]), help="Of a rerun: which tasks. [failed]")
@click.option("--release", type=click.Choice(["same", "latest"]), help="Of a rerun. [same]")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="No more.")
@click.option("--reason", help="Kept with each command. Required without --dry-run.")
@click.option("--dry-run", is_flag=True, help="Show what is selected, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@remote
def select(
    api: Api,
    out: Output,
    action: str,
    names: tuple[str, ...],
    pipelines: bool,
    where: dict[str, Any],
    reason: str | None,
    dry_run: bool,
    yes: bool,
    limit: int,
    **more: str | None,
) -> int:
    """Stop, rerun, pause or resume all NAMES, or all that pass a filter, with one command.

    It shows first what is selected, and does nothing if that has changed. Each one is answered by itself.
    """
    if not (reason or dry_run):
        raise click.UsageError("give --reason, which is kept with each command; or --dry-run")
    others = {"state": more.pop("state"), "from": more.pop("first"), "to": more.pop("last")}
    where |= {name: value for name, value in others.items() if value}
    if bool(names) is bool(where):
        raise click.UsageError("give names, or a filter")
    body: dict[str, Any] = {
        "action": action,
        "of": "pipelines" if pipelines else "runs",
        "limit": limit,
        **({"names": names} if names else {"filter": where}),
        **{name: value for name, value in more.items() if value},
    }
    preview = api.post("/selections/preview", body)
    if dry_run and out.as_json:
        out.data(preview)
    elif not out.as_json:
        columns = ("name", "state") if pipelines else ("name", "pipeline", "state")
        out.table(columns, [tuple(row[name] for name in columns) for row in preview["targets"]])
    if dry_run:
        return Exit.OK
    what = counted(preview["count"], preview["of"][:-1])
    if not yes:
        confirm(f"{action.capitalize()} {what}?")
    body |= {"reason": reason, "token": preview["token"]}
    answer = api.command("POST", "/selections", body)
    code = report_command(out, answer, quiet=out.as_json)
    return code if code is not Exit.OK else _report(api, out, answer["command_id"], preview["count"])


def _report(api: Api, out: Output, command: str, count: int) -> int:
    """Wait until each target is answered, and print the answers."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        answer = api.listed("/commands", "commands", count, of=command)
        decided = [row for row in answer["commands"] if row["status"] != "pending"]
        if len(decided) == count or time.monotonic() > until:
            break
        time.sleep(_PAUSE_S)
    refused = [row for row in decided if row["status"] == "refused"]
    if out.as_json:
        out.data({"command_id": command, "count": count, "commands": decided})
    else:
        done, left = len(decided) - len(refused), count - len(decided)
        out.line(f"{done} done, {len(refused)} refused, {left} not decided yet")
        if refused:
            rows = [(row["command_id"], row["code"], row["message"]) for row in refused]
            out.table(("command", "code", "message"), rows)
    if len(decided) < count:
        return Exit.UNREACHABLE
    return Exit.REFUSED if refused else Exit.OK
