"""`nimbus doctor`: finds what would prevent Nimbus from working here, and gives advice; `nimbus version`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from nimbus import __version__
from nimbus.cli.exits import Exit
from nimbus.cli.options import config_option, examples
from nimbus.cli.output import Output, output_option
from nimbus.telemetry.build import commit, release


@click.command(epilog=examples("nimbus doctor", "nimbus doctor --config configs/ha.yaml -o json"))
@config_option
@output_option
def doctor(config: Path | None, output: str) -> int:
    """Check Java, Python, disk; with a configuration also targets, ZooKeeper, S3, clock, port.

    Targets are those of Spark and of alerts. Exit code 1 if a check fails.
    """
    from nimbus.cli import checks
    from nimbus.cli.findings import Finding, Level
    from nimbus.cli.storage import find_config, settings_of
    from nimbus.config import InvalidConfigurationError

    out = Output(output)
    place = find_config(config)
    found = list(checks.machine(needs_java=place is None))  # as `nimbus up` does
    if place is None:
        found.append(checks.disk(Path.cwd()))
        out.note("no configuration: ZooKeeper, S3, clock and port are not checked. Give --config FILE.")
    else:
        try:
            found += checks.cluster(settings_of(place))
        except InvalidConfigurationError as exc:
            advice = "correct it; configs/nimbus.example.yaml has every key"
            found.append(Finding("configuration", Level.FAIL, str(exc), advice))
    bad = any(finding.verdict is Level.FAIL for finding in found)
    if not out.told({"ok": not bad, "checks": [dataclasses.asdict(finding) for finding in found]}):
        rows = [(f.check, f.verdict.value, f.detail, f.advice) for f in found]
        out.table(("check", "", "found", "advice"), rows)
    return Exit.RUN_FAILED if bad else Exit.OK


@click.command()
@output_option
def version(output: str) -> None:
    """Print the version, and the commit that it was built from."""
    found = {"version": __version__, "commit": commit() or None}
    click.echo(json.dumps(found) if output == "json" else f"nimbus {release()}")
