"""Definitions are checked in a process with limits, which no definition can take from the leader."""

from __future__ import annotations

import pytest

from nimbus.definition import apart, parse_definition
from nimbus.definition.apart import check_apart
from nimbus.domain.errors import RefusedError

TEXT = b"""
schema: 1
name: x
schedule: {cron: "@daily"}
parameters: {p: {type: number, default: 1.5, choices: [1.5, 2]}}
tasks:
  a: {type: pyspark, script: a.py, args: ["{{ params.p }}", 010], spark: {conf: {spark.a: 1.10}}}
  b: {type: sql, script: b.sql, needs: {a: done}, when: "{{ ds == 'x' }}", retries: {limit: 1}, env: {A: b}}
  c: {type: pipeline, pipeline: y, for_each: {r: [a, 1, true]}, params: {q: "{{ item.r }}"}, needs: [b]}
  d: {type: wait, waits_for: [{pipeline: self}], timeout: 1h}
"""
COSTLY = b"schema: 1\nname: x\nparameters: {a: {type: string, default: a, choices: [%s]}}\n" % (
    b",".join(b"%d" % number for number in range(200_000))
)


def test_a_definition_is_the_same_as_when_it_is_read_here() -> None:
    assert check_apart(TEXT, "x.yaml") == parse_definition(TEXT, "x.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT + b"zebra: 1\n", "x.yaml:11: zebra: unknown key"),
        (TEXT.replace(b"params.p", b"params.q"), "x.yaml:7: tasks.a.args[0]: there is no parameter 'q'"),
    ],
)
def test_a_definition_that_is_not_valid_is_refused_with_its_place(text: bytes, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_apart(text, "x.yaml")

    assert refused.value.code == "invalid_definition"
    assert words in str(refused.value)


def test_a_definition_that_takes_more_than_the_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "CPU_S", 0.5)
    with pytest.raises(RefusedError, match="takes more than 0 s to check; make it smaller"):
        check_apart(COSTLY, "x.yaml")

    monkeypatch.undo()
    monkeypatch.setattr(apart, "MEMORY_BYTES", 130 << 20)
    with pytest.raises(RefusedError, match="takes more than 130 MiB to check"):
        check_apart(COSTLY, "x.yaml")
