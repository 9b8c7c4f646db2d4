"""The benchmark of the engine runs, at a small scale. The test does not check its figures."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmark.engine.__main__ import main
from tests.benchmark.engine.whole_run import MEASURES
from tests.thorough import thorough


@thorough
def test_benchmark_of_the_engine_measures_everything_at_a_small_scale(tmp_path: Path) -> None:
    figures, data = tmp_path / "figures.json", tmp_path / "data"

    assert main(["--quick", "--data", str(data), "--json", str(figures)]) == 0

    rows = json.loads(figures.read_text())["rows"]["after"]
    assert {row["measure"] for row in rows} == set(MEASURES)
    # Each figure is there: nothing was refused, and all that was waited for came in time.
    assert [row["words"] for row in rows if not row["value"]] == []
    assert not list(data.iterdir()), "the servers' data are removed"
