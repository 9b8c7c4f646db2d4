"""Options that several commands take, and what they open: a bucket, a local store, or one of both.

The S3 client, which takes a tenth of a second to import, is imported when a bucket is asked for.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from blobsync.bucket.ports import ObjectStore
from blobsync.cli.main import Exit, fail
from blobsync.errors import BlobSyncConfigError, BlobSyncError
from blobsync.retry import RetryPolicy
from blobsync.s3.config import S3Config

if TYPE_CHECKING:
    from blobsync.local.store import LocalStore

F = TypeVar("F", bound=Callable[..., Any])

NO_BUCKET = "say which bucket: --bucket, or BLOBSYNC_BUCKET in the environment"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a command works on. What was not named on the command line raises when it is asked for.

    Args:
        s3: Where the bucket is; None: not said.
        root: Where the local store is; None: not said.
        digests: What is computed of large blobs; see `LocalStore`.
        timeout: Longest time that a command waits for the bucket.
        as_json: Print JSON on stdout, one document.
        means_bucket: A command that can look into either looks into the bucket: no local store is named, or
            the bucket is on the command line and the store is not.
    """

    s3: S3Config | None
    root: Path | None
    digests: str
    timeout: timedelta
    as_json: bool
    means_bucket: bool

    @property
    def retry(self) -> RetryPolicy:
        """How calls to the bucket are tried again."""
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
        """Open the local store; make one where there is none, if `makes`."""
        if self.root is None:
            raise BlobSyncConfigError("say where the local store is: --store, or BLOBSYNC_STORE")
        if not makes and not self.root.is_dir():
            raise BlobSyncConfigError(f"--store {self.root} is no folder; `sync` makes it")
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
        "--timeout",
        default=60.0,
        show_default=True,
        type=click.FloatRange(min=0.1),
        help="Longest wait for an answer of the bucket, seconds; see also `sync --within`.",
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
        help="What verifies files above 16 MiB; sha256: both.",
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
    """Make a function a command with all common options; it gets a `Setting` first. Errors end it."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kw: Any) -> Any:
            try:
                setting = _setting(kw)
                code = function(setting, *args, **kw)
            except BlobSyncError as exc:
                fail(exc)
            except KeyboardInterrupt:
                click.echo("interrupted; the same command goes on where this one was", err=True)
                sys.exit(Exit.INTERRUPTED)
            sys.exit(code or 0)

        for option in reversed(_COMMON):
            run = option(run)
        return group.command(name=function.__name__)(run)  # type: ignore[return-value]  # a command now

    return wrap


def _setting(options: dict[str, Any]) -> Setting:
    """Take the common options out of `options`."""
    taken = {
        name: options.pop(name)
        for name in ("bucket", "endpoint", "prefix", "region", "ca_bundle", "root", "digests", "output")
    }
    timeout = timedelta(seconds=options.pop("timeout"))
    # An attempt is repeated once by the adapter: both together must not exceed the time that was given.
    silence = timeout / 2
    s3 = None
    if taken["bucket"] is not None:
        s3 = S3Config(
            endpoint_url=taken["endpoint"],
            bucket=taken["bucket"],
            prefix=taken["prefix"],
            region=taken["region"],
            ca_bundle=taken["ca_bundle"],
            connect_timeout=min(timedelta(seconds=3), silence),
            read_timeout=min(timedelta(seconds=15), silence),
        )
    means_bucket = taken["root"] is None or (_is_typed("bucket") and not _is_typed("root"))
    as_json = taken["output"] == "json"
    return Setting(s3, taken["root"], taken["digests"], timeout, as_json, means_bucket)


def _is_typed(option: str) -> bool:
    """Whether it is on the command line, not in the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE
