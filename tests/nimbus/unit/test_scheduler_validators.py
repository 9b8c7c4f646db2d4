"""Operators' own rules about definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.config import InvalidConfigurationError, load_settings
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.scheduler.releases import ValidatorNotFoundError, Validators

SPEC = PipelineSpec(
    name=PipelineName("sums"),
    tasks=(TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py"),),
)
RULES = """
seen = []
def takes(spec): seen.append(spec.name)
def refuses(spec): raise ValueError("it has no owner: add one to the description")
def fails(spec): return 1 / 0
text = "no function"
"""


@pytest.fixture(autouse=True)
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)


def test_definition_passes_when_nobody_refuses_it() -> None:
    Validators(["house_rules:takes"]).check(SPEC)

    import house_rules  # type: ignore[import-not-found]

    assert house_rules.seen == ["sums"]


def test_refusal_has_the_text_of_the_rule() -> None:
    with pytest.raises(RefusedError, match="house_rules:refuses refuses sums: it has no owner") as refused:
        Validators(["house_rules:takes", "house_rules:refuses"]).check(SPEC)

    assert refused.value.code == "refused_by_validator"


def test_rule_that_fails_refuses_and_says_so() -> None:
    with pytest.raises(RefusedError, match=r"house_rules:fails failed on sums.*ZeroDivisionError"):
        Validators(["house_rules:fails"]).check(SPEC)


@pytest.mark.parametrize("place", ["house_rules:missing", "no_such_module:f", "house_rules:text"])
def test_rule_that_is_not_there_is_said_at_the_start(place: str) -> None:
    with pytest.raises(ValidatorNotFoundError, match=place):
        Validators([place])


def test_configuration_refuses_what_is_no_place_of_a_function(tmp_path: Path) -> None:
    file = tmp_path / "nimbus.yaml"
    file.write_text(
        "zookeeper: {hosts: 'h:2181'}\nstorage: {bucket: bkt}\n"
        "scheduler: {state_dir: /s, validators: [house_rules]}\nworker: {data: /d}\n"
    )

    with pytest.raises(InvalidConfigurationError, match=r"validators\[0\].*package\.module:function"):
        load_settings(file, {})
