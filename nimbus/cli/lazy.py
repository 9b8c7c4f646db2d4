"""Click groups that import a command when it is used, and suggest a name for an unknown one."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

_ALIASES = {
    "ls": "list",
    "inspect": "show",
    "cancel": "stop",
    "trigger": "start",
    "unpause": "activate",
    "delete": "remove",
    "rm": "remove",
    "log": "logs",
    "runs": "run",
    "pipelines": "pipeline",
    "clusters": "cluster",
}
"""Names that other schedulers use for these commands."""


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command that is not imported yet."""

    place: str
    """`module:attribute`."""
    help: str
    """One line, so that listing the commands imports none of them."""


class LazyGroup(click.Group):
    """A group of commands, each imported when it is used. `lazy` has them in the order of their list."""

    def __init__(self, *attributes: Any, lazy: Mapping[str, Lazy] | None = None, **named: Any) -> None:
        super().__init__(*attributes, **named)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        """Return the names in the given order, not by alphabet: commands for beginners come first."""
        return [*self._lazy, *(name for name in self.commands if name not in self._lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command by its name or by its name in other tools."""
        known = self.list_commands(ctx)
        if cmd_name not in known and _ALIASES.get(cmd_name) in known:
            cmd_name = _ALIASES[cmd_name]
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with a suggestion."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(name, [*known, *_ALIASES], n=1, cutoff=0.5)
            meant = _ALIASES.get(close[0], close[0]) if close else None
            hint = f" Did you mean {meant!r}?" if meant in known else f" There are: {', '.join(known)}."
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        rows = [(name, lazy.help) for name, lazy in self._lazy.items()]
        rows += [(name, command.get_short_help_str(80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
