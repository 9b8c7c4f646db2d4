"""The entry point: `nimbus`, or `python -m nimbus.cli.main`. Errors become messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from nimbus.cli.exits import Exit, of_error
from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.domain.wording import escape_controls
from nimbus.telemetry.build import release

_COMMANDS = {
    "demo": Lazy("nimbus.demo.__main__:demo", "See a leader killed in the middle of a run."),
    "up": Lazy("nimbus.cli.up:up", "Start a whole cluster on this machine, to try it out."),
    "init": Lazy("nimbus.cli.init:init", "Make a folder with a first pipeline."),
    "pipeline": Lazy(
        "nimbus.cli.pipeline.pipelines:pipeline", "Validate, publish, activate and inspect pipelines."
    ),
    "run": Lazy("nimbus.cli.run.runs:run", "Start, watch and stop runs; read their logs."),
    "task": Lazy("nimbus.cli.run.commands:task", "Mark tasks of live runs."),
    "backfill": Lazy("nimbus.cli.backfills:backfill", "Run a pipeline for the dates of a range."),
    "dataset": Lazy("nimbus.cli.datasets:dataset", "See datasets that tasks have published."),
    "command": Lazy("nimbus.cli.commands:command", "List commands to the leader, and refusals."),
    "var": Lazy("nimbus.cli.settings:var", "Set variables of the cluster for templates."),
    "calendar": Lazy("nimbus.cli.settings:calendar", "Set which days are worked, for schedules."),
    "hold": Lazy("nimbus.cli.settings:hold", "Hold starts for maintenance or an incident."),
    "share": Lazy("nimbus.cli.settings:share", "Set what teams get of slots, running runs and pools."),
    "pool": Lazy("nimbus.cli.settings:pool", "Set limits that tasks of all pipelines share."),
    "simulate": Lazy("nimbus.cli.simulate:simulate", "Predict fire times, waits and ends of runs."),
    "select": Lazy("nimbus.cli.commands:select", "Stop, rerun, pause or resume many runs or pipelines."),
    "alert": Lazy("nimbus.cli.alerts:alert", "List alerts; test their targets."),
    "artifacts": Lazy("nimbus.cli.artifacts:artifacts", "Find objects in storage that no release needs."),
    "login": Lazy("nimbus.cli.access:login", "Store a token for a scheduler on this machine."),
    "token": Lazy("nimbus.cli.access:token", "Create, list and revoke tokens and their roles."),
    "access": Lazy("nimbus.cli.access:access", "Give roles on pipelines, datasets, names and teams."),
    "cluster": Lazy(
        "nimbus.cli.cluster.status:cluster", "See schedulers and workers; hand over, move, delete."
    ),
    "scheduler": Lazy("nimbus.cli.workers:scheduler", "Run a scheduler (a daemon)."),
    "worker": Lazy("nimbus.cli.workers:worker", "Run a worker (a daemon); cordon and drain workers."),
    "config": Lazy(
        "nimbus.cli.init:config", "Begin a configuration; show it, with the origin of each value."
    ),
    "doctor": Lazy("nimbus.cli.doctor.command:doctor", "Check that Nimbus can work on this machine."),
    "version": Lazy("nimbus.cli.doctor.command:version", "Print the version."),
}

_EPILOG = """\b
Examples:
  nimbus up --schedulers 3              a cluster on this machine
  nimbus pipeline publish DIR --activate
  nimbus run start NAME --param k=v --watch
  nimbus cluster participants

Address of the cluster: --server, else NIMBUS_SERVER, else the cluster of `nimbus up` in this folder.
Exit codes: 0 ok, 1 run failed, 2 usage, 3 not found, 4 refused, 5 watch timeout, 6 unreachable or no
leader, 7 access denied, 70 internal error, 130 interrupted."""


_OF_THE_HOST = (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EPERM, errno.EROFS)
"""What no code of ours can mend: files without room or permission."""


class RootGroup(LazyGroup):
    """The root group: turns an exception of a command into one line on standard error and an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> NoReturn:
        """Run a command line and exit. Never returns."""
        arguments = list(sys.argv[1:] if args is None else args)
        named["standalone_mode"] = False
        debug = "--debug" in arguments or os.environ.get("NIMBUS_DEBUG", "") not in ("", "0")
        try:
            # Outside standalone mode Click returns the command's return value or its exit code.
            code = super().main(arguments, *rest, **named)
            sys.stdout.flush()
        except click.exceptions.Exit as exc:
            code = exc.exit_code
        except click.Abort:
            click.echo("interrupted", err=True)
            code = Exit.INTERRUPTED
        except click.ClickException as exc:
            exc.show()
            code = Exit.USAGE
        except BrokenPipeError:
            code = _reader_left()
        except Exception as exc:  # noqa: BLE001 - the top of the main thread
            code = _explain(exc, debug=debug)
        sys.exit(code if isinstance(code, int) else Exit.OK)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A closed output pipe is no failure, although Click treats it as one."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _reader_left()


def _reader_left() -> Exit:
    """Handle a closed output pipe (`| head`)."""
    _drop_output()
    return Exit.OK


def _drop_output() -> None:
    """Discard what could not be written to standard output: Python must not fail on it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(exc: Exception, *, debug: bool) -> Exit:
    code = of_error(exc)
    if debug:
        import traceback

        traceback.print_exception(exc)
    if code is not None:
        click.echo(f"error: {escape_controls(str(exc))}", err=True)
        return code
    if isinstance(exc, OSError) and exc.errno in _OF_THE_HOST:
        click.echo(f"error: {exc.filename or 'standard output, or a file'}: {exc.strerror}", err=True)
        if exc.filename is None:
            _drop_output()
        return Exit.INTERNAL
    click.echo(f"internal error: {type(exc).__name__}: {escape_controls(str(exc))}", err=True)
    if not debug:
        click.echo("This is a defect. Repeat the command with --debug to see where it happened.", err=True)
    return Exit.INTERNAL


@click.group(
    cls=RootGroup,
    lazy=_COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(release(), prog_name="nimbus", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show where an error happened. Also: NIMBUS_DEBUG=1.")
def cli(debug: bool) -> None:
    """Redundant schedulers for PySpark pipelines, with guarded leadership."""
    del debug  # RootGroup reads it before Click parses, so that it covers parsing, too


def main() -> NoReturn:
    """Run the command line of this process."""
    cli.main(prog_name="nimbus")


if __name__ == "__main__":
    main()
