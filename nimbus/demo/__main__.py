"""`nimbus demo`: start a local stack, run the demonstration, stop everything, print the result."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.init import shipped
from nimbus.cli.options import examples
from nimbus.cli.up import not_interrupted, terminated_like_interrupted
from nimbus.client.api import Api
from nimbus.demo.story import DemoFailedError, Stage, chapter, perform, say
from nimbus.domain.errors import NimbusError
from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.folder import FolderLock, tagged_processes
from nimbus.localstack.stack import LocalStack


@click.command(epilog=examples("nimbus demo", "nimbus demo --keep"))
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".nimbus/demo"),
    show_default=True,
    help="Working folder. It is emptied at the start; the result stays.",
)
@click.option(
    "--pipeline",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder of the pipeline to run, which has a task `report` [default: the shipped example shop].",
)
@click.option("--keep", is_flag=True, help="Keep the cluster and its pages running until Ctrl-C.")
def demo(folder: Path, pipeline: Path | None, keep: bool) -> None:
    """Start three schedulers, run a pipeline, kill the leader, and check that nothing is lost.

    Needs Java 17 or newer and rclone, which the extra `try` has. Stops all that it started. Exit code 0: all
    checks passed.
    """
    began = time.monotonic()
    pipeline = pipeline or shipped("examples") / "shop"
    try:
        with terminated_like_interrupted():
            code = _demo(folder, pipeline, keep=keep)
    except KeyboardInterrupt:
        say("interrupted; everything was stopped")
        code = Exit.INTERRUPTED
    say(f"\n{'done' if code == Exit.OK else 'failed'} after {time.monotonic() - began:.0f} s")
    sys.exit(code)


def _demo(folder: Path, pipeline: Path, *, keep: bool) -> int:
    try:
        _empty(folder)
        chapter("A local stack: a real ZooKeeper, a real S3 server, three schedulers with workers")
        stack = LocalStack(
            folder,
            3,
            tuning=StackTuning(slots=1, session_timeout=timedelta(seconds=4)),
            report=say,
        )
        try:
            stack.start()
            stack.wait_ready()
            with Api(stack.addresses.schedulers) as api:
                page = perform(Stage(stack, api), pipeline, pipeline.name)
            if keep:
                _serve(page)
            else:
                say(f"\nits page was {page}; `nimbus demo --keep` lets the cluster serve it until Ctrl-C")
        finally:
            with not_interrupted():
                stack.stop()
        _check_nothing_left(folder)
    except (DemoFailedError, NimbusError, CliError) as exc:
        click.echo(f"error: {exc}", err=True)
        if any(folder.rglob("*.log")):
            click.echo(f"logs are below {folder}", err=True)
        return Exit.RUN_FAILED
    return Exit.OK


def _serve(page: str) -> None:
    """Keep the cluster running until Ctrl-C, which is then a success."""
    chapter("The cluster goes on until Ctrl-C")
    say(f"the run:     {page}")
    say(f"the cluster: {page.partition('/ui/')[0]}/ui/")
    with suppress(KeyboardInterrupt):
        while True:
            signal.pause()


def _check_nothing_left(folder: Path) -> None:
    if left := tagged_processes(folder):
        raise DemoFailedError(f"processes were left behind: {', '.join(map(str, left))}")
    say("stopped; no process was left behind")


def _empty(folder: Path) -> None:
    """Remove the files of an earlier demonstration, unless one runs there now."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    lock.acquire()
    lock.release()
    shutil.rmtree(folder)
    folder.mkdir()


if __name__ == "__main__":
    demo()
