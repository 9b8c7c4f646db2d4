"""`nimbus scheduler`: the daemon, from a configuration file."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import click

from nimbus.cli.options import examples

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

        return run_scheduler(settings)
    finally:
        gc.enable()
