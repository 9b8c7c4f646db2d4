"""`nimbus up` gets a signal at a bad moment, or a folder that Spark cannot use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from nimbus.cli import up as module
from nimbus.cli.exits import Exit
from nimbus.cli.main import cli


class PlayedStack:
    """A stack without processes."""

    stopped = 0

    def __init__(self, folder: Path, *_args: object, **_words: object) -> None:
        self.addresses = SimpleNamespace(schedulers=("http://127.0.0.1:1",), zookeeper="z", s3="s")
        self.schedulers: list[Any] = []
        self._folder = folder

    def start(self) -> None:
        """Does nothing."""

    def wait_ready(self) -> None:
        """Returns at once."""

    def config_file(self, number: int) -> Path:
        return self._folder / f"{number}.yaml"

    def stop(self) -> None:
        type(self).stopped += 1


def test_ending_while_it_still_says_hello_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with the cluster's address exists before the welcome is printed."""

    def interrupted(*_args: object) -> None:
        assert (tmp_path / "client.json").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("nimbus.localstack.stack.LocalStack", PlayedStack)
    monkeypatch.setattr(module, "_welcome", interrupted)

    result = CliRunner().invoke(cli, ["up", "--dir", str(tmp_path)])

    assert (result.exit_code, PlayedStack.stopped) == (0, 1)
    assert not (tmp_path / "client.json").exists()


@pytest.mark.parametrize("name", ["my files", "a,b"])
def test_folder_in_which_spark_fails_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("nimbus.localstack.stack.LocalStack", None)

    result = CliRunner().invoke(cli, ["up", "--dir", str(tmp_path / name)])

    assert result.exit_code == Exit.USAGE
    assert f"{name}' must not contain" in result.output
    assert not list(tmp_path.iterdir())
