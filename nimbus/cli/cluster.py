"""`nimbus cluster`: schedulers, workers, leadership."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output
from nimbus.cli.words import between, size

if TYPE_CHECKING:
    from nimbus.cli.client import Api


@click.group(
    cls=LazyGroup,
    lazy={
        "export": Lazy("nimbus.cli.cluster_move:export", "Write the whole state into a file."),
        "import": Lazy("nimbus.cli.cluster_move:import_", "Make a cluster of such a file."),
        "acl": Lazy("nimbus.cli.cluster_acl:acl", "List nodes that are open to others, or close them."),
        "destroy": Lazy("nimbus.cli.cluster_destroy:destroy", "Remove a cluster for good."),
    },
)
def cluster() -> None:
    """See schedulers and workers; hand leadership over; move or remove a cluster."""


@cluster.command(
    epilog=examples("nimbus cluster participants -o json | jq '.participants[] | select(.ready | not)'")
)
@remote
def participants(api: Api, out: Output) -> None:
    """List every scheduler: who leads, who is next, who is ready, and what the others lack."""
    answer = api.get("/participants")
    if out.as_json:
        out.data(answer)
        return
    now = datetime.now(UTC)
    rows = [
        (
            "" if row["queue_position"] is None else row["queue_position"],
            row["id"],
            row["role"] or "unregistered",
            row["epoch"],
            "ready" if row["ready"] else f"lacks {row['missing_count']} files, {size(row['missing_bytes'])}",
            row["address"],
            between(row["started_at"], None, now),
            row["last_abdication"],
        )
        for row in answer["participants"]
    ]
    columns = ("queue", "scheduler", "role", "epoch", "artifacts", "address", "up for", "last abdication")
    out.table(columns, rows, empty="no scheduler is registered")


@cluster.command()
@remote
def leader(api: Api, out: Output) -> int:
    """Say who leads. Exit code 6 while nobody does."""
    found = api.leader()
    if out.as_json:
        out.data({"leader": found})
    elif found is not None:
        since = between(found["leader_since"], None, datetime.now(UTC))
        out.line(f"{found['id']} leads epoch {found['epoch']}" + (f" for {since}" if since else ""))
        out.note(found["address"])
    if found is None:
        out.note("nobody leads at the moment: `nimbus cluster participants` says what each lacks.")
        return Exit.UNREACHABLE
    return Exit.OK


@cluster.command()
@remote
def status(api: Api, out: Output) -> None:
    """Show the cluster at a glance."""
    answer = api.get("/status")
    if out.as_json:
        out.data(answer)
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
        *((f"set aside: {_aside_name(one)}", one["why"]) for one in answer.get("set_aside", ())),
        *_schema(answer),
        ("answered by", f"{answer['answered_by']}, version {answer['version']}"),
    ]
    out.table(("what", "is"), rows)


@cluster.command()
@remote
def workers(api: Api, out: Output) -> None:
    """List workers, how busy they are, and how many attempts in a row they did not start."""
    answer = api.get("/workers")
    if out.as_json:
        out.data(answer)
        return
    rows = [
        (
            row["id"],
            row["hostname"],
            f"{row['busy']}/{row['slots']}",
            _closed(row),
            f"{row['load_average']:.1f}",
            size(row["memory_available_bytes"]),
            ", ".join(row.get("labels", [])),
            ", ".join(f"{name} ({slots})" for name, slots in sorted(row.get("targets", {}).items())),
            row.get("executor", ""),
            row.get("warm_drivers", ""),
            row.get("class_archive", ""),
            row["version"],
        )
        for row in answer["workers"]
    ]
    columns = (
        "worker", "host", "slots", "", "load", "memory free",
        "labels", "targets (slots)", "executor", "warm drivers", "class archive", "version",
    )  # fmt: skip
    out.table(columns, rows, empty="no worker is registered: start one with `nimbus worker --config FILE`")


def _closed(row: dict[str, Any]) -> str:
    """Why a worker is given nothing, or less than others."""
    if row.get("cordoned"):
        return f"cordoned: {row['cordoned']}"
    if row["draining"]:
        return "draining"
    if row.get("lacks"):
        return f"has {row['lacks']}"
    return f"{row['refusals']} not started" if row["refusals"] else ""


@cluster.command(epilog=examples('nimbus cluster abdicate --reason "update of this machine"'))
@click.option("--reason", required=True, help="Kept in the log and in the leader's registration.")
@remote
def abdicate(api: Api, out: Output, reason: str) -> int:
    """Ask the leader to hand over; the next ready scheduler takes office."""
    # Asked twice, the successor would be sent away as well.
    return report_command(out, api.command("POST", "/cluster/abdicate", {"reason": reason}, repeatable=False))


def _aside_name(one: dict[str, Any]) -> str:
    what = f"task {one['task']} of run" if one["kind"] == "children" else one["kind"]
    return f"{what} {one['id']}"


def _schema(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The cluster's schema, and what to do about it. A scheduler of the release before tells none."""
    if "cluster_schema" not in answer:
        return
    stands, newest, older = answer["cluster_schema"], answer["newest_schema"], ", ".join(answer["older"])
    if stands is None:
        words = "none before the first leader"
    elif stands > newest:
        words = f"{stands}; the scheduler that answers knows {newest} and cannot lead: upgrade it"
    elif stands == newest:
        words = f"{stands}; too old for it, upgrade: {older}" if older else str(stands)
    elif older:
        words = f"{stands}; to raise it to {newest}, upgrade: {older}"
    else:
        words = f"{stands}; the leader raises it to {newest} after leadership.raise_schema_after"
    yield "schema", words


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
