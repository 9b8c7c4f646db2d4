"""`nimbus run pause` and `resume`: commands about a run that is live."""

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
    """Let a run begin nothing new, until `nimbus run resume`. Safe to repeat.

    What runs goes on, and the run's deadline counts. A queued run keeps its place, and does not start.
    One that has started counts for `concurrency.limit`.
    """
    return report_command(out, api.command("POST", f"/runs/{quote(run_id, safe='')}/pause"))


@click.command()
@click.argument("run_id")
@remote
def resume(api: Api, out: Output, run_id: str) -> int:
    """Let a paused run go on. Safe to repeat."""
    return report_command(out, api.command("POST", f"/runs/{quote(run_id, safe='')}/resume"))
