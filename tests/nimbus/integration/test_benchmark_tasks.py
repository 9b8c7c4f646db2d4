"""The benchmark of tasks runs, at a small scale. The test does not check its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmark.tasks import __main__ as benchmark
from tests.benchmark.tasks import peers, starts
from tests.benchmark.tasks.shapes import QUICK
from tests.thorough import thorough


@thorough
def test_benchmark_of_tasks_measures_pooled_tasks_at_a_small_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "QUICK", replace(QUICK, chain=4, fanout=6, small=(2, 3), settle_s=0))
    figures, data = tmp_path / "figures.json", tmp_path / "data"
    words = ["--quick", "--products", "pooled", "--workloads", "chain,small,logs"]

    assert benchmark.main([*words, "--data", str(data), "--json", str(figures)]) == 0

    found = {row["workload"]: row for row in json.loads(figures.read_text())["figures"]}
    assert [row["failure"] for row in found.values() if row["failure"]] == []
    assert {name: row["tasks"] for name, row in found.items()} == {
        "chain": 4, "small": 6, "logs": 7, "objects": 7,
    }  # fmt: skip
    assert found["chain"]["gap_ms"]["p50"] > 0
    measured = {kind for row in found.values() for kind in row["cpu_ms"]}
    assert {"scheduler", "ZooKeeper", "executor", "drivers"} <= measured, "more than a clock tick each"
    assert 0 < found["objects"]["objects"] <= 7
    assert not list(data.iterdir()), "the servers' data are removed"


@thorough
def test_benchmark_of_starts_measures_each_stage(tmp_path: Path) -> None:
    figures, data = tmp_path / "figures.json", tmp_path / "data"
    words = ["--runs", "2", "--turns", "1", "--pause-ms", "0", "--data", str(data), "--json", str(figures)]

    assert starts.main(words) == 0

    found = json.loads(figures.read_text())["ms"]["after"]
    assert {stage for stage, values in found.items() if len(values) == 2} >= {starts.TOTAL, starts.ANSWER}
    assert {starts.COMMAND, starts.ORDER, starts.CLAIM, starts.FIRST_LINE} <= found.keys()
    assert not list(data.iterdir()), "the servers' data are removed"


@pytest.mark.parametrize("has_tools", [False, True])
def test_benchmark_of_tasks_leaves_out_airflow_and_says_why_where_it_is_not_installed(
    has_tools: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "PROJECT", tmp_path)
    monkeypatch.setattr(peers, "postgres_bin", lambda: None)
    why = "airflow: left out: not installed: `make bench-airflow-tools`"
    if has_tools:
        python = tmp_path / "build" / "bench-airflow-tools" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
        why = "airflow: left out: Postgres is not installed: `apt-get install postgresql`"
    words = ["--quick", "--products", "airflow", "--data", str(tmp_path), "--json", str(tmp_path / "json")]

    assert benchmark.main([*words, "--workloads", "chain"]) == 0

    assert why in capsys.readouterr().out
