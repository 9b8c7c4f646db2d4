"""`nimbus config`: the values that a daemon takes from its file, the environment and the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import config_option, examples
from nimbus.cli.output import Output, output_option

if TYPE_CHECKING:
    from nimbus.config.shown import Shown


@click.group(
    cls=LazyGroup,
    lazy={
        "init": Lazy("nimbus.cli.init:config_init", "Print a configuration to begin with."),
        "schema": Lazy("nimbus.cli.init:config_schema", "Print the JSON Schema of the configuration."),
    },
)
def config() -> None:
    """Begin a configuration; see the value of each key, and its origin."""


@config.command(
    epilog=examples(
        "nimbus config show --config /etc/nimbus.yaml",
        "nimbus config show --config /etc/nimbus.yaml --origins",
        "nimbus config show --changed -o json",
    )
)
@click.option("--origins", is_flag=True, help="Show the origin of each value.")
@click.option("--changed", is_flag=True, help="Omit keys that have their default.")
@config_option
@output_option
def show(config: Path | None, output: str, origins: bool, changed: bool) -> None:
    """Show every key with the value that a daemon started now would use. Secrets are masked.

    Needs no cluster. A running daemon keeps the values that it read when it started.
    """
    from nimbus.cli.storage import settings_of
    from nimbus.config.shown import shown

    out = Output(output)
    found = [one for one in shown(settings_of(config)) if not (changed and one.is_default)]
    if out.told({"settings": [_data(one, origins=origins) for one in found]}):
        return
    columns = ("key", "value", "from") if origins else ("key", "value")
    rows = [(one.key, one.text, one.origin)[: len(columns)] for one in found]
    out.table(columns, rows, empty="every key has its default")


def _data(one: Shown, *, origins: bool) -> dict[str, object]:
    data: dict[str, object] = {"key": one.key, "value": one.value}
    return {**data, "origin": one.origin} if origins else data
