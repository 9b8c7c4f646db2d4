"""The API's document: names of operations, and no removals in v1."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.nimbus.unit.openapi_changes import COMMITTED, breaks, served


@pytest.fixture(scope="module")
def document() -> Any:
    return served()


def test_nothing_that_v1_has_is_removed_or_narrowed(document: Any) -> None:
    assert list(breaks(json.loads(COMMITTED.read_text()), document)) == []


def test_operations_have_names_of_their_own(document: Any) -> None:
    operations = [one for path in document["paths"].values() for one in path.values()]
    names = [one["operationId"] for one in operations]

    assert {"runs.start", "runs.list", "runs.get", "pipelines.activate", "cluster.status"} <= set(names)
    assert len(names) == len(set(names))
    assert all(one["tags"] for one in operations)


def test_operations_say_what_lets_a_caller_in(document: Any) -> None:
    assert document["components"]["securitySchemes"].keys() == {"token", "session"}
    assert document["security"] == [{"token": []}, {"session": []}, {}]
    assert "security" not in document["paths"]["/api/v1/runs"]["get"]
    for path in ("/healthz", "/hooks/{pipeline}"):
        assert all(one["security"] == [] for one in document["paths"][path].values())


def test_problems_are_documented_by_status(document: Any) -> None:
    for path in document["paths"].values():
        for operation in path.values():
            for status in ("404", "422", "429", "503"):
                content = operation["responses"][status]["content"]
                assert set(content) & {"application/problem+json", "application/json"}
    start = document["paths"]["/api/v1/runs"]["post"]["responses"]
    assert set(start["409"]["content"]) == {"application/problem+json"}


def test_links_name_operations_and_their_path_parameters(document: Any) -> None:
    operations = [one for path in document["paths"].values() for one in path.values()]
    in_path = {
        one["operationId"]: {each["name"] for each in one.get("parameters", []) if each["in"] == "path"}
        for one in operations
    }
    links = [
        link
        for one in operations
        for answer in one["responses"].values()
        for link in answer.get("links", {}).values()
    ]

    assert {"runs.get", "backfills.get", "cluster.command"} <= {link["operationId"] for link in links}
    for link in links:
        assert link["parameters"].keys() <= in_path[link["operationId"]]


def test_deprecated_operations_say_since_when_and_until_when(document: Any) -> None:
    marked = copy.deepcopy(document)
    marked["paths"]["/api/v1/runs"]["get"]["deprecated"] = True

    assert _undated(document) == []
    assert _undated(marked) == ["runs.list"]


def _undated(document: Any) -> list[str]:
    """Deprecated operations that do not declare the headers which docs/api.md promises."""
    return [
        one["operationId"]
        for path in document["paths"].values()
        for one in path.values()
        if one.get("deprecated")
        and not all(
            {"Deprecation", "Sunset"} <= answer.get("headers", {}).keys()
            for status, answer in one["responses"].items()
            if status.startswith("2")
        )
    ]


def _without_path(document: Any) -> None:
    del document["paths"]["/api/v1/runs"]


def _without_field(document: Any) -> None:
    del document["components"]["schemas"]["RunModel"]["properties"]["state"]


def _required_field(document: Any) -> None:
    document["components"]["schemas"]["StartRunBody"]["required"].append("priority")


def _lower_limit(document: Any) -> None:
    parameters = document["paths"]["/api/v1/runs"]["get"]["parameters"]
    next(one for one in parameters if one["name"] == "limit")["schema"]["maximum"] = 100


def _without_parameter(document: Any) -> None:
    operation = document["paths"]["/api/v1/runs"]["get"]
    operation["parameters"] = [one for one in operation["parameters"] if one["name"] != "state"]


def _without_value(document: Any) -> None:
    document["components"]["schemas"]["RunState"]["enum"].remove("queued")


@pytest.mark.parametrize(
    "change",
    [_without_path, _without_field, _required_field, _lower_limit, _without_parameter, _without_value],
)
def test_what_breaks_callers_is_found(document: Any, change: Callable[[Any], None]) -> None:
    changed = copy.deepcopy(document)
    change(changed)

    assert len(list(breaks(document, changed))) >= 1
    assert list(breaks(document, document)) == []
