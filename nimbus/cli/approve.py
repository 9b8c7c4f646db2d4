"""`nimbus run approve`: approve or reject a task of type `approval`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.cli.client import Api


@click.command(
    epilog=examples(
        'nimbus run approve sales-20260301 release --reason "figures checked"',
        'nimbus run approve sales-20260301 release --reject --reason "rows are missing"',
    )
)
@click.argument("run_id")
@click.argument("task")
@click.option("--reject", is_flag=True, help="Reject instead: the task fails.")
@click.option("--reason", required=True, help="Shown with the task.")
@remote
def approve(api: Api, out: Output, run_id: str, task: str, reject: bool, reason: str) -> int:
    """Approve a waiting task of type approval. Records your local user name. Safe to repeat."""
    body = {"approved": not reject, "reason": reason}
    path = f"/runs/{quote(run_id, safe='')}/tasks/{quote(task, safe='')}/approval"
    return report_command(out, api.command("POST", path, body))
