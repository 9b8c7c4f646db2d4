"""The template of a SQL file, as the driver fills it in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from nimbus.task import TaskContext
from nimbus.worker.sql_task import render_sql


@pytest.mark.parametrize(
    ("logical_date", "day"),
    [("2026-03-02T00:30:00+01:00", "2026-03-02"), ("2026-03-01T23:30:00Z", "2026-03-01")],
)
def test_dates_in_a_sql_file_are_the_local_day_of_the_logical_date(logical_date: str, day: str) -> None:
    task = TaskContext(
        pipeline="p",
        release="a" * 64,
        run_id="p-1",
        task="t",
        attempt=1,
        logical_date=datetime.fromisoformat(logical_date),
        parameters={},
        inputs={},
        output=Path("out"),
        release_root=Path("release"),
        fence_token="000001",
    )

    rendered = render_sql("{{ ds }} {{ ds_nodash }} {{ run.logical_date.day }}", task, "t.sql")

    assert rendered == f"{day} {day.replace('-', '')} {int(day[-2:])}"
