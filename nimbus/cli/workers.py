"""`nimbus scheduler` and `nimbus worker`: the daemons; commands that stop or allow new tasks on a worker."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import Exit, of_error
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import config_option, examples, remote, report_command
from nimbus.cli.output import Output, span
from nimbus.domain.wording import escape_controls

if TYPE_CHECKING:
    from nimbus.client import Client
    from nimbus.config import Settings


def run_daemon(run: Callable[[Settings], int], settings: Settings) -> int:
    """Run a daemon. With `log.format: json`, the error that ends it is a line of JSON, as all others."""
    try:
        return run(settings)
    except Exception as exc:
        if settings.log.format != "json":
            raise
        import structlog

        code = of_error(exc)
        structlog.get_logger(__name__).error(
            "daemon_failed", error=escape_controls(str(exc)), exc_info=code is None
        )
        return code or Exit.INTERNAL


@click.command(epilog=examples("nimbus scheduler --config configs/ha.yaml"))
@click.option(
    "--config",
    "config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="See configs/nimbus.example.yaml. NIMBUS__SECTION__KEY in the environment overrides it.",
)
def scheduler(config: Path) -> int:
    """Run a scheduler until SIGTERM or Ctrl-C; then it drains, hands leadership over, and exits.

    Exit codes: 0 after a signal; 2 configuration; 4 port in use; 6 ZooKeeper unreachable; 7 credentials
    refused; 70 forced to end, or a defect.
    """
    from nimbus.config import load_settings

    settings = load_settings(config, os.environ)  # before the other imports: errors appear at once
    gc.disable()  # garbage collection takes a tenth of the start; `run_scheduler` enables it later
    try:
        from nimbus.bootstrap import run_scheduler

        return run_daemon(run_scheduler, settings)
    finally:
        gc.enable()


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
    if not out.printed_json({"worker": worker_id, "busy": 0}):
        out.line(f"worker {worker_id} has no open attempt, and gets no new tasks")
    return Exit.OK


@worker.command(epilog=examples("nimbus worker wanted -o json"))
@remote
def wanted(api: Client, out: Output) -> int:
    """List the slots that ready tasks lack, by label and target, and for how long. For autoscalers."""
    answer = api.wanted()
    if out.as_json:
        out.data({"wanted": None if answer is None else [asdict(need) for need in answer]})
    elif answer is not None:
        rows = [(", ".join(need.labels), need.target, need.slots, span(need.waited_s)) for need in answer]
        out.table(("labels", "target", "slots", "waited"), rows, empty="no ready task lacks a worker")
    if answer is None:
        out.note("there is no leader: what is wanted is not known.")
    return Exit.UNREACHABLE if answer is None else Exit.OK


@worker.command()
@click.argument("worker_id")
@remote
def uncordon(api: Client, out: Output, worker_id: str) -> int:
    """Allow new tasks on a worker again."""
    return report_command(out, api.uncordon(worker_id))
