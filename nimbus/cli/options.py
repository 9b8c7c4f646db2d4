"""Options that many commands share, and the objects made from them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.output import Output, logs_on_stderr, output_option

if TYPE_CHECKING:
    from blobsync.s3.store import S3ObjectStore
    from nimbus.adapters.store.calls import StoreSession
    from nimbus.client import Client
    from nimbus.config import Settings
    from nimbus.config.sections import StorageSection

server_option: Callable[..., Any] = click.option(
    "--server",
    "server_urls",
    multiple=True,
    metavar="URL",
    help="URL of any scheduler. Repeat for more. [env: NIMBUS_SERVER, comma-separated]",
)

config_option: Callable[..., Any] = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Configuration file, such as configs/local.yaml.",
)


dry_run_option: Callable[..., Any] = click.option(
    "--dry-run/--no-dry-run",
    default=True,
    show_default=True,
    help="Let Spark check declarative pipelines (tasks of type spark_pipeline); about 10 s for each.",
)


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Callback of an option with a duration as in the configuration, such as `5m`."""
    from nimbus.config.problems import SuggestingError
    from nimbus.config.values import parse_duration

    try:
        return None if value is None else parse_duration(value)
    except SuggestingError as exc:
        hint = f' (did you mean "{exc.suggestion}"?)' if exc.suggestion else ""
        raise click.BadParameter(f"{exc}{hint}", ctx, param) from exc


def examples(*lines: str) -> str:
    """Examples below a command's help, without line wrapping."""
    return "\b\n" + "\n".join(
        ["Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)]
    )


def remote(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--server` and `--output`, and call it as `function(client, out, ...)`."""

    @server_option
    @output_option
    @functools.wraps(function)
    def command(*args: Any, server_urls: tuple[str, ...], output: str, **named: Any) -> Any:
        with connect(server_urls) as api:
            return function(api, Output(output), *args, **named)

    return cast("Callable[..., Any]", command)


def connect(server_urls: tuple[str, ...]) -> Client:
    """Create the client, without a request."""
    from nimbus.client import Client

    return Client(*server_urls, learn_after_s=1.0)  # a short command needs no other scheduler


def report_command(out: Output, answer: dict[str, Any], *, quiet: bool = False) -> Exit:
    """Print the outcome of a command.

    Returns:
        OK; UNREACHABLE without a decision.
    """
    if out.as_json and not quiet:
        out.data(answer)
    if answer["status"] == "pending":
        out.note(
            f"queued as {answer['command_id']}, not decided yet: there is no leader, or it is busy. "
            "The command is kept and will be executed; `nimbus cluster leader` shows the leader."
        )
        return Exit.UNREACHABLE
    if not out.as_json and not quiet:
        out.line(answer["outcome"]["message"])
    return Exit.OK


def report_started(out: Output, run_id: str, answer: dict[str, Any]) -> Exit:
    """Print the id of a run that was asked for, and how to follow it. Returns as `report_command`."""
    if not out.as_json:
        out.line(run_id)
    code = report_command(out, answer, quiet=not out.as_json)
    if code is Exit.OK:
        out.note(f"{answer['outcome']['message']}; follow it with `nimbus run watch {run_id}`")
    return code


def parameters(pairs: tuple[str, ...], document: str | None) -> dict[str, Any]:
    """Parameters of a run: a JSON object (`-`: from standard input), then `k=v` over it.

    A value of `k=v` that is valid JSON is read as JSON (`3`, `true`, `[1, 2]`); any other is text.
    """
    from nimbus.domain.pipelines.parameters import parsed_json

    parsed: Any = {}
    if document is not None:
        text = sys.stdin.read() if document == "-" else document
        try:
            parsed = parsed_json(text)
        except ValueError as exc:
            raise _bad_params(f"--params is no JSON: {exc}.") from exc
        if not isinstance(parsed, dict):
            raise _bad_params("--params must be a JSON object, such as '{\"months\": 3}'.")
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise _bad_params(f"--param {pair!r} is not of the form key=value.")
        try:
            parsed[key] = parsed_json(value)
        except ValueError:
            parsed[key] = value
        if any("\ud800" <= char <= "\udfff" for char in pair):
            raise _bad_params(f"--param {key!r}: the value is not valid Unicode.")
    return dict(parsed)


def _bad_params(message: str) -> CliError:
    return CliError(message, code="bad_params", exit_code=Exit.USAGE)


def filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filters of pipelines and runs, as one mapping `where` of the API's names."""

    @click.option("--pipeline", metavar="NAME", help="Only of this pipeline.")
    @click.option("--tag", metavar="TAG", help="Only of pipelines with this tag.")
    @click.option("--owner", metavar="WHO", help="Only of pipelines of a name or a team; -: of nobody.")
    @click.option(
        "--param", "parameter", multiple=True, metavar="KEY=VALUE", help="Only with it. Repeatable."
    )
    @click.option("--logical-from", metavar="DATE", help="Only for then or later: a day in UTC, or a time.")
    @click.option("--logical-to", metavar="DATE", help="Only for then or earlier; a day is included.")
    @functools.wraps(function)
    def command(*args: Any, **named: Any) -> Any:
        names = ("pipeline", "tag", "owner", "parameter", "logical_from", "logical_to")
        where = {name: named.pop(name) for name in names}
        return function(*args, where={name: value for name, value in where.items() if value}, **named)

    return cast("Callable[..., Any]", command)


def selected(chosen: Mapping[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...]] | None:
    """The option that was given, with its tasks; None if none was. UsageError for more than one."""
    given = [(name, tasks) for name, tasks in chosen.items() if tasks]
    if len(given) > 1:
        raise click.UsageError(" and ".join(f"--{name}" for name, _ in given) + " exclude each other")
    return given[0] if given else None


def confirm(question: str) -> None:
    """Ask on standard error. CliError: the answer is no."""
    if not click.confirm(question, err=True):
        raise CliError("not confirmed: nothing was done", code="not_confirmed", exit_code=Exit.INTERRUPTED)


def find_config(given: Path | None) -> Path | None:
    """The configuration file: the given one, else that of the local stack in this folder."""
    if given is not None:
        return given
    from nimbus.client.servers import read_client_file

    file = read_client_file()
    return file.config if file is not None else None


def settings_of(given: Path | None) -> Settings:
    """Read the configuration.

    Raises:
        CliError: there is none.
        InvalidConfigurationError: it is not valid.
    """
    from nimbus.config import load_settings

    path = find_config(given)
    if path is None:
        raise _no_config()
    return load_settings(path, os.environ)


def storage_of(given: Path | None) -> StorageSection:
    """Read the section `storage` alone. Errors as of `settings_of`."""
    from nimbus.config.load import load_storage

    path = find_config(given)
    if path is None and "NIMBUS__STORAGE__BUCKET" not in os.environ:
        raise _no_config()
    return load_storage(path, os.environ)


def _no_config() -> CliError:
    from nimbus.client.servers import CLIENT_FILE, STACK_FOLDER

    return CliError(
        "storage is not known: give --config FILE (with a section `storage`), or start a cluster in this "
        f"folder with `nimbus up`, which leaves {STACK_FOLDER / CLIENT_FILE}.",
        code="no_config",
        exit_code=Exit.USAGE,
    )


@contextmanager
def store_session(settings: Settings) -> Iterator[StoreSession]:
    """A session with the store of the live state. Within it, log lines go to standard error."""
    from nimbus.bootstrap.resources import open_session

    with logs_on_stderr():
        session = open_session(settings)
        try:
            yield session
        finally:
            session.close(timedelta(seconds=5))


def object_store(storage: StorageSection) -> S3ObjectStore:
    """The store that the configuration names. Sends no request yet."""
    from blobsync import S3Config
    from blobsync.s3.store import S3ObjectStore

    connect, read = storage.connect_timeout, storage.read_timeout
    return S3ObjectStore(S3Config(**storage.connection(), connect_timeout=connect, read_timeout=read))
