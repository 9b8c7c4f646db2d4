"""`nimbus demo` says where its logs are, if there are any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nimbus.cli.exits import CliError, Exit
from nimbus.demo import __main__ as command


@pytest.mark.parametrize("logs", [False, True])
def test_a_demonstration_that_fails_names_its_logs_only_if_it_has_some(
    logs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "demo"

    def stack(*_args: Any, **_named: Any) -> Any:
        if logs:
            (folder / "scheduler.log").touch()
        raise CliError("PySpark is not installed", code="x", exit_code=Exit.USAGE)

    monkeypatch.setattr(command, "LocalStack", stack)

    done = CliRunner().invoke(command.demo, ["--dir", str(folder)])

    assert done.exit_code == Exit.RUN_FAILED
    assert "error: PySpark is not installed" in done.output
    assert (f"logs are below {folder}" in done.output) is logs
