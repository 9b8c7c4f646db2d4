"""`nimbus doctor`: finds what would prevent Nimbus from working here, and gives advice; `nimbus version`."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus import __version__
from nimbus.cli.exits import Exit
from nimbus.cli.options import config_option, examples
from nimbus.cli.output import Output, output_option
from nimbus.telemetry.build import commit, release

if TYPE_CHECKING:
    from nimbus.cli.doctor import CheckResult
    from nimbus.config import Settings


@click.command(epilog=examples("nimbus doctor", "nimbus doctor --config configs/ha.yaml -o json"))
@config_option
@output_option
def doctor(config: Path | None, output: str) -> int:
    """Check Java, Python, disk; with a configuration also targets, ZooKeeper, S3, clock, port.

    Targets are those of Spark and of alerts. Exit code 1 if a check fails.
    """
    from nimbus.cli.doctor import Level, fail, host
    from nimbus.cli.options import find_config, settings_of
    from nimbus.config import InvalidConfigurationError

    out = Output(output)
    file = find_config(config)
    results = [host.python(), host.java(needed=file is None)]  # as `nimbus up` does
    if file is None:
        results.append(host.disk(Path.cwd()))
        out.note("no configuration: ZooKeeper, S3, clock and port are not checked. Give --config FILE.")
    else:
        try:
            results += _configured(settings_of(file))
        except InvalidConfigurationError as exc:
            advice = "correct it; configs/nimbus.example.yaml has every key"
            results.append(fail("configuration", str(exc), advice))
    bad = any(result.verdict is Level.FAIL for result in results)
    if not out.printed_json({"ok": not bad, "checks": [dataclasses.asdict(result) for result in results]}):
        rows = [(result.check, result.verdict.value, result.detail, result.advice) for result in results]
        out.table(("check", "", "found", "advice"), rows)
    return Exit.RUN_FAILED if bad else Exit.OK


def _configured(settings: Settings) -> Iterator[CheckResult]:
    from nimbus.bootstrap.targets import spark_targets
    from nimbus.cli.doctor import host, services, stores

    scheduler = settings.scheduler
    yield host.disk(scheduler.state_dir)
    yield host.executor(settings)
    yield host.kept_jvms(settings)
    yield from host.environments(settings)
    yield from services.targets(spark_targets(settings, os.environ))
    yield from services.alert_targets_of(settings, os.environ)
    yield from services.identity_provider_of(settings)
    yield from services.telemetry_of(settings)
    yield from host.secrets_of(settings, os.environ)
    yield from stores.zookeeper_of(settings)
    yield from stores.store_of(settings)
    yield stores.s3(settings)
    yield from stores.outputs(settings)
    yield stores.clock(settings.storage)
    yield from host.certificate_of(settings)
    yield from host.tokens_of(settings)
    yield from host.users_of(settings)
    yield from host.data_of(settings)
    yield from host.room_of(settings)
    yield host.advertised(settings)
    yield host.port(scheduler.host, scheduler.port, tls=settings.api.tls is not None)


@click.command()
@output_option
def version(output: str) -> None:
    """Print the version, and the commit that it was built from."""
    answer = {"version": __version__, "commit": commit() or None}
    click.echo(json.dumps(answer) if output == "json" else f"nimbus {release()}")
