"""Datasets in definitions: what tasks publish, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.definition import InvalidDefinitionError, parse_definition
from nimbus.domain.data.publications import Accepted, Partitioning, Publication, Read
from nimbus.domain.ids import DatasetName, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.catalog import profile_of
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.parameters import InvalidParametersError
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, StartWhen
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run, RunCause
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError

TWO = """
schema: 1
name: p
parameters: {region: {type: string, default: eu}}
datasets:
  orders: {partition: interval, keep: 400d, fresh: 26h}
  regions: {partition: key}
  latest: {}
tasks:
  load: {type: python, script: load.py, publishes: {regions: {key: "{{ params.region }}"}}}
  check: {type: approval, prompt: Good?, needs: [load], publishes: {orders: {of: load}}}
  show: {type: python, script: show.py, publishes: [latest]}
"""

END = datetime(2026, 3, 1, tzinfo=UTC)
DRAFT = Draft(
    id=RunId("r"),
    pipeline=PipelineName("p"),
    release=ReleaseDigest("0" * 64),
    parameters={},
    logical_date=END,
    data_interval=DataInterval(start=END - timedelta(days=1), end=END),
    cause=RunCause.MANUAL,
    asked_at=END,
)


def parsed(text: str) -> PipelineSpec:
    return parse_definition(text.encode(), "pipeline.yaml")


def published(spec: PipelineSpec) -> dict[str, tuple[Publication, ...]]:
    return {task.name: task.publishes for task in spec.tasks}


def test_task_publishes_its_own_output_or_that_of_a_task_that_it_has_checked() -> None:
    spec = parsed(TWO)

    assert published(spec) == {
        "load": (
            Publication(
                dataset=DatasetName("regions"), partition=Partitioning.KEY, key="{{ params.region }}"
            ),
        ),
        "check": (
            Publication(
                dataset=DatasetName("orders"),
                partition=Partitioning.INTERVAL,
                of=TaskName("load"),
                keep=timedelta(days=400),
            ),
        ),
        "show": (Publication(dataset=DatasetName("latest")),),
    }
    assert spec.datasets == ("latest", "orders", "regions")
    assert profile_of(spec).fresh == {"orders": timedelta(hours=26)}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("publishes: [latest]", "publishes: [latets]", "there is no dataset 'latets' in `datasets`"),
        ("publishes: [latest]", "args: [x]", "no task publishes it"),
        ("publishes: [latest]", "publishes: [latest, orders]", "task 'check' publishes orders already"),
        ("{of: load}", "{}", "a approval task has no output; name the task whose output it is, with `of`"),
        ("{of: load}", "{of: show}", "'show' is not in the task's needs; add it"),
        ("{of: load}", "{of: load, key: x}", "orders is not partitioned by key; remove this"),
        ('{key: "{{ params.region }}"}', "{}", "is missing; regions is partitioned by key"),
        ("params.region }}", "tasks.show.result.x }}", "takes the result of a task"),
        ("params.region }}", "params.reigon }}", "reigon"),
        ("partition: key", "partition: keys", "keys"),
        ("keep: 400d", "keep: 0d", "keep"),
        ("keep: 400d", "keep: {versions: 0}", "datasets.orders.keep.versions"),
        ("keep: 400d", "keep: {versions: 101}", "datasets.orders.keep.versions"),
        ("keep: 400d", "keep: {partitions: 0d}", "datasets.orders.keep.partitions"),
        ("keep: 400d", "keep: {age: 3d}", "datasets.orders.keep.age"),
        ("keep: 400d", "keep: [3]", "datasets.orders.keep"),
        ("fresh: 26h", "fresh: 0h", "fresh"),
    ],
)
def test_fault_is_refused_with_its_place(before: str, after: str, said: str) -> None:
    assert before in TWO
    with pytest.raises(InvalidDefinitionError) as refused:
        parsed(TWO.replace(before, after))

    assert said in str(refused.value)
    assert "pipeline.yaml:" in str(refused.value)


@pytest.mark.parametrize(
    ("said", "partitions", "versions"),
    [
        ("{versions: 3, partitions: 400d}", timedelta(days=400), 3),
        ("{versions: 3}", None, 3),
        ("{partitions: 9d}", timedelta(days=9), 1),
    ],
)
def test_keep_names_an_age_and_a_number_of_versions(
    said: str, partitions: timedelta | None, versions: int
) -> None:
    (publication,) = published(parsed(TWO.replace("keep: 400d", f"keep: {said}")))["check"]

    assert (publication.keep, publication.keep_versions) == (partitions, versions)


def started(parameters: dict[str, str]) -> Run:
    return Templates().render(new_run(parsed(TWO), replace(DRAFT, parameters=parameters)))


def test_key_is_rendered_when_the_run_is_created() -> None:
    (publication,) = started({"region": "us"}).tasks[TaskName("load")].spec.publishes

    assert publication.key == "us"


@pytest.mark.parametrize("key", ["", "a/b", "../x", "a~b", "x" * 101, "ä", "a b", "_x"])
def test_key_that_is_no_name_is_refused(key: str) -> None:
    with pytest.raises(TemplateError, match="task load, publishes regions: key"):
        started({"region": key})


def test_run_without_a_data_interval_cannot_publish_one() -> None:
    with pytest.raises(InvalidParametersError, match="task check publishes a dataset by interval"):
        new_run(parsed(TWO), replace(DRAFT, data_interval=None))


READS = """
schema: 1
name: p
parameters: {region: {type: string, default: eu}}
reads:
  orders: {}
  visits: {dataset: site_visits, last: 7d}
  codes: {take: latest, optional: true}
  region: {dataset: regions, key: "{{ params.region }}"}
tasks:
  sum: {type: sql, script: sum.sql, reads: [orders, visits, codes]}
  mail: {type: python, script: mail.py, needs: [sum], reads: [region]}
"""


def test_pipeline_reads_datasets_by_names_that_its_tasks_use() -> None:
    spec = parsed(READS)

    assert spec.reads == (
        Read(name="orders", dataset=DatasetName("orders")),
        Read(name="visits", dataset=DatasetName("site_visits"), last=timedelta(days=7)),
        Read(name="codes", dataset=DatasetName("codes"), latest=True, optional=True),
        Read(name="region", dataset=DatasetName("regions"), key="{{ params.region }}"),
    )
    assert [task.uses for task in spec.tasks] == [("orders", "visits", "codes"), ("region",)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("reads: [region]", "reads: [regoin]", "there is no 'regoin' in `reads` of this pipeline"),
        ("reads: [region]", "args: [x]", "no task reads it"),
        ("reads: [region]", "reads: [region, sum]", "there is no 'sum' in `reads`"),
        ("take: latest,", "take: latest, last: 1d,", "does not go together with last"),
        ("last: 7d", "last: 7d, key: x", "does not go together with last"),
        ("last: 7d", "last: 7d, of: sum", "does not go together with of"),
        ("last: 7d", "of: smu", "'smu' is no task of type pipeline; name one"),
        ("last: 7d", "of: sum", "'sum' is no task of type pipeline; name one"),
        ("take: latest", "take: newest", "newest"),
        ("params.region }}", "tasks.sum.result.x }}", "takes the result of a task"),
        ("params.region }}", "params.reigon }}", "reigon"),
    ],
)
def test_fault_of_a_read_is_refused_with_its_place(before: str, after: str, said: str) -> None:
    assert before in READS
    with pytest.raises(InvalidDefinitionError) as refused:
        parsed(READS.replace(before, after))

    assert said in str(refused.value)
    assert "pipeline.yaml:" in str(refused.value)


def test_name_of_a_read_that_is_a_needed_task_is_refused() -> None:
    text = READS.replace("region: {dataset", "sum: {dataset").replace("reads: [region]", "reads: [sum]")
    with pytest.raises(InvalidDefinitionError, match="is a task that this one needs, too"):
        parsed(text)


def test_key_of_a_read_is_rendered_when_the_run_is_created() -> None:
    draft = replace(DRAFT, parameters={"region": "us"})
    run = Templates().render(new_run(parsed(READS), draft))

    assert [read.key for read in run.reads] == ["", "", "", "us"]
    with pytest.raises(TemplateError, match="reads region: key"):
        Templates().render(new_run(parsed(READS), replace(DRAFT, parameters={"region": "a/b"})))


FAN_IN = """
schema: 1
name: p
reads: {parts: {dataset: part, of: fan}}
tasks:
  fan: {type: pipeline, pipeline: region, params: {region: "{{ item }}"}, for_each: [eu, us]}
  sum: {type: python, script: sum.py, needs: [fan], reads: [parts]}
"""


def test_task_reads_what_child_runs_published_only_after_them() -> None:
    assert parsed(FAN_IN).reads == (Read(name="parts", dataset=DatasetName("part"), of=TaskName("fan")),)
    with pytest.raises(InvalidDefinitionError, match="'fan' published, which is not in the task's needs"):
        parsed(FAN_IN.replace("needs: [fan], ", ""))


KEYS = """
schema: 1
name: p
parameters: {region: {type: string, default: eu}}
datasets: {regions: {partition: key}}
tasks:
  first: {type: python, script: a.py, publishes: {regions: {key: "{{ params.region }}"}}}
  second:
    type: python
    script: b.py
    needs: [first]
    args: ["{{ tasks.first.result.x }}"]
    publishes: {regions: {key: us}}
"""


def test_two_tasks_that_publish_the_same_key_are_refused() -> None:
    with pytest.raises(
        InvalidDefinitionError, match=r"second\.publishes\.regions\.key: task 'first' publishes it"
    ):
        parsed(KEYS.replace("key: us", 'key: "{{ params.region }}"'))

    run = Templates().render(new_run(parsed(KEYS), DRAFT))
    assert [task.spec.publishes[0].key for task in run.tasks.values()] == ["eu", "us"]
    with pytest.raises(
        TemplateError, match="task second, publishes regions: task first publishes key us already"
    ):
        Templates().render(new_run(parsed(KEYS), replace(DRAFT, parameters={"region": "us"})))


def test_two_tasks_whose_keys_name_the_task_differ() -> None:
    text = KEYS.replace("{{ params.region }}", "{{ task.name }}").replace("key: us", 'key: "{{ task.name }}"')

    run = Templates().render(new_run(parsed(text), DRAFT))

    assert [task.spec.publishes[0].key for task in run.tasks.values()] == ["first", "second"]


def test_dataset_from_outside_needs_no_task() -> None:
    text = TWO.replace(
        "datasets:\n",
        "datasets:\n  landing: {partition: interval, keep: 9d, outside: true}\n"
        "  rates: {outside: [erp], readers: [sales]}\n",
    )
    spec = parsed(text)

    assert spec.accepts == (
        Accepted(dataset=DatasetName("landing"), partition=Partitioning.INTERVAL, keep=timedelta(days=9)),
        Accepted(dataset=DatasetName("rates"), partition=Partitioning.WHOLE, senders=("erp",)),
    )
    assert spec.datasets == ("landing", "latest", "orders", "rates", "regions")
    assert spec.readers == {"rates": ("sales",)}
    assert parsed(text.replace("[sales]", "[]")).readers == {"rates": ()}


STARTING = """
schema: 1
name: report
start: data
schedule: {cron: "@daily", timezone: UTC}
reads:
  orders: {}
  codes: {start: false}
tasks:
  sum: {type: python, script: a.py, reads: [orders, codes], publishes: [total]}
datasets: {total: {}}
"""


def test_pipeline_starts_by_the_data_that_it_reads() -> None:
    spec = parsed(STARTING)

    assert spec.start == DataStart()
    assert {read.name: read.starts for read in spec.reads} == {"orders": True, "codes": False}
    settled = STARTING.replace("start: data", "start: {settle: 10m}")
    assert parsed(settled).start == DataStart(settle=timedelta(minutes=10))
    by_all = STARTING.replace("start: data", "start: {data: all}").replace("schedule:", "# schedule:")
    assert parsed(by_all).start == DataStart(when=StartWhen.ALL)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("start: data", "start: {data: all}", "does not go together with a schedule"),
        ("start: data", "start: {data: some}", "some"),
        ("start: data", "priority: low", "has no effect without `start: data`"),
        ("orders: {}", "orders: {start: false}", "no read starts runs"),
        ("orders: {}", "orders: {dataset: total}", "each run would start the next one"),
        ("start: data", "start: data\nparameters: {x: {type: string, required: true}}", "data start gets no"),
    ],
)
def test_fault_of_a_start_by_data_is_refused_with_its_place(before: str, after: str, said: str) -> None:
    assert before in STARTING
    with pytest.raises(InvalidDefinitionError) as refused:
        parsed(STARTING.replace(before, after))

    assert said in str(refused.value)


NEW = """
schema: 1
name: report
concurrency: {limit: 1}
reads:
  landing: {take: new}
  again: {dataset: old, take: new}
tasks:
  sum: {type: python, script: a.py, reads: [landing, again]}
"""


def test_pipeline_reads_what_is_new() -> None:
    assert [(read.new, read.latest) for read in parsed(NEW).reads] == [(True, False), (True, False)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("concurrency: {limit: 1}", "priority: low", "needs `concurrency: {limit: 1}`"),
        ("limit: 1", "limit: 2", "needs `concurrency: {limit: 1}`"),
        ("dataset: old", "dataset: landing", "'landing' reads what is new in this dataset already"),
        ("landing: {take: new}", "landing: {take: new, key: eu}", "does not go together with key"),
        ("landing: {take: new}", "landing: {take: new, last: 2d}", "does not go together with last"),
        (
            "landing: {take: new}",
            "landing: {take: new, optional: true}",
            "does not go together with optional",
        ),
    ],
)
def test_fault_of_a_read_of_what_is_new_is_refused(before: str, after: str, said: str) -> None:
    assert before in NEW
    with pytest.raises(InvalidDefinitionError, match=re.escape(said)):
        parsed(NEW.replace(before, after))
