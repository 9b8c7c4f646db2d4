"""What a process refuses when its configuration is that of a single scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.localstack.errors import LocalStackError
from nimbus.localstack.stack import LocalStack

SINGLE = """\
leadership: {elector: single}
storage: {bucket: nimbus}
scheduler: {state_dir: /nowhere}
worker: {data: /nowhere/data}
"""


def test_a_worker_of_its_own_is_refused_with_a_single_scheduler(tmp_path: Path) -> None:
    config = tmp_path / "single.yaml"
    config.write_text(SINGLE)

    result = CliRunner().invoke(cli, ["worker", "--config", str(config)])

    assert result.exit_code == 2
    assert "the worker of a single scheduler runs in its process" in result.output


@pytest.mark.parametrize("more", [["--schedulers", "3"], ["--spark", "standalone"]])
def test_up_with_single_refuses_options_that_need_a_cluster(tmp_path: Path, more: list[str]) -> None:
    result = CliRunner().invoke(cli, ["up", "--single", "--dir", str(tmp_path), *more])

    assert result.exit_code == 2
    assert "--single" in result.output


def test_a_single_stack_has_one_scheduler_alone(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="a single scheduler has no others"):
        LocalStack(tmp_path, 2, single=True)
