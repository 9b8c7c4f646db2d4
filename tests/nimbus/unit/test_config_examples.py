"""The shipped configuration files: they load, and the annotated one has every key with its default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from nimbus.cli.init import config_schema
from nimbus.config import load_settings
from nimbus.config.settings import DERIVED, Settings, settings_keys
from nimbus.config.targets import TargetSection
from nimbus.config.values import parse_duration

CONFIGS = Path(__file__).parents[3] / "configs"
REQUIRED = {("zookeeper", "hosts"), ("storage", "bucket"), ("scheduler", "state_dir"), ("worker", "data")}


def example() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((CONFIGS / "nimbus.example.yaml").read_text())
    return loaded


def default_of(section: str, key: str) -> Any:
    model = Settings.model_fields[section].annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    field = next(field for name, field in model.model_fields.items() if (field.alias or name) == key)
    return field.get_default(call_default_factory=True)


@pytest.mark.parametrize(
    ("ours", "of_chart"),
    [("grafana/nimbus.json", "nimbus-board.json"), ("prometheus/nimbus-alerts.yaml", "nimbus-alerts.yaml")],
)
def test_chart_has_the_board_and_the_alerts_and_no_copies_of_them(ours: str, of_chart: str) -> None:
    assert (CONFIGS.parent / "deploy/helm/nimbus/files" / of_chart).samefile(CONFIGS / ours)


def test_example_holds_every_key_and_no_other() -> None:
    shown = {(section, key) for section, part in example().items() for key in part}

    assert shown == set(settings_keys())


@pytest.mark.parametrize(("section", "key"), sorted(set(settings_keys()) - REQUIRED))
def test_example_shows_the_default(section: str, key: str) -> None:
    shown = example()[section][key]
    if f"{section}.{key}" in DERIVED:
        assert shown is None
        return

    default = default_of(section, key)
    if isinstance(default, BaseModel):
        shown, default = type(default).model_validate(shown).model_dump(), default.model_dump()

    assert (parse_duration(shown) if type(default).__name__ == "timedelta" else shown) == default


def test_example_explains_every_key() -> None:
    lines = (CONFIGS / "nimbus.example.yaml").read_text().splitlines()
    unexplained = []
    for number, line in enumerate(lines):
        key = line.strip().partition(":")[0]
        if line.startswith("  ") and not line.strip().startswith("#"):
            before = lines[number - 1].strip()
            if not before.startswith("#"):
                unexplained.append(key)

    # Each of these shares the comment of the previous key.
    assert unexplained == ["password", "secret_access_key", "port", "requeue_max", "secret_access_key"]


def test_schema_says_what_each_key_is_for() -> None:
    schema = json.loads(CliRunner().invoke(config_schema).output)

    assert schema["$defs"]["StorageSection"]["properties"]["bucket"]["description"].startswith(
        "Required. The bucket must"
    )
    assert all(
        "description" in schema["$defs"]["WorkerSection"]["properties"][key] for key in example()["worker"]
    )


@pytest.mark.parametrize(
    ("name", "environ"),
    [
        ("nimbus.example.yaml", {}),
        ("local.yaml", {}),
        ("single.yaml", {}),
        ("targets.yaml", {}),
        ("ha.yaml", {"NIMBUS__ZOOKEEPER__PASSWORD": "from-a-file"}),
    ],
)
def test_shipped_configuration_loads(name: str, environ: dict[str, str]) -> None:
    settings = load_settings(CONFIGS / name, environ)

    assert settings.worker.data_dir.is_absolute()


def test_there_is_an_example_of_each_kind_of_target() -> None:
    kinds = [target.kind for target in load_settings(CONFIGS / "targets.yaml", {}).spark.targets.values()]

    assert sorted(kinds) == sorted(get_args(TargetSection.model_fields["kind"].annotation))
