"""`nimbus run logs` and `events`: the log of a task, also while it grows, and Spark's event log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
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


_UNENDED = ".inprogress"
"""Spark's history server reads this suffix as: the application did not finish its log."""


@click.command(
    epilog=examples("nimbus run events flights-20260301t060000z-1a2b3c clean --to /var/spark-events")
)
@click.argument("run_id")
@click.argument("task")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Default: the last one.")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Folder for the file; it may be one that a history server reads.",
)
@remote
def events(api: Client, out: Output, run_id: str, task: str, attempt: int | None, folder: Path) -> None:
    """Store Spark's event log of a task in a file that Spark's history server reads; print its path."""
    offset = 0
    for piece in api.log(run_id, task, attempt=attempt, kind="events"):
        attempt = piece.attempt
        place = folder / f"{run_id}.{task}.{attempt}.zstd{_UNENDED}"
        if piece.data:
            with place.open("ab" if offset else "wb") as file:
                file.write(piece.data)
            offset = piece.end
    if not offset:
        raise CliError(
            f"attempt {attempt} of task {task} has no event log. It is stored when an attempt with "
            "`spark: {event_log: true}` has ended.",
            code="no_event_log",
            exit_code=Exit.NOT_FOUND,
        )
    if _is_whole(place):
        place = place.rename(folder / place.name.removesuffix(_UNENDED))
    if not out.told({"file": str(place), "size_bytes": offset}):
        out.line(str(place))


def _is_whole(place: Path) -> bool:
    """Spark has ended the compressed stream."""
    import zstandard

    unfolding = zstandard.ZstdDecompressor().decompressobj()
    with place.open("rb") as file:
        while piece := file.read(64 << 10):
            try:
                unfolding.decompress(piece)
            except zstandard.ZstdError:  # bytes after the end of the stream, or no stream at all
                return False
    return bool(unfolding.eof)
