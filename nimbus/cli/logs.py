"""`nimbus run logs`: the log of a task, from any scheduler, while it grows and afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.client import Client


@click.command(epilog=examples("nimbus run logs flights-20260301t060000z-1a2b3c ingest_flights -f"))
@click.argument("run_id")
@click.argument("task")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Default: the last one.")
@click.option(
    "-f", "--follow", is_flag=True, help="Keep printing while it grows, through retries, to the task's end."
)
@remote
def logs(api: Client, out: Output, run_id: str, task: str, attempt: int | None, follow: bool) -> int:
    """Print the log of a task, unchanged."""
    code, shown = Exit.OK, 0
    for piece in api.log(run_id, task, attempt=attempt, follow=follow):
        if follow and piece.attempt != shown:
            out.note(f"--- {task}, attempt {piece.attempt}")
            shown = piece.attempt
        sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()
        if follow and not piece.data and piece.state != "open":
            out.note(f"--- {task}, attempt {piece.attempt}: {piece.state}")
        code = Exit.UNREACHABLE if piece.unstored else Exit.OK  # of the last attempt
        if piece.unstored:
            out.note(f"the end of this log may be missing: {piece.unstored}")
    return code
