"""Parameters of a run: defaults, parsing, checks, and all errors reported together."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.parameters import LONGEST_TEXT, InvalidParametersError, resolve_parameters
from nimbus.domain.pipelines.pipeline import ParameterSpec, PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.child_runs import repeated
from nimbus.domain.runs.children import Children, ChildSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run, RunCause
from nimbus.web.actions import fields

SPEC = PipelineSpec(
    name=PipelineName("flights"),
    parameters={
        "month": ParameterSpec(type="integer", default=1, minimum=1, maximum=12),
        "rate": ParameterSpec(type="number", default=0.5),
        "who": ParameterSpec(type="string", default="all", choices=("all", "some")),
        "flaky": ParameterSpec(type="boolean", default=False),
    },
)
NEEDY = PipelineSpec(
    name=PipelineName("needy"), parameters={"text": ParameterSpec(type="string", required=True)}
)


def test_parameters_that_are_not_given_have_their_defaults() -> None:
    assert resolve_parameters(SPEC, {"month": 3}) == {"month": 3, "rate": 0.5, "who": "all", "flaky": False}


def test_texts_of_a_command_line_take_the_types_of_their_parameters() -> None:
    given = {"month": "12", "rate": "-1.5e3", "who": "some", "flaky": "True"}

    assert resolve_parameters(SPEC, given, strings=True) == {
        "month": 12,
        "rate": -1500.0,
        "who": "some",
        "flaky": True,
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"moth": 1}, "pipeline flights has no parameter 'moth' (did you mean \"month\"?)"),
        ({"zebra": 1}, "(it has month, rate, who, flaky)"),
        ({"month": 0}, "parameter 'month' must be at least 1, not 0"),
        ({"month": 13}, "parameter 'month' must be at most 12, not 13"),
        ({"month": "3"}, "parameter 'month' must be of type integer, not '3'"),
        ({"month": 3.0}, "parameter 'month' must be of type integer, not 3.0"),
        ({"month": True}, "parameter 'month' must be of type integer, not True"),
        ({"month": None}, "parameter 'month' must be of type integer, not None"),
        ({"month": 10**30}, "parameter 'month' must be of type integer, not so large a number"),
        ({"rate": "x"}, "parameter 'rate' must be of type number, not 'x'"),
        ({"rate": float("nan")}, "parameter 'rate' must be of type number, not nan"),
        ({"rate": float("inf")}, "parameter 'rate' must be of type number, not inf"),
        ({"who": "none"}, "parameter 'who' must be one of 'all', 'some', not 'none'"),
        ({"who": ["all"]}, "parameter 'who' must be of type string, not ['all']"),
        ({"flaky": 1}, "parameter 'flaky' must be of type boolean, not 1"),
    ],
)
def test_value_that_does_not_fit_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParametersError) as refused:
        resolve_parameters(SPEC, given)

    assert words in str(refused.value)
    assert len(refused.value.problems) == 1
    assert (refused.value.code, refused.value.exit_code) == ("invalid_parameters", 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("month", "3.0"), ("month", "1_0"), ("month", " 3"), ("month", "٣"), ("month", ""),
        ("month", "9" * 5000),
        ("rate", "nan"), ("rate", "inf"), ("rate", "1e999"), ("rate", "x"), ("rate", ""),
        ("flaky", "yes"), ("flaky", "1"), ("flaky", ""),
    ],
)  # fmt: skip
def test_text_that_does_not_have_the_form_of_its_type_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidParametersError, match=f"parameter '{name}' must be of type"):
        resolve_parameters(SPEC, {name: text}, strings=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\0b", "null character"),
        ("\ud800", "not valid Unicode"),
        ("x" * (LONGEST_TEXT + 1), "at most 16384"),
    ],
)
def test_text_that_no_command_line_or_record_can_hold_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidParametersError, match=words):
        resolve_parameters(NEEDY, {"text": text})


def test_all_problems_of_parameters_are_told_at_once() -> None:
    with pytest.raises(InvalidParametersError) as refused:
        resolve_parameters(SPEC, {"month": 0, "zebra": 1, "flaky": "no"})

    assert len(refused.value.problems) == 3


def test_required_parameter_must_be_given() -> None:
    with pytest.raises(InvalidParametersError, match="'text' is required; give it a value of type string"):
        resolve_parameters(NEEDY, {})
    assert resolve_parameters(NEEDY, {"text": ""}) == {"text": ""}


REGIONS = PipelineSpec(
    name=PipelineName("regions"),
    parameters={
        "regions": ParameterSpec(type="list", items="string", default=["eu", "us"]),
        "shards": ParameterSpec(type="list", items="integer", default=[], minimum=1, maximum=9),
    },
    tasks=(
        TaskSpec(
            name=TaskName("each"),
            kind=TaskKind.PIPELINE,
            script="",
            children=ChildSpec(
                pipeline=PipelineName("region"),
                for_each={
                    "region": "{{ params.regions }}",
                    "shard": (1, 2),
                    "day": "{{ tasks.plan.result.days }}",
                },
            ),
        ),
    ),
)


def test_a_list_is_given_as_json() -> None:
    given = {"regions": '["eu", "asia"]', "shards": "[]"}

    assert resolve_parameters(REGIONS, given, strings=True) == {"regions": ["eu", "asia"], "shards": []}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"regions": "eu"}, "parameter 'regions' must be of type list, not 'eu'"),
        ({"regions": ["eu", 3]}, "parameter 'regions' [1] must be of type string, not 3"),
        ({"regions": [["eu"]]}, "parameter 'regions' [0] must be of type string, not ['eu']"),
        ({"shards": [1, 10]}, "parameter 'shards' [1] must be at most 9, not 10"),
        ({"shards": [True]}, "parameter 'shards' [0] must be of type integer, not True"),
        ({"regions": ["x" * 9000] * 2}, f"must have at most {LONGEST_TEXT} characters as JSON, not 18008"),
    ],
)
def test_a_list_that_does_not_fit_is_refused_with_the_value_at_fault(
    given: dict[str, Any], words: str
) -> None:
    for strings in (False, True):
        with pytest.raises(InvalidParametersError) as caught:
            resolve_parameters(REGIONS, given, strings=strings)
        assert words in str(caught.value)


def _run(parameters: dict[str, Any]) -> Run:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    return new_run(
        REGIONS,
        Draft(
            id=RunId("r"),
            pipeline=REGIONS.name,
            release=ReleaseDigest("0" * 64),
            parameters=parameters,
            logical_date=moment,
            cause=RunCause.MANUAL,
            asked_at=moment,
        ),
    )


def test_a_new_run_has_the_items_of_its_parameters() -> None:
    task = _run({"regions": ["asia"]}).tasks[TaskName("each")]

    assert task.spec.children is not None
    assert task.spec.children.for_each == {
        "region": ("asia",),
        "shard": (1, 2),
        "day": "{{ tasks.plan.result.days }}",
    }


@pytest.mark.parametrize(("regions", "keeps"), [(["eu", "us"], True), (["us"], False)])
def test_a_rerun_keeps_items_that_succeeded_only_with_the_same_list(regions: list[str], keeps: bool) -> None:
    began = Children(attempt=1, began_at=datetime(2026, 3, 1, tzinfo=UTC), epoch=1, states="sf", tried=(1, 1))
    was = replace(_run({"regions": ["eu", "us"]}).tasks[TaskName("each")], children=began)
    task = _run({"regions": regions}).tasks[TaskName("each")]

    assert (repeated(task, was, keeps_release=True, keeps_items=True).children is not None) is keeps


def test_the_form_of_a_run_takes_a_list_as_json() -> None:
    spec = ParameterSpec(
        type="list", items="string", default=["eu"], choices=("eu", "us"), description="All."
    )
    (field,) = fields({"regions": spec}, {})

    assert (field.name, json.loads(field.value), field.options) == ("json.regions", ["eu"], [])
    assert field.hint == 'All. a JSON list, such as ["a", "b"]'
