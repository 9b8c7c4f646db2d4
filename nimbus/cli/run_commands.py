"""`nimbus run pause` and `resume`: commands for a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.cli.client import Api


@click.command(epilog=examples("nimbus run pause flights-20260301t060000z-1a2b3c"))
@click.argument("run_id")
@remote
def pause(api: Api, out: Output, run_id: str) -> int:
    """Start no new tasks of a run until `nimbus run resume`. Safe to repeat.

    Running tasks continue, and so does the run's deadline. A queued run keeps its place, and does not start.
    A paused run that has started counts for `concurrency.limit`.
    """
    return report_command(out, api.command("POST", f"/runs/{quote(run_id, safe='')}/pause"))


@click.command()
@click.argument("run_id")
@remote
def resume(api: Api, out: Output, run_id: str) -> int:
    """Resume a paused run. Safe to repeat."""
    return report_command(out, api.command("POST", f"/runs/{quote(run_id, safe='')}/resume"))
