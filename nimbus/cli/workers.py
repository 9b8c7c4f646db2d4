"""`nimbus worker`: the daemon, and commands that stop or allow new tasks on a worker."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import config_option, examples, remote, report_command
from nimbus.cli.output import Output
from nimbus.cli.words import span

if TYPE_CHECKING:
    from nimbus.client import Client


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=examples(
        "nimbus worker --config configs/ha.yaml", 'nimbus worker drain w1 --reason "new disk" --timeout 3600'
    ),
)
@config_option
@click.pass_context
def worker(ctx: click.Context, config: Path | None) -> int | None:
    """With --config, run a worker until SIGTERM or Ctrl-C. Attempts that it has started continue.

    Exit codes as of `nimbus scheduler`. With a command, stop or allow new tasks on a worker.
    """
    if ctx.invoked_subcommand is not None:
        return None
    if config is None:
        ctx.fail("Missing option '--config', or a command.")
    from nimbus.config import load_settings

    settings = load_settings(config, os.environ)
    from nimbus.bootstrap import run_worker
    from nimbus.cli.daemons import run_daemon

    return run_daemon(run_worker, settings)


_reason = click.option("--reason", required=True, help="Shown with the worker.")


@worker.command()
@click.argument("worker_id")
@_reason
@remote
def cordon(api: Client, out: Output, worker_id: str, reason: str) -> int:
    """Give no new tasks to a worker until it is uncordoned. Its open attempts continue."""
    return report_command(out, api.cordon(worker_id, reason=reason))


@worker.command()
@click.argument("worker_id")
@_reason
@click.option("--timeout", type=click.FloatRange(min=0), default=3600.0, show_default=True, metavar="SECONDS")
@remote
def drain(api: Client, out: Output, worker_id: str, reason: str, timeout: float) -> int:
    """Cordon a worker, and wait until it has no open attempt. Exit code 5 if that takes longer.

    Tasks that are kept running are stopped there, and start on another worker.
    """
    answer = api.cordon(worker_id, reason=reason, drain=True)
    if (code := report_command(out, answer, quiet=True)) is not Exit.OK:
        return code
    api.await_drained(worker_id, timeout_s=timeout)
    if not out.told({"worker": worker_id, "busy": 0}):
        out.line(f"worker {worker_id} has no open attempt, and gets no new tasks")
    return Exit.OK


@worker.command(epilog=examples("nimbus worker wanted -o json"))
@remote
def wanted(api: Client, out: Output) -> int:
    """List the slots that ready tasks lack, by label and target, and for how long. For autoscalers."""
    found = api.wanted()
    if out.as_json:
        out.data({"wanted": None if found is None else [asdict(one) for one in found]})
    elif found is not None:
        rows = [(", ".join(one.labels), one.target, one.slots, span(one.waited_s)) for one in found]
        out.table(("labels", "target", "slots", "waited"), rows, empty="no ready task lacks a worker")
    if found is None:
        out.note("there is no leader: what is wanted is not known.")
    return Exit.UNREACHABLE if found is None else Exit.OK


@worker.command()
@click.argument("worker_id")
@remote
def uncordon(api: Client, out: Output, worker_id: str) -> int:
    """Allow new tasks on a worker again."""
    return report_command(out, api.uncordon(worker_id))
