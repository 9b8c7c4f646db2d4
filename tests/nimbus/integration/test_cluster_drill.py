"""`nimbus cluster drill` on real schedulers: another one leads, and no run is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.localstack.stack import LocalStack
from tests.thorough import thorough

Eventually = Callable[..., None]


PIPELINE = """\
schema: 1
name: waits
files: ["*.py"]
tasks: {wait: {type: python, script: wait.py, timeout: 10m}}
"""


@thorough
@pytest.mark.parametrize("how", [("--hand-over",), ("--kill-leader", "--yes")], ids=["hand-over", "kill"])
def test_drill_lets_another_scheduler_lead_and_reports(
    tmp_path: Path, eventually: Eventually, how: tuple[str, ...]
) -> None:
    with LocalStack(tmp_path, 2) as stack:
        stack.wait_ready()
        servers = [word for url in stack.addresses.schedulers for word in ("--server", url)]

        def ready() -> bool:
            told = CliRunner().invoke(cli, ["cluster", "participants", "-o", "json", *servers])
            rows: list[dict[str, Any]] = json.loads(told.stdout)["participants"]
            return (
                len(rows) == 2 and all(row["ready"] for row in rows) and any(row["is_leader"] for row in rows)
            )

        eventually(ready, what="both are ready, and one leads")
        waits = tmp_path / "waits"
        waits.mkdir()
        (waits / "pipeline.yaml").write_text(PIPELINE)
        (waits / "wait.py").write_text("import time\ntime.sleep(300)\n")
        config = ["--config", str(stack.config_file(1))]
        for words in (
            ["pipeline", "publish", str(waits), "--activate", *config],
            ["run", "start", "waits"],
        ):
            said = CliRunner().invoke(cli, [*words, *servers])
            assert said.exit_code == 0, said.output
        done = CliRunner().invoke(cli, ["cluster", "drill", *how, *servers, "-o", "json"])

        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
        assert {report["before"], report["after"]} == {"scheduler-1", "scheduler-2"}
        assert report["runs_lost"] == []
        assert (report["runs_before"], report["adopted"]["runs"]) == (1, 1)
        assert None not in (report["takeover_s"], report["without_leader_s"])
        table = CliRunner().invoke(cli, ["cluster", "drill", "--hand-over", *servers])
        refused = how[0] == "--kill-leader"  # the other one is gone
        assert table.exit_code == (4 if refused else 0), table.output
        assert refused or re.search(r"adopted +1 runs, ", table.output)


@thorough
def test_drill_is_refused_without_a_successor(tmp_path: Path, eventually: Eventually) -> None:
    with LocalStack(tmp_path, 1) as stack:
        stack.wait_ready()
        (url,) = stack.addresses.schedulers
        eventually(lambda: CliRunner().invoke(cli, ["cluster", "leader", "--server", url]).exit_code == 0)
        refused = CliRunner().invoke(cli, ["cluster", "drill", "--hand-over", "--server", url])
        unsure = CliRunner().invoke(cli, ["cluster", "drill", "--server", url])

    assert refused.exit_code == 4
    assert "no other scheduler is ready to lead; nothing was done" in refused.output
    assert unsure.exit_code == 2
