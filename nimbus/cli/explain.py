"""`nimbus run explain` and `nimbus pipeline explain`: why something is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.command(
    epilog=examples(
        "nimbus run explain flights-20260301t060000z-1a2b3c",
        "nimbus run explain flights-20260301t060000z-1a2b3c load -o json",
    )
)
@click.argument("run_id")
@click.argument("task", required=False)
@remote
def explain_run(api: Api, out: Output, run_id: str, task: str | None) -> None:
    """Show why a run, or one of its tasks, is not running: what it waits for, and what would end the wait.

    `next change` is the earliest time at which something changes by itself.
    """
    _show(out, api.get(("runs", run_id, "explanation"), task=task))


@click.command(epilog=examples("nimbus pipeline explain flights"))
@click.argument("name")
@remote
def explain_pipeline(api: Api, out: Output, name: str) -> None:
    """Show why a pipeline is not running: its state, schedule, limits, live runs, backfills and commands.

    `next change` is the earliest time at which something changes by itself, such as the next fire.
    """
    _show(out, api.get(("pipelines", name, "explanation")))


def _show(out: Output, answer: dict[str, Any]) -> None:
    if out.told(answer):
        return
    out.line(f"{answer['id']}: {answer['state']}")
    for reason in answer["reasons"]:
        out.line(f"  {reason['about']}: {reason['why']}")
    if answer["more"]:
        out.line(f"  and {answer['more']} more")
    if answer["next_change"]:
        out.line(f"next change: {clock(answer['next_change'])}")
