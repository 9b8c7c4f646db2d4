"""`nimbus version`."""

from __future__ import annotations

import json

import click

from nimbus import __version__
from nimbus.cli.output import output_option
from nimbus.telemetry.build import commit, release


@click.command()
@output_option
def version(output: str) -> None:
    """Print the version, and the commit that it was built from."""
    found = {"version": __version__, "commit": commit() or None}
    click.echo(json.dumps(found) if output == "json" else f"nimbus {release()}")
