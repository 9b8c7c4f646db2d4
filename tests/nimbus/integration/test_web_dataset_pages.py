"""Pages of datasets, over real HTTP."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from nimbus.domain.data.datasets import MAX_SPANS
from nimbus.domain.data.publications import Partitioning, Publication, Read, Table
from nimbus.domain.ids import DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.run import RunState
from tests.nimbus.definitions import active
from tests.nimbus.integration.web_pages import LARGEST_PAGE, Parsed
from tests.nimbus.integration.web_samples import datasets, layered


def words_of(text: str, part: str) -> str:
    """The words in the element with an id, without tags."""
    found = re.search(rf'id="{part}".*?</(?:dl|section|tr)>', text, re.DOTALL)
    assert found is not None, part
    return " ".join(re.sub(r"<[^>]*>", " ", found[0].partition(">")[2]).split())


def test_list_shows_what_is_late_and_links_to_the_newest_run(world: Any, web: httpx.Client) -> None:
    datasets(world)
    text = web.get("/ui/datasets").text

    assert words_of(text, "d-days").startswith("late days interval shop")
    assert words_of(text, "d-regions").startswith("regions key shop")
    assert words_of(text, "d-report") == "report report &ndash; 0"
    assert 'href="/ui/runs/shop-1"' in text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["days", "regions", "report", "soon"]),
        ("?sort=-name", ["soon", "report", "regions", "days"]),
        ("?sort=-versions", ["days", "regions", "soon", "report"]),
        ("?sort=versions", ["report", "soon", "regions", "days"]),
        ("?sort=-data", ["regions", "days", "soon", "report"]),
        ("?sort=published", ["report", "soon", "days", "regions"]),
        ("?state=late", ["days"]),
        ("?state=fresh", ["soon"]),
        ("?state=unpublished&tag=&find=", ["report"]),
        ("?find=RE", ["regions", "report"]),
        ("?tag=nightly", ["soon"]),
    ],
)
def test_datasets_are_sorted_by_column_and_filtered_by_state_name_and_tag(
    world: Any, web: httpx.Client, query: str, shown: list[str]
) -> None:
    datasets(world)
    task, soon = layered(1)[0], DatasetName("soon")
    spec = PipelineSpec(
        name=PipelineName("nightly"),
        tags=("nightly",),
        fresh={soon: timedelta(days=900)},
        tasks=(replace(task, publishes=(Publication(dataset=soon),)),),
    )
    world.cluster.put(active(spec))

    text = web.get(f"/ui/datasets{query}").text

    assert re.findall(r'<tr id="d-([^"]+)"', text) == shown
    assert "aria-sort=" in text


def test_dataset_page_shows_newest_versions_first_and_counts_missing_days(
    world: Any, web: httpx.Client
) -> None:
    datasets(world)
    text = web.get("/ui/datasets/days").text
    runs = re.findall(r'href="/ui/runs/(shop-\d+)" data-row', text)

    assert runs == [f"shop-{ago}" for ago in range(1, 31) if ago not in (3, 4)]
    assert "28 published" in words_of(text, "days")
    assert "0 in part" in words_of(text, "days")
    assert "2 missing" in words_of(text, "days")
    assert "Read by report" in words_of(text, "facts")
    assert "Published by shop" in words_of(text, "facts")
    assert "Late since" in words_of(text, "facts")


def test_versions_of_one_partition_are_shown_alone(world: Any, web: httpx.Client) -> None:
    datasets(world)
    text = web.get("/ui/datasets/regions?partition=us").text

    assert re.findall(r'id="v-([^"]*)"', text) == ["us-2"]


def test_run_page_shows_what_it_pinned(world: Any, web: httpx.Client) -> None:
    datasets(world)
    facts = words_of(web.get("/ui/runs/report-1").text, "facts")
    data = web.get("/ui/runs/report-1?view=data").text.partition('<div class="beside">')[0]

    assert "Reads days (3 versions), regions (3 versions); which versions" in facts
    assert re.findall(r'href="/ui/runs/(shop-\d+)"', data) == [
        "shop-1",  # it started the run
        "shop-5",
        "shop-2",
        "shop-1",
        "shop-1",
        "shop-1",
    ]


def test_data_from_outside_are_shown_with_who_sent_them_and_do_no_harm(world: Any, web: httpx.Client) -> None:
    datasets(world)

    for path in (
        "/ui/datasets/regions",
        "/ui/datasets/regions?partition=apac",
        "/ui/runs/report-1?view=data",
    ):
        text = web.get(path).text
        assert "from outside, by <bdi>&lt;script&gt;alert(1)" in text, path
        assert "(unverified)" in text, path
        assert "<script>alert" not in text, path


def many(world: Any, count: int) -> None:
    """Pipelines that publish ten datasets each, all with full records, and read those of the one before."""
    task, days = layered(1)[0], DatasetName("days")
    datasets(world, 2 * MAX_SPANS)
    full = world.reader.dataset(days)
    assert len(full.versions) == 40
    for number in range(count // 10):
        names = [DatasetName(f"data-{10 * number + place:05d}") for place in range(10)]
        publications = tuple(Publication(dataset=name, partition=Partitioning.INTERVAL) for name in names)
        reads = (Read(name="before", dataset=DatasetName(f"data-{10 * number - 10:05d}")),) if number else ()
        reading = tuple(read.name for read in reads)
        spec = PipelineSpec(
            name=PipelineName(f"flow-{number:04d}"),
            reads=reads,
            tasks=(replace(task, publishes=publications, uses=reading),),
        )
        world.cluster.put(active(spec))
        for name in names:
            world.cluster.set("datasets", name, replace(full, name=name))


def test_pages_of_many_datasets_are_small_and_read_only_what_they_show(
    world: Any, web: httpx.Client, monkeypatch: Any
) -> None:
    many(world, 1000)
    read: Counter[str] = Counter()
    inner = world.reader.datasets

    def counted(names: Any) -> Any:
        names = list(names)
        read["records"] += len(names)
        return inner(names)

    monkeypatch.setattr(world.reader, "datasets", counted)
    sizes = {}
    for path in ("/ui/datasets", "/ui/datasets/days", "/ui/datasets/data-00500", "/ui/lineage"):
        with web.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
            sent = b"".join(packed.iter_raw())
        sizes[path] = len(sent)
        if path == "/ui/datasets":
            following = next(
                link for link in Parsed(gzip.decompress(sent).decode()).links if "cursor=" in link
            )

    assert max(sizes.values()) < LARGEST_PAGE, sizes
    assert read["records"] == 100
    said = web.get("/ui/datasets?sort=-data").text
    assert read["records"] == 300
    assert "803 more are left out" in said.partition('id="unsorted"')[2]
    assert "left out" not in web.get("/ui/datasets?sort=-data&find=data-0050").text
    assert 'id="d-data-00100"' in web.get(following).text


def test_columns_of_the_newest_version_are_shown(world: Any, web: httpx.Client) -> None:
    datasets(world)
    assert 'id="columns"' not in web.get("/ui/datasets/days").text
    columns = {"id": "bigint", "<script>alert(1)": "array<string>"}
    world.history.store_results(RunId("shop-1"), {}, {TaskName("task-0000"): Table(columns=columns, more=2)})

    text = web.get("/ui/datasets/days").text

    said = text.partition('id="columns"')[2].partition("</section>")[0]
    assert "<bdi>&lt;script&gt;alert(1)</bdi>" in said
    assert "array&lt;string&gt;" in said
    assert "2 more columns" in said
    assert "<script>alert" not in text
    partition = re.findall(r'id="v-([^"]*)-\d+"', text)[0]
    assert 'id="columns"' in web.get("/ui/datasets/days", params={"partition": partition}).text


def test_versions_name_their_intervals_by_dates_in_the_zone_of_the_pipeline(
    world: Any, web: httpx.Client
) -> None:
    datasets(world)
    text = web.get("/ui/datasets/days").text
    row = text.partition('<tr id="v-')[2].partition("</tr>")[0]

    assert ">2026-02-26</time> to <time" in row
    assert ">2026-02-27</time>" in row
    assert "Z to 2026" not in text


def test_read_of_a_run_that_has_ended_without_it_does_not_wait(world: Any, web: httpx.Client) -> None:
    datasets(world)
    run = world.reader.run("report-1")
    world.cluster.put(replace(run, pins={}, state=RunState.FAILED, finished_at=world.clock.now()))
    page, data = web.get("/ui/runs/report-1").text, web.get("/ui/runs/report-1?view=data").text

    assert "(not read)" in words_of(page, "facts")
    assert "none was pinned" in data
    assert "(waits)" not in page
    assert "yet" not in data.partition("<h2>Pinned")[2].partition("</section>")[0]
