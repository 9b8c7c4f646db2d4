"""`keep: running` in definitions: what it becomes, and what contradicts it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nimbus.definition import InvalidDefinitionError, parse_definition
from nimbus.domain.pipelines.pipeline import Concurrency, PipelineSpec, Retries


def parsed(
    keys: str = "", *, top: str = "", more: str = "", kind: str = "pyspark, script: s.py"
) -> PipelineSpec:
    text = f"schema: 1\nname: p\n{top}tasks:\n  s: {{type: {kind}, keep: running{keys}}}\n{more}"
    return parse_definition(text.encode(), "pipeline.yaml")


def test_kept_task_has_no_timeout_of_defaults_and_its_pipeline_room_for_one_run() -> None:
    spec = parsed(
        ", retries: {delay: 5s, max_delay: 2m}", top="defaults: {timeout: 1h, retries: {limit: 3}}\n"
    )

    (task,) = spec.tasks
    assert (task.keeps_running, task.timeout) == (True, None)
    assert task.retries == Retries(limit=3, delay=timedelta(seconds=5), max_delay=timedelta(minutes=2))
    assert spec.keeps_running
    assert spec.concurrency == Concurrency(limit=1)


def test_ordinary_pipeline_does_not_keep_running() -> None:
    text = b"schema: 1\nname: p\ntasks:\n  a: {type: python, script: a.py}\n"

    spec = parse_definition(text, "pipeline.yaml")

    assert not spec.keeps_running
    assert spec.concurrency is None


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("tasks.s.keep", {"kind": "sql, script: s.sql"}),
        ("tasks.s.keep", {"kind": 'approval, prompt: "ok?"'}),
        ("tasks.s.isolation", {"keys": ", isolation: pooled", "kind": "python, script: s.py"}),
        ("tasks.s.spark.mode", {"keys": ", spark: {mode: connect}"}),
        ("tasks.s.spark.mode", {"top": "defaults: {spark: {mode: connect}}\n"}),
        ("tasks.s.timeout", {"keys": ", timeout: 1h"}),
        ("tasks.s.queue_timeout", {"keys": ", queue_timeout: 1h"}),
        ("tasks.s.warn_after", {"keys": ", warn_after: 1h"}),
        ("tasks.s.publishes", {"keys": ", publishes: [d]", "top": "datasets: {d: {}}\n"}),
        ("tasks.s.allow_failure", {"keys": ", allow_failure: true"}),
        ("tasks.s.retries.limit", {"keys": ", retries: {limit: 3}"}),
        ("tasks.s.retries.on", {"keys": ", retries: {on: [error]}"}),
        ("tasks.b.needs[0]", {"more": "  b: {type: python, script: b.py, needs: [s]}\n"}),
        ("tasks.b.needs.s", {"more": "  b: {type: python, script: b.py, needs: {s: done}}\n"}),
        ("schedule", {"top": 'schedule: {cron: "0 6 * * *"}\n'}),
        ("timeout", {"top": "timeout: 1h\n"}),
        ("concurrency", {"top": "concurrency: {limit: 2}\n"}),
        ("expect", {"top": "expect: 1h\n"}),
        ("warn_after", {"top": "warn_after: 1h\n"}),
        ("parameters.x.required", {"top": "parameters: {x: {type: string, required: true}}\n"}),
    ],
)
def test_what_contradicts_a_kept_task_is_refused_with_its_place(place: str, text: dict[str, str]) -> None:
    with pytest.raises(InvalidDefinitionError) as refused:
        parsed(**text)

    assert f" {place}: " in str(refused.value)
