"""Releases and their differences: over real HTTP, on the command line, from a real disk."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.ids import CommandId, PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.pipeline import Retries
from tests.nimbus.definitions import on_disk
from tests.nimbus.release_stage import ReleaseStage

OLD = {
    "pipeline.yaml": b"one",
    "load.py": b"a = 1\nb = 2\n",
    "gone.py": b"x",
    "model.bin": b"\0\1",
    "same.py": b"",
}
NEW = {
    "pipeline.yaml": b"two",
    "load.py": b"a = 1\nb = 3\n",
    "new.py": b"",
    "model.bin": b"\0\2",
    "same.py": b"",
}


@pytest.fixture
def stage(world: Any) -> Any:
    """Releases `old` (active), `new` (the newest) and `far` (only in storage) of pipeline sums."""
    stage = world.releases
    stage.old, stage.new = stage.publish("sums", OLD), stage.publish("sums", NEW)
    stage.far = stage.publish("sums", {"load.py": b"far"}, here=False)
    load, extract = world.spec.tasks
    on_disk(stage.old, world.spec)
    on_disk(stage.new, replace(world.spec, tasks=(load, replace(extract, retries=Retries(limit=3)))))
    world.cluster.put(replace(world.record, release=stage.old.digest, published=stage.new.digest))
    return stage


def test_releases_are_listed_with_what_they_are(api: httpx.Client, stage: Any) -> None:
    rows = {row["digest"]: row for row in api.get("/pipelines/sums/releases").json()["releases"]}

    assert set(rows) == {stage.old.digest, stage.new.digest, stage.far.digest}
    assert [rows[stage.old.digest][key] for key in ("active", "newest", "pinned")] == [True, False, False]
    assert [rows[stage.new.digest][key] for key in ("active", "newest")] == [False, True]
    assert all(row["published_at"] for row in rows.values())


def test_release_says_its_files_who_has_it_and_who_activated_it(
    world: Any, api: httpx.Client, stage: Any
) -> None:
    outcome = CommandOutcome(
        command=CommandId("cmd-0000000001"),
        accepted=True,
        code="ok",
        message="done",
        decided_at=world.clock.now() - timedelta(days=1),
        epoch=3,
        kind="activate_pipeline",
        pipeline=PipelineName("sums"),
        names={"release": stage.old.digest},
        submitted_by="ann",
    )
    other = replace(outcome, command=CommandId("cmd-0000000002"), names={"release": stage.new.digest})
    world.history.store_outcomes([outcome, other])
    stage.announce("s1", stage.old)
    stage.announce("s2", stage.new)

    found = api.get(f"/pipelines/sums/releases/{stage.old.digest}").json()

    assert [(file["path"], file["size_bytes"]) for file in found["files"]] == [
        (path, len(data)) for path, data in sorted(OLD.items())
    ]
    assert found["here"] is True
    assert found["holders"] == {"holding": ["s1"], "lacking": ["s2"], "silent": []}
    assert [(row["kind"], row["submitted_by"]) for row in found["commands"]] == [("activate_pipeline", "ann")]
    assert api.get(f"/pipelines/sums/releases/{stage.far.digest}").json()["here"] is False


def test_diff_names_files_by_digest_and_keys_of_the_definition(api: httpx.Client, stage: Any) -> None:
    place = f"/pipelines/sums/releases/{stage.new.digest}/diff?against={stage.old.digest}"
    found = api.get(place).json()
    text = api.get(f"{place}&file=load.py").json()["text"]

    assert [(one["change"], one["path"]) for one in found["files"]] == [
        ("removed", "gone.py"), ("changed", "load.py"), ("changed", "model.bin"), ("added", "new.py"),
        ("changed", "pipeline.yaml"),
    ]  # fmt: skip
    assert found["definition"] == [
        {
            "key": "tasks.extract.retries.limit",
            "about": "task extract: retries.limit",
            "change": "changed",
            "before": 1,
            "after": 3,
        }
    ]
    assert (found["text"], text["diff"]) == (None, ["@@ -1,2 +1,2 @@", " a = 1", "-b = 2", "+b = 3"])


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b"\0", b"x", "no text"),
        (b"\xff", b"x", "no text"),
        (b"x", b"y" * (256 * 1024 + 1), "above 256 KiB"),
        (b"a\n" * 2000, b"b\n" * 2000, "not compared"),
    ],
)
def test_texts_that_are_none_or_too_large_are_not_compared(
    world: Any, api: httpx.Client, before: bytes, after: bytes, why: str
) -> None:
    old, new = (world.releases.publish("sums", {"f": data}) for data in (before, after))

    text = api.get(f"/pipelines/sums/releases/{new.digest}/diff?against={old.digest}&file=f").json()["text"]

    assert text["diff"] is None
    assert why in text["why_none"]


def test_diff_says_so_when_a_release_is_not_on_this_disk(api: httpx.Client, stage: Any) -> None:
    place = f"/pipelines/sums/releases/{stage.far.digest}/diff?against={stage.old.digest}&file=load.py"
    found = api.get(place).json()

    assert found["files_changed"] == 5
    assert found["definition"] is None
    assert "not on this disk" in found["definition_why_none"]
    assert found["text"]["diff"] is None
    assert "not on the disk of the scheduler" in found["text"]["why_none"]


def test_what_is_not_there_is_not_found(api: httpx.Client, stage: Any) -> None:
    base = f"/pipelines/sums/releases/{stage.old.digest}"
    answers = {
        f"/pipelines/sums/releases/{'0' * 64}": "unknown_release",
        f"{base}/diff?against={'0' * 64}": "unknown_release",
        f"{base}/diff?against={stage.new.digest}&file=same.py": "unknown_file",
        f"/pipelines/none/releases/{stage.old.digest}": "unknown_pipeline",
        "/pipelines/none/releases": "unknown_pipeline",
    }
    for path, code in answers.items():
        answer = api.get(path)

        assert (answer.status_code, answer.json()["code"]) == (404, code), path
    assert api.get(f"{base}/diff").status_code == 422


def test_releases_on_the_disk_are_compared_while_storage_is_away(api: httpx.Client, stage: Any) -> None:
    stage.bucket.unavailable = True

    listed = api.get("/pipelines/sums/releases").json()
    shown = api.get(f"/pipelines/sums/releases/{stage.old.digest}").json()
    compared = api.get(f"/pipelines/sums/releases/{stage.new.digest}/diff?against={stage.old.digest}")
    far = api.get(f"/pipelines/sums/releases/{stage.far.digest}")

    assert (listed["complete"], len(listed["releases"])) == (False, 2)
    assert (shown["holders"], shown["published_at"]) == (None, None)
    assert compared.json()["files_changed"] == 5
    assert (far.status_code, far.json()["code"]) == (503, "storage_unavailable")


def test_activation_keeps_its_reason_with_the_command(world: Any, api: httpx.Client, stage: Any) -> None:
    world.deciding = False
    api.post("/pipelines/sums/activate", json={"digest": stage.old.digest, "reason": "zurück: zu langsam"})

    (queued,) = world.reader.commands()
    assert queued.asked_by.reason == "zurück: zu langsam"
    (row,) = api.get("/commands").json()["commands"]
    assert (row["reason"], row["names"]) == ("zurück: zu langsam", {"release": stage.old.digest})


def test_command_line_lists_releases_and_prints_differences(
    api_url: str, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIMBUS_SERVER", api_url)

    def said(*words: str) -> Any:
        return CliRunner().invoke(cli, ["pipeline", *words])

    listed, compared = said("releases", "sums"), said("diff", "sums")
    text = said("diff", "sums", stage.new.digest[:10], "--against", stage.old.digest, "--file", "load.py")
    as_json = json.loads(said("diff", "sums", "-o", "json").stdout)

    assert "active" in listed.stdout
    assert "the newest" in listed.stdout
    assert all(word in compared.stdout for word in ("gone.py", "removed", "tasks.extract.retries.limit"))
    assert text.stdout.splitlines() == ["@@ -1,2 +1,2 @@", " a = 1", "-b = 2", "+b = 3"]
    assert (as_json["before"], as_json["after"]) == (stage.old.digest, stage.new.digest)
    assert said("diff", "sums", "zzz").exit_code == 3
    assert said("diff", "sums", "--file", "model.bin").exit_code == 4


def test_a_file_whose_name_reads_like_a_way_out_is_not_read(world: Any, api: httpx.Client) -> None:
    old, new = (world.releases.publish("sums", {"a.py": data}) for data in (b"1", b"2"))
    base = f"/pipelines/sums/releases/{new.digest}/diff?against={old.digest}&file="

    for path in ("../../../etc/passwd", "/etc/passwd", "a.py/../a.py", "%00"):
        assert api.get(base + path).json()["code"] == "unknown_file", path


def test_stage_of_an_inactive_pipeline_has_nothing_to_compare_with(api: httpx.Client, world: Any) -> None:
    stage: ReleaseStage = world.releases
    only = stage.publish("fresh", OLD)
    record: PipelineRecord = replace(
        world.record,
        name=PipelineName("fresh"),
        state=PipelineState.INACTIVE,
        release=None,
        published=only.digest,
    )
    world.cluster.put(record)

    (row,) = api.get("/pipelines/fresh/releases").json()["releases"]
    assert (row["active"], row["newest"]) == (False, True)
