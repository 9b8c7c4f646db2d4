"""`nimbus pipeline`: the catalog of pipelines and their releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import confirm, dry_run_option, examples, remote, report_command
from nimbus.cli.output import Columns, Output, clock, output_option, short
from nimbus.domain.wording import counted, format_size

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(
    cls=LazyGroup,
    lazy={
        "validate": Lazy("nimbus.cli.pipeline.pipelines:validate", "Check a pipeline's folder, offline."),
        "schema": Lazy(
            "nimbus.cli.pipeline.pipelines:schema", "Print the JSON Schema of pipeline.yaml, for editors."
        ),
        "plan": Lazy("nimbus.cli.pipeline.releases:plan", "Show what publishing a folder would change."),
        "publish": Lazy(
            "nimbus.cli.pipeline.publish:publish", "Upload a folder as a release into the catalog."
        ),
        "activate": Lazy(
            "nimbus.cli.pipeline.pipelines:activate", "Choose the release for new runs; enable the schedule."
        ),
        "pause": Lazy("nimbus.cli.pipeline.pipelines:pause", "Stop the schedule; active runs continue."),
        "rewind": Lazy(
            "nimbus.cli.pipeline.pipelines:rewind", "Set a schedule that is ahead of the clock back to now."
        ),
        "list": Lazy("nimbus.cli.pipeline.pipelines:list_", "List pipelines."),
        "show": Lazy(
            "nimbus.cli.pipeline.pipelines:show", "Show one pipeline: state, releases, tasks, parameters."
        ),
        "releases": Lazy("nimbus.cli.pipeline.releases:releases", "List releases of a pipeline."),
        "diff": Lazy("nimbus.cli.pipeline.releases:diff", "Show how a release differs from the active one."),
        "explain": Lazy("nimbus.cli.run.explain:explain_pipeline", "Show why a pipeline is not running."),
        "intervals": Lazy("nimbus.cli.run.explain:intervals", "Show the state of each date of a pipeline."),
        "own": Lazy("nimbus.cli.pipeline.pipelines:own", "Set the owner of a pipeline."),
        "remove": Lazy("nimbus.cli.pipeline.pipelines:remove", "Remove a pipeline from the catalog."),
    },
)
def pipeline() -> None:
    """Validate, publish, activate and inspect pipelines."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@dry_run_option
@output_option
def validate(folder: Path, dry_run: bool, output: str) -> None:
    """Check the definition in FOLDER, and that every file it names exists. Needs no server."""
    from nimbus.cli.pipeline.sources import dry_run as run_dry
    from nimbus.cli.pipeline.sources import read_sources, warnings

    spec, files = read_sources(folder)
    out = Output(output)
    for warning in warnings(folder, spec, files):
        out.note(warning)
    checked = run_dry(spec, files, out.note) if dry_run else {}
    total = sum(item.file.stat().st_size for item in files)
    if out.as_json:
        names = [item.path for item in files]
        tasks = [task.name for task in spec.tasks]
        said = {"valid": True, "name": spec.name, "tasks": tasks, "files": names, "size_bytes": total}
        out.data({**said, "dry_run": checked})
        return
    counts = f"{counted(len(spec.tasks), 'task')}, {counted(len(files), 'file')}"
    out.line(f"{spec.name}: valid, {counts}, {format_size(total)}")


@click.command(
    epilog=examples(
        "nimbus pipeline schema > pipeline.schema.json",
        "# then, as the first line of pipeline.yaml:",
        "# yaml-language-server: $schema=pipeline.schema.json",
    )
)
def schema() -> None:
    """Print the JSON Schema of pipeline.yaml, which editors use to complete and check keys. Needs no server.

    `nimbus pipeline validate` checks more: names of tasks, templates, files.
    """
    from nimbus.definition.json_schema import definition_schema

    Output("json").data(definition_schema())


@click.command()
@click.argument("name")
@click.option("--digest", metavar="SHA256", help="The release. Default: the newest published.")
@click.option("--reason", default="", help="Kept with the command.")
@click.option("--drop-due", is_flag=True, help="With `start: data`: what changed until now starts nothing.")
@remote
def activate(api: Api, out: Output, name: str, digest: str | None, reason: str, *, drop_due: bool) -> int:
    """Choose the release for new runs, and enable the schedule. Also resumes a paused pipeline."""
    asked = {"digest": digest, "reason": reason, "drop_due": drop_due}
    body = {key: said for key, said in asked.items() if said}
    return report_command(out, api.command("POST", ("pipelines", name, "activate"), body))


@click.command()
@click.argument("name")
@remote
def pause(api: Api, out: Output, name: str) -> int:
    """Stop the schedule. Active runs continue, and runs can be started by hand."""
    return report_command(out, api.command("POST", ("pipelines", name, "pause")))


@click.command()
@click.argument("name")
@click.option("--reason", required=True, help="Kept with the command.")
@remote
def rewind(api: Api, out: Output, name: str, reason: str) -> int:
    """Let the schedule go on from now, after a leader's clock that was ahead has moved it into the future.

    No fire time gets a second run. Correct the clock first.
    """
    return report_command(out, api.command("POST", ("pipelines", name, "rewind"), {"reason": reason}))


@click.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@remote
def remove(api: Api, out: Output, name: str, yes: bool) -> int:
    """Remove a pipeline from the catalog. Its releases and its history stay in storage."""
    if not yes:
        confirm(f"Remove pipeline {name} from the catalog?")
    return report_command(out, api.command("DELETE", ("pipelines", name)))


@click.command(
    epilog=examples("nimbus pipeline own sales data-platform", "nimbus pipeline own sales --nobody")
)
@click.argument("name")
@click.argument("owner", required=False)
@click.option("--nobody", is_flag=True, help="Only admins may publish and remove it from now on.")
@remote
def own(api: Api, out: Output, name: str, owner: str | None, nobody: bool) -> int:
    """Set the owner: a name or a team of tokens, whose authors may publish and remove the pipeline."""
    if nobody == (owner is not None):
        raise click.UsageError("give an OWNER, or --nobody")
    return report_command(out, api.command("PUT", ("pipelines", name, "owner"), {"owner": owner}))


@click.command(name="list")
@click.option("--tag", metavar="TAG", help="Only with this tag.")
@click.option("--owner", metavar="WHO", help="Only of this owner, a name or a team; -: of none.")
@click.option("--state", type=click.Choice(["active", "paused", "inactive"]), help="Only in this state.")
@remote
def list_(api: Api, out: Output, **where: str | None) -> None:
    """List pipelines."""
    columns: Columns = {
        "pipeline": "name",
        "state": lambda row: "quarantined" if row["quarantined"] else row["state"],
        "release": lambda row: short(row["release"]),
        "published since": lambda row: "" if row["published"] == row["release"] else short(row["published"]),
        "tasks": "tasks",
        "schedule": _schedules,
        "": lambda row: row["quarantined"] or row["description"],
    }
    nothing = "publish one with `nimbus pipeline publish DIR --activate`"
    nothing = "no pipelines: " + ("none passes the filter" if any(where.values()) else nothing)
    out.listed(api.get("/pipelines", **where), "pipelines", columns, empty=nothing)


@click.command()
@click.argument("name")
@remote
def show(api: Api, out: Output, name: str) -> None:
    """Show one pipeline: state, releases, tasks, parameters."""
    answer = api.get(("pipelines", name))
    if out.printed_json(answer):
        return
    spec = answer["spec"]
    rows = [
        ("state", answer["state"]),
        ("quarantined", answer["quarantined"]),
        ("owner", answer.get("owner")),
        ("description", answer["description"]),
        ("tags", ", ".join(answer.get("tags", ()))),
        ("runbook", answer.get("runbook")),
        ("active release", answer["release"] or "none"),
        ("newest release", answer["published"]),
        ("schedule", _schedules(answer) or "none"),
        ("skipped fires", answer.get("skipped_fires_total")),
        ("failure strategy", spec and spec["failure_strategy"]),
        ("changed", clock(answer["updated_at"])),
    ]
    out.table((name, ""), [row for row in rows if row[1]])
    if fires := answer["skipped_fires"]:
        out.line("")
        skipped = [
            (clock(s["first"]), clock(s["last"]), s["count"], s["schedule"], s["reason"]) for s in fires
        ]
        out.table(("skipped from", "to", "fires", "schedule", "because"), skipped)
    if spec is None:
        out.line("\nits tasks are unknown: the scheduler that answered does not have the release yet")
        return
    if spec["parameters"]:
        out.line("")
        columns = ("parameter", "type", "default", "description")
        parameters = spec["parameters"].items()
        out.table(columns, [(key, p["type"], _default(p), p["description"]) for key, p in parameters])
    out.line("")
    tasks = [
        (t["name"], t["kind"], t["script"], ", ".join(t["needs"]), t["retries"]["limit"])
        for t in spec["tasks"]
    ]
    out.table(("task", "kind", "script", "needs", "retries"), tasks)


def _schedules(row: dict[str, Any]) -> str:
    from nimbus.cli.pipeline.releases import schedules_in

    schedules = schedules_in(row)
    return "; ".join(
        f"{schedule.name}: {schedule.in_words}" if schedule.name else schedule.in_words
        for schedule in schedules
    )


def _default(parameter: dict[str, Any]) -> Any:
    return "required" if parameter["required"] else parameter["default"]
