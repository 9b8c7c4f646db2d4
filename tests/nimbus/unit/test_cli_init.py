"""`nimbus init` and `nimbus config init`: what is made is valid, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nimbus.cli.init import shipped
from nimbus.cli.main import cli
from nimbus.config import load_settings
from nimbus.config.load import load_storage


@pytest.mark.parametrize(
    "options", [[], ["--minimal"], ["--from", "datasets/rates"], ["--from", "shop"]], ids=str
)
def test_made_folder_is_a_valid_pipeline_of_its_name(tmp_path: Path, options: list[str]) -> None:
    folder = tmp_path / "orders"
    made = CliRunner().invoke(cli, ["init", str(folder), *options])
    checked = CliRunner().invoke(cli, ["pipeline", "validate", str(folder)])

    assert made.exit_code == 0
    assert str(folder / "pipeline.yaml") in made.stdout
    assert checked.exit_code == 0, checked.output
    assert checked.stdout.startswith("orders: valid")


def test_test_of_the_made_pipeline_passes(tmp_path: Path) -> None:
    CliRunner().invoke(cli, ["init", str(tmp_path / "orders")])
    words = [sys.executable, "-m", "unittest", "discover", "tests"]
    done = subprocess.run(
        words, cwd=tmp_path / "orders", capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Orders!"], "The pipeline gets the folder's name"),
        (["taken"], "is not empty"),
        (["orders", "--from", "no-such"], "there are: datasets/airport"),
        (["orders", "--minimal", "--from", "hello"], "exclude each other"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    refused = CliRunner().invoke(cli, ["init", *arguments])

    assert refused.exit_code == 2
    assert said in refused.output
    assert [file.name for file in tmp_path.rglob("*")] == ["taken", "mine"]


@pytest.mark.parametrize("kind", ["single", "ha", "worker", "full"])
def test_first_configuration_is_valid(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "nimbus.yaml"
    file.write_text(CliRunner().invoke(cli, ["config", "init", kind]).stdout)

    assert load_settings(file, {"NIMBUS__ZOOKEEPER__PASSWORD": "x"} if kind in ("ha", "worker") else {})


def test_configuration_to_publish_is_that_of_the_storage(tmp_path: Path) -> None:
    file = tmp_path / "nimbus.yaml"
    file.write_text(CliRunner().invoke(cli, ["config", "init", "publish"]).stdout)

    assert load_storage(file, {}).bucket == "nimbus-production"


def test_schema_of_the_configuration_has_every_section() -> None:
    schema = json.loads(CliRunner().invoke(cli, ["config", "schema"]).stdout)

    assert {"cluster", "zookeeper", "storage", "scheduler", "worker"} <= schema["properties"].keys()


def test_files_around_a_cluster_are_those_of_the_repository(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["config", "files", str(tmp_path / "files")])
    again = CliRunner().invoke(cli, ["config", "files", str(tmp_path / "files")])

    assert done.exit_code == 0
    for name in (
        "configs/prometheus/nimbus-alerts.yaml",
        "configs/grafana/nimbus.json",
        "deploy/systemd/run-as.conf",
    ):
        assert (tmp_path / "files" / name).read_bytes() == (shipped("configs").parent / name).read_bytes()
    assert again.exit_code == 2


def test_shell_completes_commands_with_the_written_file(tmp_path: Path) -> None:
    CliRunner().invoke(cli, ["config", "files", str(tmp_path / "files")])
    words = "source files/completion/nimbus.bash; COMP_WORDS=(nimbus conf); COMP_CWORD=1; "
    call = words + "_nimbus_completion nimbus conf nimbus; echo ${COMPREPLY[*]}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        ["bash", "-ec", call],
        cwd=tmp_path,
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert told.stdout == "config\n", told.stderr


def test_files_of_an_installed_wheel_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "shipped" / "configs"
    inside.mkdir(parents=True)
    monkeypatch.setattr("nimbus.__file__", str(tmp_path / "__init__.py"))

    assert shipped("configs") == inside
