"""The smallest example, as scripts and as functions of one file, run as a Nimbus driver runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pyarrow import parquet

EXAMPLES = Path(__file__).parents[3] / "examples"


def run_task(root: Path, folder: Path, task: str, args: list[str], inputs: dict[str, str]) -> Path:
    """Run one task in a new process. Returns its output folder."""
    output = folder / task
    output.mkdir()
    document = folder / f"{task}.json"
    content = {
        "pipeline": "hello",
        "release": "0" * 64,
        "run_id": "r1",
        "task": task,
        "attempt": 1,
        "logical_date": "2013-01-01T00:00:00+00:00",
        "parameters": {"name": "Ada"},
        "inputs": inputs,
        "output": str(output),
        "release_root": str(root),
    }
    scripts = yaml.safe_load((root / "pipeline.yaml").read_text())["tasks"]
    document.write_text(json.dumps(content), encoding="utf-8")
    subprocess.run(
        [sys.executable, str(root / scripts[task]["script"]), *args],
        env={**os.environ, "NIMBUS_CONTEXT": str(document)},
        check=True,
        timeout=120,
    )
    return output


@pytest.mark.parametrize("name", ["hello", "hello_python"])
def test_hello_passes_its_greeting_on_from_one_task_to_the_next(tmp_path: Path, name: str) -> None:
    greet = run_task(EXAMPLES / name, tmp_path, "greet", ["Ada"], {})
    measure = run_task(EXAMPLES / name, tmp_path, "measure", [], {"greet": str(greet)})

    result = json.loads((measure / "result.json").read_text(encoding="utf-8"))
    assert result == {"greeting": "Hello, Ada!", "characters": 11, "run_id": "r1"}


@pytest.mark.spark
def test_first_pipeline_adds_up_the_orders_of_a_day(tmp_path: Path) -> None:
    orders = run_task(EXAMPLES / "first", tmp_path, "orders", ["2013-01-01", "500"], {})
    totals = run_task(EXAMPLES / "first", tmp_path, "totals", [], {"orders": str(orders)})

    rows = [line.split(",") for line in (orders / "orders.csv").read_text().splitlines()[1:]]
    table = parquet.read_table(totals / "totals").to_pydict()
    assert sum(table["cents"]) == sum(int(cents) for _, _, cents in rows)
    assert dict(zip(table["customer"], table["orders"], strict=True)) == Counter(name for _, name, _ in rows)
