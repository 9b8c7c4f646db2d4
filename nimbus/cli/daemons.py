"""`nimbus scheduler`: the daemon, from a configuration file."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import Exit, of_error
from nimbus.cli.options import examples
from nimbus.domain.wording import harmless

if TYPE_CHECKING:
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
        structlog.get_logger(__name__).error("daemon_failed", error=harmless(str(exc)), exc_info=code is None)
        return code or Exit.INTERNAL


_config = click.option(
    "--config",
    "config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="See configs/nimbus.example.yaml. NIMBUS__SECTION__KEY in the environment overrides it.",
)


@click.command(epilog=examples("nimbus scheduler --config configs/ha.yaml"))
@_config
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
