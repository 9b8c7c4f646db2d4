"""`nimbus cluster`: schedulers, workers, leadership."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Columns, Output, between, clock, span
from nimbus.domain.wording import counted, format_size

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(
    cls=LazyGroup,
    lazy={
        "export": Lazy("nimbus.cli.cluster.move:export", "Write the whole state into a file."),
        "import": Lazy("nimbus.cli.cluster.move:import_", "Create a cluster from such a file."),
        "verify": Lazy("nimbus.cli.cluster.move:verify", "Prove that such a file can be restored."),
        "drill": Lazy("nimbus.cli.cluster.drill:drill", "Let another scheduler lead, and report the cost."),
        "acl": Lazy("nimbus.cli.cluster.nodes:acl", "List nodes that are open to others, or close them."),
        "destroy": Lazy("nimbus.cli.cluster.nodes:destroy", "Remove a cluster for good."),
    },
)
def cluster() -> None:
    """See schedulers and workers; hand leadership over; move or remove a cluster."""


@cluster.command(
    epilog=examples("nimbus cluster participants -o json | jq '.participants[] | select(.ready | not)'")
)
@remote
def participants(api: Api, out: Output) -> None:
    """List every scheduler: which one leads, which is next, which are ready, what the others lack."""
    now = datetime.now(UTC)
    columns: Columns = {
        "queue": "queue_position",
        "scheduler": "id",
        "role": lambda row: row["role"] or "unregistered",
        "epoch": "epoch",
        "artifacts": _artifacts,
        "address": "address",
        "up for": lambda row: between(row["started_at"], None, now),
        "last abdication": "last_abdication",
    }
    out.listed(api.get("/participants"), "participants", columns, empty="no scheduler is registered")


def _artifacts(row: dict[str, Any]) -> str:
    if row["ready"]:
        return "ready"
    if not row["missing_count"]:
        return row.get("lacks") or "not ready"
    left = f", {span(row['missing_eta_s'])} left" if row.get("missing_eta_s") is not None else ""
    return f"lacks {counted(row['missing_count'], 'file')}, {format_size(row['missing_bytes'])}{left}"


@cluster.command()
@remote
def leader(api: Api, out: Output) -> int:
    """Print which scheduler leads. Exit code 6 if none does."""
    row = api.leader()
    if out.as_json:
        out.data({"leader": row})
    elif row is not None:
        since = between(row["leader_since"], None, datetime.now(UTC))
        out.line(f"{row['id']} leads epoch {row['epoch']}" + (f" for {since}" if since else ""))
        out.note(row["address"])
    if row is None:
        out.note("nobody leads at the moment: `nimbus cluster participants` shows what each scheduler lacks.")
        return Exit.UNREACHABLE
    return Exit.OK


@cluster.command()
@remote
def status(api: Api, out: Output) -> None:
    """Show the cluster at a glance."""
    answer = api.get("/status")
    if out.printed_json(answer):
        return
    leads = answer["leader"]
    rows = [
        ("leader", f"{leads['id']} (epoch {leads['epoch']})" if leads else "nobody"),
        ("schedulers", f"{answer['schedulers']}, {answer['schedulers_ready']} ready"),
        ("workers", f"{answer['workers']}, {answer['slots_busy']} of {answer['slots']} slots busy"),
        ("pipelines", _counts(answer["pipelines"])),
        ("runs", _counts(answer["runs"])),
        ("commands waiting", answer["commands_waiting"]),
        *((f"quarantined: {name}", reason) for name, reason in answer["quarantined"].items()),
        *((f"parked: {_parked_name(parked)}", parked["why"]) for parked in answer.get("parked", ())),
        ("clocks", _clocks(answer)),
        ("succession", answer.get("succession")),
        ("schema", _schema(answer)),
        ("answered by", f"{answer['answered_by']}, version {answer['version']}"),
        ("it cannot lead", answer.get("answered_by_lacks")),
    ]
    out.table(("what", "is"), [row for row in rows if row[1] not in (None, "")])


def _clocks(answer: dict[str, Any]) -> str:
    """A warning if clocks of schedulers and workers differ."""
    from nimbus.domain.pipelines.catalog import CLOCK_DIFFERENCE

    differ_s = answer.get("clocks_differ_s", 0.0)
    if differ_s <= CLOCK_DIFFERENCE.total_seconds():
        return ""
    return (
        f"those of schedulers and workers differ by {differ_s:.1f} s, so schedules or recorded times are "
        "off: let NTP set them (`clock_ahead_s` of `nimbus cluster participants` and `workers`, with -o json)"
    )


@cluster.command()
@remote
def workers(api: Api, out: Output) -> None:
    """List workers, their load, and how many attempts in a row they did not start."""
    columns: Columns = {
        "worker": "id",
        "host": "hostname",
        "slots": lambda row: f"{row['busy']}/{row['slots']}",
        "": _closed,
        "load": lambda row: f"{row['load_average']:.1f}",
        "memory free": lambda row: format_size(row["memory_available_bytes"]),
        "labels": lambda row: ", ".join(row.get("labels", [])),
        "targets (slots)": _targets,
        "executor": lambda row: row.get("executor"),
        "Spark JVMs": lambda row: row.get("spark_jvms"),
        "version": "version",
    }
    nobody = "no worker is registered: start one with `nimbus worker --config FILE`"
    out.listed(api.get("/workers"), "workers", columns, empty=nobody)


def _targets(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({slots})" for name, slots in sorted(row.get("targets", {}).items()))


def _closed(row: dict[str, Any]) -> str:
    """Why a worker gets no tasks, or fewer than others."""
    if row.get("cordoned"):
        return f"cordoned: {row['cordoned']}"
    if row["draining"]:
        return "draining"
    if row.get("lacks"):
        return f"has {row['lacks']}"
    return f"{refusals} not started" if (refusals := row.get("refusals")) else ""


@cluster.command(
    epilog=examples(
        'nimbus cluster abdicate --reason "update of this machine"',
        'nimbus cluster abdicate --to scheduler-2 --reason "move to the larger host"',
    )
)
@click.option("--reason", required=True, help="Kept in the log and in the history of terms.")
@click.option(
    "--to", default="", metavar="SCHEDULER", help="The scheduler that leads next; it must be ready."
)
@remote
def abdicate(api: Api, out: Output, reason: str, to: str) -> int:
    """Ask the leader to hand over to the next ready scheduler, or to the one that --to names."""
    body = {"reason": reason, "to": to} if to else {"reason": reason}
    return report_command(out, api.command("POST", "/cluster/abdicate", body))


@cluster.command(
    epilog=examples(
        "nimbus cluster history",
        "nimbus cluster history -o json | jq '.terms[] | select(.cause == \"died\")'",
    )
)
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="How many terms.")
@remote
def history(api: Api, out: Output, limit: int) -> None:
    """List terms, newest first: leader, end, reason of the end, and the time without a leader before."""
    answer = api.listed("/cluster/history", "terms", limit)
    if out.printed_json(answer):
        return
    now = datetime.now(UTC)
    rows = [
        (
            row["epoch"],
            row["scheduler"],
            row["version"],
            clock(row["began_at"]),
            _led_for(row, now),
            _end(row),
            _gap(row, before),
            span(row["takeover_s"]),
            _adopted(row),
            "" if row.get("decisions") is None else row["decisions"],
        )
        for row, before in zip_longest(answer["terms"], answer["terms"][1:])
    ]
    columns = (
        "epoch", "scheduler", "version", "began", "led for",
        "end", "gap before", "take-over", "adopted", "decisions",
    )  # fmt: skip
    out.table(columns, rows, empty="no term is recorded: there was no leader")
    if not answer["history_complete"]:
        out.note("history did not answer: older terms may be missing from this list.")


@cluster.command()
@remote
def succession(api: Api, out: Output) -> None:
    """Predict what happens if the leader dies now: next leader, what it lacks, time until it leads."""
    answer = api.get("/cluster/succession")
    if out.printed_json(answer):
        return
    out.line(answer["said"])
    if (gap := answer["gap"]) is not None:
        at_most = "" if gap["at_most_s"] is None else f"At most {span(gap['at_most_s'])}: "
        out.note(f"{at_most}{gap['made_of']}")


def _led_for(row: dict[str, Any], now: datetime) -> str:
    """How long a leader led. A leader that died could not record its end."""
    took = between(row["began_at"], row["ended_at"] or row["seen_at"], now)
    return f"at least {took}" if row["ended_at"] and not row["is_exact"] else took


def _gap(row: dict[str, Any], before: dict[str, Any] | None) -> str:
    """The time without a leader before a term. `before`: the previous term; None: the list ends."""
    if row["gap_s"] is None:
        return ""
    is_exact = before is not None and before["is_exact"]
    return span(row["gap_s"]) if is_exact else f"at most {span(row['gap_s'])}"


def _end(row: dict[str, Any]) -> str:
    """Why a term ended, and who requested it."""
    if row["cause"] is None:
        return "leads, or nobody has led since"
    words = row["cause"].replace("_", " ")
    by = f" by {row['by']}" if row["by"] else ""
    return f"{words}{by}: {row['reason']}" if row["reason"] else f"{words}{by}"


def _adopted(row: dict[str, Any]) -> str:
    adopted = row["adopted"]
    if adopted is None:
        return "not read"
    attempts = adopted["claimed"] + adopted["unclaimed"]
    marks = [f"{adopted[name]} {name}" for name in ("ended", "fenced") if adopted[name]]
    return ", ".join([counted(adopted["runs"], "run"), counted(attempts, "attempt"), *marks])


def _parked_name(parked: dict[str, Any]) -> str:
    what = f"task {parked['task']} of run" if parked["kind"] == "children" else parked["kind"]
    return f"{what} {parked['id']}"


def _schema(answer: dict[str, Any]) -> str:
    """The cluster's schema, and what to do about it."""
    stands, newest, older = answer["cluster_schema"], answer["newest_schema"], ", ".join(answer["older"])
    if stands is None:
        return "none before the first leader"
    if stands > newest:
        return f"{stands}; the scheduler that answers knows {newest} and cannot lead: upgrade it"
    if stands == newest:
        return f"{stands}; too old for it, upgrade: {older}" if older else str(stands)
    if older:
        return f"{stands}; to raise it to {newest}, upgrade: {older}"
    return f"{stands}; the leader raises it to {newest} after leadership.raise_schema_after"


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
