"""The configuration as `nimbus config show` prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.config import load_settings
from nimbus.config.settings import MASK, Shown, settings_keys, shown
from nimbus.config.values import is_secret

SECRET = "hunter2"
FILE = f"""\
zookeeper: {{hosts: "127.0.0.1:2181", session_timeout: 6s}}
storage: {{bucket: bkt, access_key_id: me, secret_access_key: {SECRET}-s3}}
scheduler: {{state_dir: /var/lib/nimbus}}
worker:
  data: /srv/data
  env: {{DB_PASSWORD: {SECRET}-env, REGION: eu}}
  spark_conf: {{spark.ssl.keyPassword: {SECRET}-conf}}
connect: {{url: "sc://h:15002", token: {SECRET}-token}}
spark:
  targets:
    big: {{kind: local, master: "local[4]", slots: 2}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "nimbus.yaml"
    place.write_text(FILE)
    return place


def found(file: Path, environ: Mapping[str, str] | None = None) -> dict[str, Shown]:
    return {one.key: one for one in shown(load_settings(file, environ or {}))}


def test_every_key_is_shown_once(file: Path) -> None:
    keys = [one.key for one in shown(load_settings(file, {}))]

    assert keys == [f"{section}.{name}" for section, name in settings_keys()]


def test_value_is_written_as_in_the_file(file: Path) -> None:
    keys = found(file)

    assert keys["zookeeper.session_timeout"].value == "6s"
    assert keys["worker.env"].value == {"DB_PASSWORD": MASK, "REGION": "eu"}
    assert keys["spark.targets"].value["big"]["master"] == "local[4]"


def test_origin_is_the_line_the_variable_or_the_default(file: Path) -> None:
    keys = found(file, {"NIMBUS__SCHEDULER__PORT": "8500"})

    assert keys["zookeeper.session_timeout"].origin == f"{file}:1"
    assert keys["scheduler.port"].origin == "environment NIMBUS__SCHEDULER__PORT"
    assert keys["scheduler.port"].value == 8500
    assert keys["scheduler.host"].is_default


def test_no_secret_is_shown(file: Path) -> None:
    said = "".join(f"{one.text}{one.value}" for one in found(file).values())

    assert SECRET not in said
    assert any(is_secret(kind) for kind in settings_keys().values())


def _run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["config", "show", *arguments], catch_exceptions=False)


def test_command_prints_origins_as_json(file: Path) -> None:
    result = _run("--config", str(file), "--origins", "--changed", "-o", "json")

    settings = {one["key"]: one for one in json.loads(result.stdout)["settings"]}
    assert settings["storage.bucket"] == {"key": "storage.bucket", "value": "bkt", "origin": f"{file}:2"}
    assert settings["storage.secret_access_key"]["value"] == MASK
    assert "scheduler.host" not in settings


def test_command_prints_a_table(file: Path) -> None:
    result = _run("--config", str(file))

    assert "scheduler.port" in result.stdout
    assert str(file) not in result.stdout
