"""The entry point: `nimbus`, or `python -m nimbus.cli.main`. Errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from nimbus.cli.exits import Exit, of_error
from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.domain.harmless import harmless

_COMMANDS = {
    "up": Lazy("nimbus.cli.up:up", "Start a whole cluster on this machine, to try it out."),
    "pipeline": Lazy("nimbus.cli.pipelines:pipeline", "Validate, publish and steer pipelines."),
    "run": Lazy("nimbus.cli.runs:run", "Start, watch and stop runs; read their logs."),
    "task": Lazy("nimbus.cli.tasks:task", "Decide about tasks of live runs."),
    "backfill": Lazy("nimbus.cli.backfills:backfill", "Run a pipeline for the dates of a range."),
    "command": Lazy("nimbus.cli.commands:command", "See what was asked of the leader, and refusals."),
    "var": Lazy("nimbus.cli.variables:var", "Variables of the cluster, which templates take."),
    "pool": Lazy("nimbus.cli.pools:pool", "Limit what tasks of all pipelines take together."),
    "simulate": Lazy("nimbus.cli.simulate:simulate", "Foresee fires, waits and ends of schedules."),
    "alert": Lazy("nimbus.cli.alerts:alert", "See what people were told; test where it goes."),
    "artifacts": Lazy("nimbus.cli.artifacts:artifacts", "See what lies in storage that nobody needs."),
    "login": Lazy("nimbus.cli.login:login", "Keep a token for a scheduler on this machine."),
    "token": Lazy("nimbus.cli.tokens:token", "Say who may do what: make, list and revoke tokens."),
    "cluster": Lazy("nimbus.cli.cluster:cluster", "See schedulers and workers; hand over, move, remove."),
    "scheduler": Lazy("nimbus.cli.daemons:scheduler", "Run a scheduler (a daemon)."),
    "worker": Lazy("nimbus.cli.workers:worker", "Run a worker (a daemon); cordon and drain workers."),
    "config": Lazy("nimbus.cli.config:config", "See the configuration, and where each value comes from."),
    "doctor": Lazy("nimbus.cli.doctor:doctor", "Look for what would keep Nimbus from working here."),
    "version": Lazy("nimbus.cli.version:version", "Print the version."),
}

_EPILOG = """\b
Examples:
  nimbus up --schedulers 3              a cluster on this machine
  nimbus pipeline publish DIR --activate
  nimbus run start NAME --param k=v --watch
  nimbus cluster participants

Which server is asked: --server, else NIMBUS_SERVER, else the cluster of `nimbus up` in this folder.
Exit codes: 0 ok, 1 run failed, 2 usage, 3 not found, 4 refused, 5 watch timeout, 6 unreachable or no
leader, 7 access denied, 70 internal error, 130 interrupted."""


class RootGroup(LazyGroup):
    """The root: what a command raises becomes one line on standard error and an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> NoReturn:
        """Run a command line and exit. Never returns."""
        arguments = list(sys.argv[1:] if args is None else args)
        named["standalone_mode"] = False
        debug = "--debug" in arguments or os.environ.get("NIMBUS_DEBUG", "") not in ("", "0")
        try:
            # Out of standalone mode Click returns what a command returned, or what it exited with.
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
        except Exception as exc:  # noqa: BLE001 - the top of the main thread: everything ends here, with a code
            code = _explain(exc, debug=debug)
        sys.exit(code if isinstance(code, int) else Exit.OK)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Click itself would call a reader that left a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _reader_left()


def _reader_left() -> Exit:
    """The reader of our output (`| head`) has closed it. Python must not fail on it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK


def _explain(exc: Exception, *, debug: bool) -> Exit:
    code = of_error(exc)
    if debug:
        import traceback

        traceback.print_exception(exc)
    if code is not None:
        click.echo(f"error: {harmless(str(exc))}", err=True)
        return code
    click.echo(f"internal error: {type(exc).__name__}: {harmless(str(exc))}", err=True)
    if not debug:
        click.echo("This is a defect. Repeat the command with --debug to see where it happened.", err=True)
    return Exit.INTERNAL


@click.group(
    cls=RootGroup,
    lazy=_COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--debug", is_flag=True, help="Show where an error happened. Also: NIMBUS_DEBUG=1.")
def cli(debug: bool) -> None:
    """Redundant schedulers for PySpark pipelines, with guarded leadership."""
    del debug  # read by RootGroup before Click parses, so that it covers that, too


def main() -> NoReturn:
    """Run the command line of this process."""
    cli.main(prog_name="nimbus")


if __name__ == "__main__":
    main()
