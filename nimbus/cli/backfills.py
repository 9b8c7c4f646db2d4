"""`nimbus backfill`: runs for the dates of a range."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, parameters, remote, report_command
from nimbus.cli.output import Columns, Output, clock, short
from nimbus.domain.errors import NimbusError
from nimbus.domain.wording import counted

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def backfill() -> None:
    """Run a pipeline for the dates of a range, a few at a time."""


@backfill.command(
    epilog=examples(
        "nimbus backfill create sales --from 2026-01-01 --to 2026-03-31 --max-parallel 3",
        "nimbus backfill create sales --from 2026-01-01 --to 2026-03-31 --reprocess failed --dry-run",
        "nimbus backfill create sales --from 2026-01-01 --to 2026-03-31 --as-one-run",
        "nimbus backfill create sales --from 2026-01-01 --to 2026-03-31 --downstream --dry-run",
    )
)
@click.argument("pipeline")
@click.option(
    "--from", "first", required=True, metavar="DATE", help="A day in the schedule's zone, or a time."
)
@click.option("--to", "last", required=True, metavar="DATE", help="The last date, included.")
@click.option(
    "--every", metavar="DURATION", help="Time between dates, such as 1d; for a pipeline without a schedule."
)
@click.option(
    "--max-parallel", type=click.IntRange(1, 100), default=1, show_default=True, help="Most runs at a time."
)
@click.option(
    "--reprocess",
    type=click.Choice(["missing", "failed", "all"]),
    default="missing",
    show_default=True,
    help="missing: dates without a run; failed: also those whose last run did not succeed.",
)
@click.option("--order", type=click.Choice(["oldest", "newest"]), default="oldest", show_default=True)
@click.option(
    "--on-failure",
    type=click.Choice(["pause", "continue"]),
    default="pause",
    show_default=True,
    help="What to do after a run that did not succeed.",
)
@click.option("--release", metavar="SHA256", help="Release of all its runs. Default: the active one.")
@click.option("--as-one-run", is_flag=True, help="One run whose data interval is the whole range.")
@click.option("--param", "pairs", multiple=True, metavar="KEY=VALUE", help="Parameter of all its runs.")
@click.option("--id", "backfill_id", metavar="ID", help="Your own id: the same id creates one backfill.")
@click.option(
    "--downstream",
    is_flag=True,
    help="Also backfill the pipelines that wait for its runs or read its data, each for its own dates.",
)
@click.option("--dry-run", is_flag=True, help="Show which dates would get a run; create nothing.")
@remote
def create(
    api: Api,
    out: Output,
    pipeline: str,
    pairs: tuple[str, ...],
    release: str | None,
    backfill_id: str | None,
    downstream: bool,
    dry_run: bool,
    first: str,
    last: str,
    **chosen: Any,
) -> int:
    """Create a backfill: the leader starts the run of the next date when a run ends.

    With --downstream, pipelines whose tasks wait for its runs (`waits_for`), or read what it publishes, get
    backfills of their own, ID-2, ID-3 and so on; --dry-run shows them first. Repeating it with the same --id
    creates the missing ones.
    """
    body = {"pipeline": pipeline, "from": first, "to": last, "parameters": parameters(pairs, None), **chosen}
    body = {key: value for key, value in body.items() if value is not None}
    if dry_run:
        return _plan(out, api.post("/backfill-plan", body | ({"downstream": True} if downstream else {})))
    name = backfill_id or f"{pipeline}-backfill-{secrets.token_hex(3)}"
    named = body | {"id": name} | ({} if release is None else {"release": release})
    if downstream:
        planned = api.post("/backfill-plan", body | {"downstream": True})["downstream"]
        return _create_all(api, out, [named, *_followers(out, name, body, planned)])
    answer = api.command("POST", "/backfills", named)
    code = report_command(out, answer)
    if code is Exit.OK:
        out.note(f"follow it with `nimbus backfill show {name}`")
    return code


def _followers(
    out: Output, name: str, body: dict[str, Any], planned: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the requests for the backfills of waiting pipelines."""
    alike = {key: body[key] for key in ("max_parallel", "reprocess", "order", "on_failure")}
    bodies = []
    for number, row in enumerate(planned, start=2):
        if row["why"] is not None:
            out.note(f"{row['pipeline']} gets no backfill: {row['why']}")
            continue
        dates = {"from": row["first"], "to": row["last"]}
        bodies.append({"id": f"{name}-{number}", "pipeline": row["pipeline"], **dates, **alike})
    return bodies


def _create_all(api: Api, out: Output, bodies: list[dict[str, Any]]) -> int:
    """Create backfills in this order, one command for each, until one is refused."""
    code, answers = Exit.OK, list[dict[str, Any]]()
    for body in bodies:
        try:
            answer = api.command("POST", "/backfills", body)
        except NimbusError as exc:
            if answers:
                first, last = bodies[0]["id"], answers[-1]["id"]
                out.note(f"created up to {last}; to continue after {exc.code}, repeat it with --id {first}")
            raise
        answers.append({"id": body["id"], "pipeline": body["pipeline"], **answer})
        code = max(code, report_command(out, answer, quiet=out.as_json))
    if out.as_json:
        out.data({"backfills": answers})
    return code


@backfill.command(name="list")
@click.option("--pipeline", metavar="NAME", help="Only of this pipeline.")
@remote
def list_(api: Api, out: Output, pipeline: str | None) -> None:
    """List backfills, newest first."""
    answer = api.get("/backfills", pipeline=pipeline)
    columns: Columns = {
        "backfill": "id",
        "pipeline": "pipeline",
        "state": "state",
        "progress": "progress",
        "failed": "failed",
        "created": lambda row: clock(row["created_at"]),
        "reason": "reason",
    }
    out.listed(answer, "backfills", columns)


@backfill.command()
@click.argument("backfill_id")
@remote
def show(api: Api, out: Output, backfill_id: str) -> None:
    """Show a backfill: its progress, and what it waits for."""
    b = api.get(("backfills", backfill_id))
    if out.printed_json(b):
        return
    counts = ("started", "succeeded", "failed", "stopped", "under_way", "skipped")
    rows = [
        ("state", b["state"]),
        ("reason", b["reason"]),
        ("pipeline", f"{b['pipeline']}, release {short(b['release'])}"),
        ("dates", f"{clock(b['request']['first'])} to {clock(b['request']['last'])}"),
        ("progress", b["progress"]),
        ("runs", ", ".join(f"{b[key]} {key.replace('_', ' ')}" for key in counts)),
        ("waits", b["why"]),
        ("under way", ", ".join(b["runs"])),
        ("created", f"{clock(b['created_at'])} by {b['created_by']}"),
        ("ended", clock(b["finished_at"])),
    ]
    out.table(("backfill", b["id"]), [row for row in rows if row[1]])


@backfill.command()
@click.argument("backfill_id")
@click.option("--reason", help="Shown with the backfill.")
@remote
def pause(api: Api, out: Output, backfill_id: str, reason: str | None) -> int:
    """Start no more runs until it is resumed. Active runs continue."""
    return _control(api, out, backfill_id, "pause", reason)


@backfill.command()
@click.argument("backfill_id")
@remote
def resume(api: Api, out: Output, backfill_id: str) -> int:
    """Continue with the next date."""
    return _control(api, out, backfill_id, "resume", None)


@backfill.command()
@click.argument("backfill_id")
@click.option("--reason", help="Shown with the backfill.")
@remote
def cancel(api: Api, out: Output, backfill_id: str, reason: str | None) -> int:
    """End a backfill. Its queued runs are stopped, its active runs continue."""
    return _control(api, out, backfill_id, "cancel", reason)


def _control(api: Api, out: Output, backfill_id: str, verb: str, reason: str | None) -> int:
    body = None if reason is None else {"reason": reason}
    return report_command(out, api.command("POST", ("backfills", backfill_id, verb), body))


def _plan(out: Output, answer: dict[str, Any]) -> int:
    if out.printed_json(answer):
        return Exit.OK
    rows = [(clock(row["end"]), clock(row["start"]), row["state"], row["run"]) for row in answer["dates"]]
    out.table(("date", "data since", "state", "last run"), rows)
    listed = "" if len(rows) == answer["total"] else f", the first {len(rows)} are listed"
    out.note(f"{counted(answer['total'], 'date')}{listed}: {counted(answer['runs'], 'run')} would be created")
    if answer["downstream"]:
        out.line("")
        columns: Columns = {
            "backfilled, too": "pipeline",
            "waits for": lambda row: ", ".join(row["upstream"]),
            "from": lambda row: clock(row["first"]),
            "to": lambda row: clock(row["last"]),
            "runs": "runs",
            "note": "why",
        }
        out.listed(answer, "downstream", columns)
    return Exit.OK
