"""`nimbus up`: a whole cluster on this machine, in the foreground."""

from __future__ import annotations

import signal
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from nimbus.cli.exits import Exit
from nimbus.cli.options import examples
from nimbus.cli.output import Output
from nimbus.client.servers import CLIENT_FILE, STACK_FOLDER, VARIABLE, write_client_file

if TYPE_CHECKING:
    from nimbus.localstack.stack import LocalStack

_POLL_S = 1.0


@click.command(
    epilog=examples(
        "nimbus up",
        "nimbus up --single",
        "nimbus up --data s3 --spark standalone",
        "nimbus up --schedulers 5 --dir /tmp/cluster",
    )
)
@click.option("--schedulers", type=click.IntRange(1, 9), default=3, show_default=True, help="How many.")
@click.option("--single", is_flag=True, help="One scheduler, without ZooKeeper: its state is in SQLite.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=STACK_FOLDER,
    show_default=True,
    help="Folder for all data, which stay between starts.",
)
@click.option(
    "--spark",
    type=click.Choice(["standalone"]),
    help="Also start a Spark cluster with two masters and two workers: the target `standalone`.",
)
@click.option(
    "--data",
    type=click.Choice(["folder", "s3"]),
    default="folder",
    show_default=True,
    help="Where outputs of tasks are stored. Do not change it while a run is live.",
)
@click.option("--open", "opens", is_flag=True, help="Open the pages in a browser.")
@click.pass_context
def up(
    context: click.Context,
    schedulers: int,
    single: bool,
    folder: Path,
    spark: str | None,
    data: str,
    opens: bool,
) -> int:
    """Start ZooKeeper, an S3 server and schedulers with workers on this machine, to try Nimbus out.

    Runs until Ctrl-C; data stay. Needs Java 17 or newer (check with `nimbus doctor`); with
    --single only tasks that use Spark need it. All ports are on loopback.
    """
    from nimbus.config.values import spark_folder
    from nimbus.localstack.daemons import StackTuning
    from nimbus.localstack.errors import StackLockedError
    from nimbus.localstack.stack import LocalStack

    if single and (spark or context.get_parameter_source("schedulers") is ParameterSource.COMMANDLINE):
        raise click.UsageError("--single starts one scheduler and no Spark cluster: leave that option out.")
    try:
        spark_folder(folder.absolute())
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--dir") from exc
    out = Output()
    folder.mkdir(parents=True, exist_ok=True)
    with terminated_like_interrupted():
        tuning = StackTuning(data_in_s3=data == "s3")
        stack = LocalStack(
            folder,
            1 if single else schedulers,
            single=single,
            standalone=spark is not None,
            tuning=tuning,
            report=out.note,
        )
        is_ours = True
        try:
            stack.start()
            stack.wait_ready()
            if opens:
                webbrowser.open(stack.addresses.schedulers[0])
            _serve(out, folder, stack)
        except StackLockedError:
            is_ours = False  # the stack of another process continues, with its client file
            raise
        finally:
            if is_ours:
                _stop(out, folder, stack)
    return Exit.OK


def _serve(out: Output, folder: Path, stack: LocalStack) -> None:
    """Publish the cluster's addresses, then wait until a signal ends this command."""
    try:
        write_client_file(folder, servers=stack.addresses.schedulers, config=stack.config_file(1))
        _welcome(out, folder, stack)
        _watch_over(out, stack)
    except KeyboardInterrupt:
        out.note("stopping")


def _welcome(out: Output, folder: Path, stack: LocalStack) -> None:
    addresses = stack.addresses
    rows = [
        (f"pages and API of scheduler-{at}", f"{url}/")
        for at, url in enumerate(addresses.schedulers, start=1)
    ]
    rows += [
        *([("ZooKeeper", addresses.zookeeper)] if addresses.zookeeper else []),
        ("S3", addresses.s3),
        *([("Spark", addresses.spark)] if addresses.spark else []),
        *(("page of a Spark master", page) for page in addresses.spark_pages),
        ("data and logs", str(folder.absolute())),
    ]
    out.line("")
    out.table(("part", "where"), rows)
    out.line("\nTry, in another terminal" + (" and this folder:" if folder == STACK_FOLDER else ":"))
    if folder != STACK_FOLDER:
        out.line(f"  export {VARIABLE}={','.join(addresses.schedulers)}")
    config = "" if folder == STACK_FOLDER else f" --config {stack.config_file(1)}"
    out.line("  nimbus cluster participants")
    out.line("  nimbus init hello --minimal")
    out.line(f"  nimbus pipeline publish hello --activate{config}")
    out.line("  nimbus run start hello --watch")
    if addresses.spark:
        out.line("\nA task with `spark: {target: standalone}` runs its Spark on the cluster.")
    out.line("\nCtrl-C stops everything; data are kept.")


def _watch_over(out: Output, stack: LocalStack) -> NoReturn:
    """Wait for an interrupt; report once when a scheduler or a part of Spark has ended."""
    ended: set[str] = set()
    pause = threading.Event()
    parts = [*stack.schedulers, *(stack.spark.daemons if stack.addresses.spark else ())]
    while True:
        for part in parts:
            if not part.running and part.name not in ended:
                ended.add(part.name)
                out.note(f"{part.name} has ended; its log is {part.log}. The others continue.")
        pause.wait(_POLL_S)


def _stop(out: Output, folder: Path, stack: LocalStack) -> None:
    with not_interrupted():
        (folder / CLIENT_FILE).unlink(missing_ok=True)
        stack.stop()
        out.note("stopped")


@contextmanager
def not_interrupted() -> Iterator[None]:
    """Ignore signals while a stack stops, which has a time limit: a second Ctrl-C would leave attempts."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that there is only one way to stop."""

    def unwind(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
