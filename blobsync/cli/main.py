"""The commands, together."""

from __future__ import annotations

from blobsync.cli import caring, looking, publishing, syncing
from blobsync.cli.group import main

__all__ = ["caring", "looking", "main", "publishing", "syncing"]
