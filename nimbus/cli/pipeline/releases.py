"""`nimbus pipeline plan`, `releases` and `diff`: what would change, what was published, how it differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Columns, Output, clock, short
from nimbus.domain.wording import format_size

if TYPE_CHECKING:
    from nimbus.client.api import Api
    from nimbus.domain.pipelines.pipeline import PipelineSpec, Schedule

_FIRES_SHOWN = 5


@click.command(epilog=examples("nimbus pipeline plan flights", "nimbus pipeline plan flights -o json"))
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@remote
def plan(api: Api, out: Output, folder: Path) -> None:
    """Show what publishing and activating FOLDER would change: keys, tasks, next fires; and what would wait.

    Compares with the active release, or with the newest if none is active. Changes and uploads nothing;
    files are not compared. Existing runs keep their release.
    """
    from nimbus.api.models import PipelineSpecModel
    from nimbus.cli.pipeline.sources import read_sources
    from nimbus.definition.difference import changes, in_words

    spec, _ = read_sources(folder)
    current = _current(api, str(spec.name))
    before = current["spec"] if current is not None else None
    then = PipelineSpecModel.model_validate(spec).model_dump(mode="json")
    changed = list(changes(before, then))
    waits = list(_waits(api, spec))
    followed = any(schedule.calendar and schedule.days is None for schedule in spec.schedules)
    known = (
        {calendar["name"]: calendar["days"] for calendar in api.get("/calendars")["calendars"]}
        if followed
        else {}
    )
    fires = _fires(schedules_in(current or {}), _with_days(spec, known).schedules)
    if out.as_json:
        shown = {"pipeline": spec.name, "known": current is not None, "compared": before is not None}
        rows = [{"key": change.key, "now": change.now, "then": change.then} for change in changed]
        out.data({**shown, "changes": rows, "next_fires": fires, "waits": waits})
        return
    if current is None:
        out.note(f"{spec.name} is new: nothing of that name is published.")
    elif before is None:
        out.note("the scheduler that answered does not have the current definition: all is shown as new.")
    out.table(
        ("key", "now", "then"),
        [row for c in changed if (row := (c.key, in_words(c.now), in_words(c.then)))[1] != row[2]],
        empty="no key changes",
    )
    if fires["now"] or fires["then"]:
        out.line("")
        rows_of_fires = [(name, ", ".join(clock(fire) for fire in fires[name])) for name in ("now", "then")]
        out.table(("next fires", ""), rows_of_fires)
    for wait in waits:
        out.note(f"would wait: {wait}")


def _current(api: Api, name: str) -> dict[str, Any] | None:
    from nimbus.client.errors import ProblemError

    try:
        row: dict[str, Any] = api.get(("pipelines", name))
    except ProblemError as exc:
        if exc.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return row


def schedules_in(pipeline: Mapping[str, Any]) -> tuple[Schedule, ...]:
    """The schedules of a pipeline, as the API writes it."""
    from pydantic import TypeAdapter

    from nimbus.domain.pipelines.pipeline import Schedule

    schedules = (pipeline.get("schedule"), *pipeline.get("more_schedules", ()))
    return TypeAdapter(tuple[Schedule, ...]).validate_python(
        [schedule for schedule in schedules if schedule is not None]
    )


def _with_days(spec: PipelineSpec, known: Mapping[str, Any]) -> PipelineSpec:
    """The definition with the days of the cluster's calendars, as the API writes them."""
    from pydantic import TypeAdapter

    from nimbus.domain.pipelines.calendars import Calendar

    days = TypeAdapter(dict[str, Calendar]).validate_python(known)
    return spec.with_days(days.get)


def _fires(now: Iterable[Schedule], then: Iterable[Schedule]) -> dict[str, list[str]]:
    from heapq import merge
    from itertools import islice

    from nimbus.definition.cron import fires_after

    at = datetime.now(UTC)
    return {
        name: [
            fire.isoformat()
            for fire in islice(merge(*(fires_after(schedule, at) for schedule in schedules)), _FIRES_SHOWN)
        ]
        for name, schedules in (("now", now), ("then", then))
    }


def _waits(api: Api, spec: PipelineSpec) -> Iterator[str]:
    """Pools, labels and targets that tasks name and the cluster does not have now."""
    workers, pools = api.get("/workers")["workers"], api.get("/pools")["pools"]
    sizes = {pool["name"]: pool["size"] for pool in pools}
    for task in spec.tasks:
        for pool, takes in task.pools.items():
            if pool not in sizes:
                yield f"task {task.name}: there is no pool {pool}; create it: nimbus pool set {pool} {takes}"
            elif takes > sizes[pool]:
                yield f"task {task.name} takes {takes} of pool {pool}, which has {sizes[pool]}"
        fitting = [worker for worker in workers if set(task.labels) <= set(worker["labels"])]
        if not fitting and task.labels:
            yield f"task {task.name}: no worker has the labels {', '.join(task.labels)}"
        target = None if task.spark_place is None else task.spark_place.target
        if target is not None and not any(target in worker["targets"] for worker in fitting):
            yield f"task {task.name}: no worker that fits has the target {target} in spark.targets"


_DIGEST_LENGTH = 64


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@remote
def releases(api: Api, out: Output, name: str, limit: int) -> None:
    """List releases of a pipeline, last published first."""
    answer = api.listed(("pipelines", name, "releases"), "releases", limit)
    columns: Columns = {
        "release": "digest",
        "it is": _is,
        "published": lambda release: clock(release["published_at"]),
    }
    out.listed(answer, "releases", columns, empty="nothing")
    if not (out.as_json or answer["complete"]):
        out.note("storage did not answer: only releases of the catalog are listed.")


@click.command(
    epilog=examples(
        "nimbus pipeline diff flights",
        "nimbus pipeline diff flights 8f2a41 --against c03b77 --file load.py",
    )
)
@click.argument("name")
@click.argument("release", required=False)
@click.option("--against", metavar="RELEASE", help="The older release. Default: the active one.")
@click.option("--file", metavar="PATH", help="Print how the text of this file changed.")
@remote
def diff(api: Api, out: Output, name: str, release: str | None, against: str | None, file: str | None) -> int:
    """Show how RELEASE of a pipeline (default: the newest) differs from the active one, or from another.

    Files are compared by their digests. Keys of the definition and texts are compared if the scheduler that
    answers has both releases on its disk. A digest or a prefix of it names a release.
    """
    record = api.get(("pipelines", name))
    after = _digest(api, name, release or record["published"])
    before = _digest(api, name, against or record["release"] or record["published"])
    answer = api.get(("pipelines", name, "releases", after, "diff"), against=before, file=file)
    if out.printed_json(answer):
        return Exit.OK
    out.note(f"from {short(before)} to {short(after)}")
    if file is not None:
        return _print_text(out, answer["text"])
    _print_diff(out, answer)
    return Exit.OK


def _print_diff(out: Output, answer: dict[str, Any]) -> None:
    from nimbus.definition.difference import in_words

    files = [
        (file["change"], file["path"], _file(file["before"]), _file(file["after"]))
        for file in answer["files"]
    ]
    out.table(("file is", "path", "before", "after"), files, empty="no file differs")
    if (more := answer["files_changed"] - len(files)) > 0:
        out.note(f"and {more} more files")
    if answer["definition"] is None:
        out.note(f"the definitions are not compared: {answer['definition_why_none']}")
        return
    keys = [
        (change["change"], change["key"], in_words(change["before"]), in_words(change["after"]))
        for change in answer["definition"]
    ]
    out.line("")
    out.table(("key is", "key", "before", "after"), keys, empty="no key of the definition differs")


def _print_text(out: Output, text: dict[str, Any]) -> int:
    if text["diff"] is None:
        out.note(text["why_none"])
        return Exit.REFUSED
    for line in text["diff"]:
        out.line(line)
    return Exit.OK


def _digest(api: Api, name: str, text: str) -> str:
    """Find the full digest of a release by a prefix."""
    if len(text) == _DIGEST_LENGTH:
        return text
    known: list[str] = [
        release["digest"]
        for release in api.listed(("pipelines", name, "releases"), "releases", 10_000)["releases"]
    ]
    digests = [digest for digest in known if digest.startswith(text)]
    if len(digests) != 1:
        what = f"{len(digests)} releases" if digests else "no release"
        raise CliError(
            f"{what} of {name} begin with {text}", code="unknown_release", exit_code=Exit.NOT_FOUND
        )
    return digests[0]


def _is(release: dict[str, Any]) -> str:
    said = {
        "active": release["active"],
        "the newest": release["newest"],
        "used by a backfill": release["pinned"],
    }
    return ", ".join(word for word, holds in said.items() if holds)


def _file(of: dict[str, Any] | None) -> str:
    return "" if of is None else f"{format_size(of['size_bytes'])} {short(of['sha256'])}"
