"""Definitions of the releases on a scheduler's disk: read once, without waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import cast

import pytest

from blobsync import LocalStore, ReleaseRef, RetryPolicy, Syncer, collect, publish
from blobsync.testing.memory import MemoryObjectStore
from nimbus.definition import parse_definition
from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import DEFINITION_FILE
from nimbus.ports import DefinitionNotHereError
from nimbus.scheduler import releases
from nimbus.scheduler.releases import LocalReleases, Validators

TEXT = "schema: 1\nname: {name}\ntasks:\n  a: {{type: python, script: a.py, args: ['{{{{ ds }}}}']}}\n"


class Disk:
    """A syncer whose releases are folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.read: list[str] = []

    def put(self, name: str) -> ReleaseOf:
        release = ReleaseOf(PipelineName(name), ReleaseDigest("a" * 64))
        (self.root / name).mkdir()
        (self.root / name / DEFINITION_FILE).write_text(TEXT.format(name=name))
        return release

    def is_here(self, ref: ReleaseRef) -> bool:
        return (self.root / ref.name).exists()

    @contextmanager
    def pinned(self, ref: ReleaseRef, timeout: timedelta) -> Iterator[Path]:
        self.read.append(ref.name)
        yield self.root / ref.name


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_definition_is_read_from_the_disk_once(disk: Disk) -> None:
    local, release = LocalReleases(cast("Syncer", disk)), disk.put("p")

    first, second = local.definition(release), local.definition(release)

    assert first is second
    assert [task.name for task in first.tasks] == ["a"]
    assert disk.read == ["p"]


def test_a_definition_that_was_checked_when_it_was_published_is_not_read_again(disk: Disk) -> None:
    local, release = LocalReleases(cast("Syncer", disk)), disk.put("p")

    assert local.definition(release) is local.definition(release)
    assert local.prepare(release) == local.definition(release)
    assert len(disk.read) == 2, "a look and a check"


def test_a_calendar_is_read_from_the_release_and_a_bad_one_is_refused(disk: Disk) -> None:
    local, release = LocalReleases(cast("Syncer", disk)), disk.put("p")
    with (disk.root / "p" / DEFINITION_FILE).open("a") as definition:
        definition.write("schedule: {cron: '@daily', calendar: de}\n")
    file = disk.root / "p" / "calendars" / "de.yaml"
    file.parent.mkdir()

    file.write_text("holidays: [2026-05-01, 2026-05-01]\n")
    with pytest.raises(
        RefusedError, match=r"p/calendars/de\.yaml:1: holidays\[1\]: 2026-05-01 is here twice"
    ):
        local.prepare(release)
    file.write_text("holidays: [2026-05-01]\n")
    schedule = local.prepare(release).schedule

    assert schedule is not None
    assert (schedule.days, schedule.of_release) == (Calendar(exceptions=(date(2026, 5, 1),)), True)


def test_a_release_that_is_not_here_is_said_at_once_and_found_when_it_has_come(disk: Disk) -> None:
    local = LocalReleases(cast("Syncer", disk))

    with pytest.raises(DefinitionNotHereError, match="not on this disk now"):
        local.definition(ReleaseOf(PipelineName("p"), ReleaseDigest("a" * 64)))
    assert local.definition(disk.put("p")).name == "p"
    assert disk.read == ["p"], "it was not asked for before"


def test_a_new_process_reads_the_definition_of_a_release_that_is_on_its_disk(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / DEFINITION_FILE).write_text(TEXT.format(name="p"))
    bucket = MemoryObjectStore()
    made = publish(bucket, name="p", files=collect(folder, include=[DEFINITION_FILE]))
    with LocalStore(tmp_path / "store") as store:
        syncer = Syncer(bucket, store, retry=RetryPolicy())
        with syncer.pinned(ReleaseRef("p", made.digest), timedelta(seconds=30)):
            pass
        found = LocalReleases(syncer).definition(ReleaseOf(PipelineName("p"), ReleaseDigest(made.digest)))
        syncer.close(timedelta(seconds=30))

    assert found.name == "p"


@pytest.mark.parametrize(
    ("sql", "names_it"),
    [
        ("SELECT '{{ data_interval_start }}'", True),
        ("SELECT {{ fmt(data_interval_end, '%d') }}", True),
        ("SELECT '{{ ds }}' -- data_interval_start", False),
        ("{% if data_interval_start is defined %}SELECT '{{ data_interval_start }}'{% endif %}", False),
        ("SELECT '{{ data_interval_start | default(ds) }}'", False),
    ],
)
def test_a_definition_knows_which_sql_files_need_a_data_interval(
    disk: Disk, sql: str, names_it: bool
) -> None:
    local, release = LocalReleases(cast("Syncer", disk)), disk.put("p")
    text = "schema: 1\nname: p\ntasks:\n  a: {type: sql, script: a.sql}\n  b: {type: sql, script: b.sql}\n"
    (disk.root / "p" / DEFINITION_FILE).write_text(text)
    (disk.root / "p" / "a.sql").write_text(sql)  # there is no b.sql: the task reports this when it runs

    assert local.definition(release).interval_files == (("a.sql",) if names_it else ())


def test_a_release_without_a_definition_is_refused(disk: Disk) -> None:
    release = disk.put("p")
    (disk.root / "p" / DEFINITION_FILE).unlink()

    with pytest.raises(RefusedError) as refused:
        LocalReleases(cast("Syncer", disk)).definition(release)
    assert refused.value.code == "no_definition"


def test_only_the_definitions_that_were_asked_for_last_are_kept(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "MAX_TASKS_KEPT", 2)
    local = LocalReleases(cast("Syncer", disk))
    p, q, r = (disk.put(name) for name in "pqr")

    for release in (p, q, p, r, p):
        local.definition(release)
    assert disk.read == ["p", "q", "r"]
    local.definition(q)
    assert disk.read == ["p", "q", "r", "q"]


def test_a_release_that_a_rule_of_the_house_refuses_is_not_taken_in(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strict_rules.py").write_text("def refuse(spec): raise ValueError('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    local = LocalReleases(cast("Syncer", disk), Validators(["strict_rules:refuse"]))

    with pytest.raises(RefusedError, match="strict_rules:refuse refuses p: not here"):
        local.prepare(disk.put("p"))


def test_release_that_names_a_secret_of_others_is_refused_when_it_is_published(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "check_apart", parse_definition)  # without a process
    release = disk.put("p")
    file = disk.root / "p" / DEFINITION_FILE
    file.write_text(file.read_text().replace("a.py,", "a.py, secrets: {DB: warehouse},"))
    LocalReleases(cast("Syncer", disk)).prepare(release)

    with pytest.raises(RefusedError) as refused:
        LocalReleases(cast("Syncer", disk), secret_rules=SecretRules({})).prepare(release)

    assert refused.value.code == "secret_denied"
