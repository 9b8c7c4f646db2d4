"""The command line. `group` imports the module of a command when the command is asked for."""

from __future__ import annotations

from blobsync.cli.group import main

__all__ = ["main"]
