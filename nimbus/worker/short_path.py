"""Short paths of attempts' folders: links in /tmp, because a Unix socket's path has at most 107 bytes.

A link has a random name and is created only if nobody has that name, so another user cannot prepare it; in a
sticky folder nobody else can replace it. It points to a folder that only the attempt's user can enter. Files
stay in that folder, where they are measured, and removed. Any thread may call it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

PLACE = Path("/tmp")  # noqa: S108 - see above
PREFIX = "nimbus-"
_BYTES = 4


def new_name() -> Path:
    """A name for a new link."""
    return PLACE / f"{PREFIX}{secrets.token_hex(_BYTES)}"


def drop(link: Path, folder: Path) -> None:
    """Remove a link, if it is one to `folder`."""
    with suppress(OSError):
        if os.readlink(link) == str(folder):  # noqa: PTH115 - no other kind of path
            link.unlink()


def drop_dangling() -> None:
    """Remove links to folders that are gone: those of this user, or of all users if it is root."""
    for link in PLACE.glob(PREFIX + "[0-9a-f]" * 2 * _BYTES):
        with suppress(OSError):
            is_ours = link.readlink().name == "work" and os.getuid() in (0, link.lstat().st_uid)
            if is_ours and not link.exists():
                link.unlink()
