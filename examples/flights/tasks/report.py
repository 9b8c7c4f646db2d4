"""Write the report from the small tables of the delay tasks: JSON, Markdown and a picture. No Spark."""

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from flightlib import charts, figures, markdown
from flightlib.tasklog import start_log

from nimbus.task import TaskContext, context


def rows(output: Path) -> list[dict[str, Any]]:
    """All rows of the table that a task left in its output folder."""
    found: list[dict[str, Any]] = pq.read_table(output / "data").to_pylist()
    return found


def heading(ctx: TaskContext) -> str:
    """What the report is about, and when."""
    first, last = ctx.parameters["first_month"], ctx.parameters["last_month"]
    months = f"2013-{first:02d}" if first == last else f"2013-{first:02d} to 2013-{last:02d}"
    return f"Flights from New York, {months}"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--late-minutes", type=int, required=True)
    late = options.parse_args().late_minutes
    log = start_log()
    ctx = context()
    tables = {task: rows(folder) for task, folder in ctx.inputs.items()}
    delays = tables["delay_histogram"]
    summary = figures.summarize(tables["delays_by_carrier"], tables["delays_by_hour"], delays)
    summary = {
        "schema": 1,
        "run_id": ctx.run_id,
        "release": ctx.release,
        "parameters": dict(ctx.parameters),
        **summary,
    }
    title = heading(ctx)
    shares = figures.shares_by_bucket(figures.histogram(delays, "departure"))
    (ctx.output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (ctx.output / "report.md").write_text(markdown.page(title, late, summary, tables), encoding="utf-8")
    (ctx.output / "report.svg").write_text(charts.draw(title, summary, shares, tables), encoding="utf-8")
    log.info("%s: %s flights, %s cancelled", title, f"{summary['flights']:,}", f"{summary['cancelled']:,}")


if __name__ == "__main__":
    main()
