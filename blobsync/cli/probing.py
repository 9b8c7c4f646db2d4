"""`probe`."""

from __future__ import annotations

from blobsync.cli.exits import Exit
from blobsync.cli.group import main
from blobsync.cli.options import NO_BUCKET, Setting, command_of
from blobsync.errors import BlobSyncConfigError


@command_of(main)
def probe(setting: Setting) -> int:
    """Find out what the bucket's server really does, and what that means. Writes and removes a few objects.

    Exit code 1 if something is missing that replaced objects and garbage collection need.
    """
    if setting.s3 is None:
        raise BlobSyncConfigError(NO_BUCKET)
    from blobsync.storage.probe import probe as find_out

    report = find_out(setting.s3)
    setting.say(report.as_data(), "\n".join(report.lines()))
    return Exit.OK if report.usable else Exit.ODD
