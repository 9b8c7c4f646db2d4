"""A task in the API."""

from __future__ import annotations

import pytest

from nimbus.api.models import TaskSpecModel
from nimbus.domain.ids import TaskName
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkPlace, TaskKind, TaskSpec


@pytest.mark.parametrize(
    ("place", "target", "deploy"),
    [(None, None, None), (SparkPlace(target="big", deploy=SparkDeploy.CLUSTER), "big", "cluster")],
)
def test_task_says_where_its_spark_runs_when_it_has_a_target(
    place: SparkPlace | None, target: str | None, deploy: str | None
) -> None:
    task = TaskSpec(name=TaskName("a"), kind=TaskKind.SQL, script="a.sql", spark_place=place)

    told = TaskSpecModel.model_validate(task).model_dump(mode="json")

    assert (told["spark_target"], told["spark_deploy"]) == (target, deploy)
