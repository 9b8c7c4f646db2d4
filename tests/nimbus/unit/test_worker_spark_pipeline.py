"""Declarative pipelines without Spark: progress, and the settings of Spark."""

from __future__ import annotations

import io

from nimbus.worker.driver.programs import FlowBook, settings_for

LINES = """\
2026-11-22 21:47:05: Starting run...
2026-11-22 21:47:06: Flow spark_catalog.default.numbers is QUEUED.
2026-11-22 21:47:06: Flow spark_catalog.default.evens is QUEUED.
2026-11-22 21:47:06: Flow spark_catalog.default.numbers is RUNNING.
"""


def test_flow_book_knows_the_last_state_of_each_flow_and_passes_all_on() -> None:
    out = io.StringIO()
    book = FlowBook(out)

    print(LINES, end="", file=book)
    print("2026-11-22 21:47:09: Flow spark_catalog.default.numbers has COMPLETED.", file=book)
    print(
        "2026-11-22 21:47:09: Flow 'spark_catalog.default.my evens' has FAILED more than 2 times.", file=book
    )

    assert out.getvalue().startswith(LINES)
    assert book.figures() == {
        "flows": {
            "spark_catalog.default.numbers": "COMPLETED",
            "spark_catalog.default.evens": "QUEUED",
            "spark_catalog.default.my evens": "FAILED",
        },
        "flows_total": 3,
        "flows_done": 1,
        "flows_failed": 1,
    }


def test_flow_book_has_no_figures_before_the_first_flow() -> None:
    book = FlowBook(io.StringIO())

    print("2026-11-22 21:47:05: Starting run...", file=book)

    assert book.figures() == {}


def test_flow_book_names_few_of_many_flows_and_counts_all() -> None:
    book = FlowBook(io.StringIO())

    for number in range(1000):
        print(f"2026-11-22 21:47:06: Flow a.b.{number} is QUEUED.", file=book)

    figures = book.figures()
    assert figures["flows_total"] == 1000
    assert len(figures["flows"]) == 50


def test_settings_keep_tables_in_the_output_unless_a_warehouse_is_named() -> None:
    own = settings_for({"spark.x": "1"}, "/data/out")
    named = settings_for({"spark.sql.warehouse.dir": "s3a://w"}, "/data/out")

    assert own["spark.sql.warehouse.dir"] == "/data/out"
    assert named["spark.sql.warehouse.dir"] == "s3a://w"
    assert own["spark.connect.grpc.binding.port"] == "0"
    assert own["spark.connect.grpc.binding.address"] == "127.0.0.1"
