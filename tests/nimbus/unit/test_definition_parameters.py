"""Parameters of a run: defaults, parsing, checks, and all errors reported together."""

from __future__ import annotations

from typing import Any

import pytest

from nimbus.domain.ids import PipelineName
from nimbus.domain.parameters import LONGEST_TEXT, InvalidParametersError, resolve_parameters
from nimbus.domain.pipeline import ParameterSpec, PipelineSpec

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
