"""The options that all commands have, the bucket or local store that they name, and the form of their output.

The S3 client takes a tenth of a second to import, so it is imported when a bucket is opened.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from blobsync.bucket.ports import ObjectStore
from blobsync.cli.main import BlobsyncExit, fail
from blobsync.errors import BlobSyncConfigError, BlobSyncError
from blobsync.retry import RetryPolicy
from blobsync.s3.config import Encryption, S3Config

if TYPE_CHECKING:
    from blobsync.local.store import LocalStore

F = TypeVar("F", bound=Callable[..., Any])

NO_BUCKET = "no bucket is named; use --bucket, or BLOBSYNC_BUCKET in the environment"


@dataclass(frozen=True, slots=True)
class Setting:
    """The common options of one command. To open a bucket or store that was not named raises an error.

    Args:
        digests: Which digests of large blobs are computed; see `LocalStore`.
        means_bucket: A command that works on either uses the bucket: no local store is named, or the bucket
            is on the command line and the store is not.
    """

    s3: S3Config | None
    root: Path | None
    digests: str
    timeout: timedelta
    as_json: bool
    means_bucket: bool

    @property
    def retry(self) -> RetryPolicy:
        """The retries of calls to the bucket."""
        return RetryPolicy(first_wait=timedelta(seconds=0.2), deadline=self.timeout)

    @contextmanager
    def bucket(self) -> Iterator[ObjectStore]:
        """Connect to the bucket."""
        if self.s3 is None:
            raise BlobSyncConfigError(NO_BUCKET)
        from blobsync.s3.store import S3ObjectStore

        store = S3ObjectStore(self.s3)
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def store(self, *, makes: bool = False) -> Iterator[LocalStore]:
        """Open the local store. If `makes`, create it if the folder does not exist."""
        if self.root is None:
            raise BlobSyncConfigError(
                "no local store is named; use --store, or BLOBSYNC_STORE in the environment"
            )
        if not makes and not self.root.is_dir():
            raise BlobSyncConfigError(f"--store {self.root} is not a folder; `sync` creates it")
        from blobsync.local.store import LocalStore

        with LocalStore(self.root, verify="sha256" if self.digests == "sha256" else "name") as local:
            yield local

    def say(self, data: Any, words: str) -> None:
        """Print `data` for machines or `words` for people."""
        click.echo(json.dumps(data, sort_keys=True) if self.as_json else words)


_COMMON = (
    click.option("--bucket", envvar="BLOBSYNC_BUCKET", help="Name of the bucket."),
    click.option("--endpoint", envvar="BLOBSYNC_ENDPOINT", help="http(s)://host:port; else AWS."),
    click.option("--prefix", envvar="BLOBSYNC_PREFIX", default="", help="What all keys begin with."),
    click.option("--region", envvar="AWS_REGION", default="us-east-1", show_default=True),
    click.option("--ca-bundle", envvar="AWS_CA_BUNDLE", help="PEM file of authorities to trust."),
    click.option(
        "--encryption",
        envvar="BLOBSYNC_ENCRYPTION",
        type=click.Choice(get_args(Encryption)),
        help="How the server encrypts what is written; else as the bucket does.",
    ),
    click.option("--kms-key-id", envvar="BLOBSYNC_KMS_KEY_ID", help="Key of --encryption aws:kms."),
    click.option(
        "--timeout",
        default=60.0,
        show_default=True,
        type=click.FloatRange(min=0.1),
        help="How long to wait for an answer of the bucket, in seconds; see also `sync --within`.",
    ),
    click.option(
        "--store",
        "root",
        envvar="BLOBSYNC_STORE",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the local store.",
    ),
    click.option(
        "--digests",
        type=click.Choice(["blake3", "sha256"]),
        default="blake3",
        show_default=True,
        help="Digests that verify files above 16 MiB; sha256: both.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Form of the answer.",
    ),
)
"""Options of all commands. Credentials come from where boto3 looks for them."""


def command_of(group: click.Group) -> Callable[[F], F]:
    """Make a function a command with the common options. Its first argument is a `Setting`."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kw: Any) -> Any:
            try:
                setting = _setting(kw)
                code = function(setting, *args, **kw)
            except BlobSyncError as exc:
                fail(exc)
            except KeyboardInterrupt:
                click.echo("interrupted; run the same command again to continue", err=True)
                sys.exit(BlobsyncExit.INTERRUPTED)
            sys.exit(code or 0)

        for option in reversed(_COMMON):
            run = option(run)
        return group.command(name=function.__name__)(run)  # type: ignore[return-value]  # a command now

    return wrap


def _setting(options: dict[str, Any]) -> Setting:
    """Take the common options out of `options`."""
    take = options.pop
    timeout = timedelta(seconds=take("timeout"))
    # The S3 client sends a request twice at most; both tries together must not exceed the timeout.
    silence = timeout / 2
    bucket, root = take("bucket"), take("root")
    s3_options = {name: take(name) for name in ("prefix", "region", "ca_bundle", "encryption", "kms_key_id")}
    endpoint_url = take("endpoint")
    s3 = None
    if bucket is not None:
        s3 = S3Config(
            endpoint_url=endpoint_url,
            bucket=bucket,
            connect_timeout=min(timedelta(seconds=3), silence),
            read_timeout=min(timedelta(seconds=15), silence),
            **s3_options,
        )
    means_bucket = root is None or (_is_typed("bucket") and not _is_typed("root"))
    return Setting(s3, root, take("digests"), timeout, take("output") == "json", means_bucket)


def _is_typed(option: str) -> bool:
    """True if the option is on the command line, not only in the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


Show = Callable[[str, int, int], None]
"""Updates the bar of a task. Arguments: name of the task, bytes done, bytes in total."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(size_bytes: float) -> str:
    """`0 B`, `17 B`, `1.5 MiB`."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as a table. The first row has the headings."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


DAMAGED_RELEASE = "its manifest or layout is damaged"
"""Shown for a release of which nothing else is known."""


def is_watched() -> bool:
    """True if standard error is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def bars() -> Iterator[Show]:
    """Show bars on standard error if it is a terminal, and remove them at the end."""
    if not is_watched():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(what: str, done_bytes: int, total_bytes: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=None)
            progress.update(tasks[what], completed=done_bytes, total=total_bytes)

        yield show
