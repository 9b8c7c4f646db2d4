"""`nimbus version`."""

from __future__ import annotations

import json

import click

from nimbus.cli.output import output_option


@click.command()
@output_option
def version(output: str) -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    found = installed("nimbus-scheduler")
    click.echo(json.dumps({"version": found}) if output == "json" else f"nimbus {found}")
