"""Outputs of tasks: the API, the command line and the page, on a real server with a folder of outputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from nimbus.adapters.s3_purges import S3Purges
from nimbus.api.access import page_need
from nimbus.api.runs import outputs as output_routes
from nimbus.api.services import OpenedFile
from nimbus.cli.run import outputs as command
from nimbus.domain.cluster.access import AccessDeniedError, AccessRole
from nimbus.domain.data.outputs import ListedFile, Listing
from nimbus.domain.ids import HostId, PipelineName, RunId, TaskName
from nimbus.domain.runs.purge import Purged, Said
from nimbus.domain.runs.run import RunPart
from nimbus.domain.runs.task_run import Outcome, Reused, TaskState
from nimbus.scheduler.output_files import FolderFiles
from nimbus.worker.data.folder_checks import MARK
from tests.nimbus.integration.conftest import T0
from tests.nimbus.one_application import application

Invoke = Callable[..., Result]
FILES = {"data/part-0": b"rows" * 100, "data/part-1": b"", "summary.json": b"{}"}
OUTPUT = "sums/r1/extract/1"
DAMAGED = "not what was listed"


@pytest.fixture
def output(world: Any, tmp_path: Path) -> Path:
    """The output of task `extract` of run `r1`, which goes on with task `load`."""
    top = tmp_path / "data" / OUTPUT
    for name, data in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    (tmp_path / "data" / MARK).write_text("mark")
    world.outputs = FolderFiles(tmp_path / "data", lambda _given: "mark")
    run = world.opened(world.new_run("r1"), "extract")
    run = world.ended(run, "extract", Outcome.SUCCEEDED, result={"rows": 7}, output=OUTPUT)
    world.opened(run, "load", minutes=3)
    return top


def test_outputs_are_listed_with_their_place_and_files(output: Path, api: httpx.Client) -> None:
    answer = api.get("/runs/r1/outputs").json()
    (made,) = answer["outputs"]

    assert answer["complete"]
    assert {name: made[name] for name in ("task", "run", "attempt", "reference", "worker", "host")} == {
        "task": "extract",
        "run": "r1",
        "attempt": 1,
        "reference": OUTPUT,
        "worker": "w1",
        "host": "one",
    }
    assert made["uri"] == f"file://{output}"
    assert [(file["path"], file["size_bytes"]) for file in made["files"]] == [
        ("summary.json", 2),
        ("data/part-0", 400),
        ("data/part-1", 0),
    ]
    assert (made["total_files"], made["total_bytes"], made["truncated"]) == (3, 402, False)


def test_list_is_cut_and_goes_on_after_a_file(output: Path, api: httpx.Client) -> None:
    first = api.get("/runs/r1/outputs", params={"task": "extract", "limit": 2}).json()["outputs"][0]
    rest = api.get("/runs/r1/outputs", params={"task": "extract", "after": "data/part-0"}).json()
    answer = api.get("/runs/r1/outputs", params={"limit": 10_001})

    assert (len(first["files"]), first["truncated"], first["total_files"]) == (2, True, None)
    assert [file["path"] for file in rest["outputs"][0]["files"]] == ["data/part-1"]
    assert answer.status_code == 422


def test_file_is_sent_as_a_download(output: Path, api: httpx.Client) -> None:
    (output / "data" / 'a "ö".html').write_text("<script>")
    answer = api.get("/runs/r1/tasks/extract/output", params={"path": 'data/a "ö".html'})

    assert answer.content == b"<script>"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20%22%C3%B6%22.html"
    assert answer.headers["Content-Length"] == "8"


def test_head_of_a_file_reads_no_more_than_its_beginning(
    output: Path, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_routes, "_sent", None)
    answer = api.head("/runs/r1/tasks/extract/output", params={"path": "data/part-0"})

    assert (answer.status_code, answer.headers["Content-Length"], answer.content) == (200, "400", b"")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/runs/r1/tasks/extract/output?path=../1/summary.json", "unknown_file"),
        ("/runs/r1/tasks/extract/output?path=none", "unknown_file"),
        ("/runs/r1/tasks/load/output?path=a", "no_output"),
        ("/runs/r1/outputs?task=load", "no_output"),
        ("/runs/r1/outputs?task=other", "unknown_task"),
        ("/runs/r2/outputs", "unknown_run"),
    ],
)
def test_what_does_not_exist_is_not_found(output: Path, api: httpx.Client, path: str, code: str) -> None:
    answer = api.get(path)

    assert (answer.status_code, answer.json()["code"]) == (404, code)


@pytest.mark.parametrize("place", [None, FolderFiles(None, lambda _given: "")])
def test_scheduler_without_the_folder_says_which_host_has_it(
    world: Any, output: Path, api: httpx.Client, nimbus: Invoke, tmp_path: Path, place: FolderFiles | None
) -> None:
    world.outputs = place
    application(world.services())  # with the other place
    (made,) = api.get("/runs/r1/outputs").json()["outputs"]
    answer = api.get("/runs/r1/tasks/extract/output", params={"path": "summary.json"})
    got = nimbus("run", "get", "r1", "extract", str(tmp_path / "new"))

    assert (answer.status_code, answer.json()["code"]) == (409, "outputs_not_here")
    assert answer.json()["detail"] == made["unreadable"]
    assert (
        "scheduler s1 cannot read sums/r1/extract/1: it has no worker.data in its configuration"
        in (made["unreadable"])
    )
    assert "Worker w1 on one stored it" in made["unreadable"]
    assert "ask scheduler s2 on the same host (`--server http://s2:8700`)" in made["unreadable"]
    assert (made["uri"], made["files"]) == (None, [])
    assert (got.exit_code, got.stderr) == (4, f"error: {made['unreadable']}\n")
    assert "Worker w1 on one stored it" in nimbus("run", "outputs", "r1").stderr

    world.cluster.put(replace(world.worker, host=HostId("h9")))
    (made,) = api.get("/runs/r1/outputs").json()["outputs"]
    assert "ask a scheduler that has that (`--server URL`)" in made["unreadable"]


def test_reused_output_is_that_of_the_other_run_until_it_is_purged(
    world: Any, output: Path, api: httpx.Client
) -> None:
    origin = world.reader.run(RunId("r1")).tasks[TaskName("extract")]
    run = world.new_run("r2")
    task = replace(
        run.tasks[TaskName("extract")],
        state=TaskState.SUCCEEDED,
        reused=Reused(run=RunId("r1"), attempt=origin.committed),
    )
    world.put_live(replace(run, tasks=run.tasks.replaced([task])))

    (made,) = api.get("/runs/r2/outputs").json()["outputs"]
    assert (made["run"], made["total_files"]) == ("r1", 3)

    purged = Purged(run=RunId("r1"), pipeline=PipelineName("sums"), created_at=T0)
    noted = purged.with_parts([RunPart.OUTPUTS], Said(at=T0, by="ann", why="space"))
    S3Purges(world.releases.bucket).note(noted)
    (made,) = api.get("/runs/r2/outputs").json()["outputs"]
    answer = api.get("/runs/r2/tasks/extract/output", params={"path": "summary.json"})

    assert made["unreadable"] == "outputs of run r1 were purged on 2026-03-01 by ann (space)."
    assert (answer.status_code, answer.json()["code"]) == (404, "output_purged")


def test_outputs_are_shown_with_their_rows(output: Path, nimbus: Invoke) -> None:
    lines = nimbus("run", "outputs", "r1").stdout.splitlines()
    shown = nimbus("run", "outputs", "r1", "extract").stdout
    answer = json.loads(nimbus("run", "outputs", "r1", "-o", "json").stdout)
    cut = nimbus("run", "outputs", "r1", "--limit", "1")

    assert lines[-1].split() == ["extract", "3", "402", "B", "7", f"file://{output}"]
    assert "data/part-0" in shown
    assert answer["results"] == {"extract": {"rows": 7}}
    assert "more than 1" in cut.stdout
    assert ["extract", "7", OUTPUT, '{"rows":', "7}"] in [
        line.split() for line in nimbus("run", "show", "r1").stdout.splitlines()
    ]
    assert "raise --limit" in cut.stderr


def test_output_is_copied_into_a_new_folder(
    output: Path, nimbus: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_PAGE", 2)
    target = tmp_path / "new"
    got = nimbus("run", "get", "r1", "extract", str(target), "-o", "json")
    again = nimbus("run", "get", "r1", "extract", str(target))
    answer = json.loads(got.stdout)

    assert {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*.*")} | {
        f"data/{path.name}": path.read_bytes() for path in (target / "data").iterdir()
    } == FILES
    assert (answer["folder"], answer["verified"], answer["size_bytes"]) == (str(target), "size", 402)
    assert {file["path"]: file["sha256"] for file in answer["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()
    }
    assert "3/3 data/part-1, 0 B" in got.stderr
    assert (again.exit_code, again.stdout) == (2, "")
    assert "exists, and nothing is overwritten" in again.stderr


class _Hostile:
    """A place of outputs that lies, as a scheduler of somebody else might."""

    def __init__(self, *files: ListedFile) -> None:
        self._files = files

    def uri(self, reference: str) -> str:
        return reference

    def listed(self, _reference: str, _limit: int, _after: str = "") -> Listing:
        return Listing(files=self._files, total_files=len(self._files), total_bytes=0)

    def opened(self, _reference: str, path: str) -> OpenedFile:
        return OpenedFile(ListedFile(path=path, size_bytes=4), iter([b"evil"]))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["../evil"], "'../evil' has the segment '..'"),
        (["/evil"], "'/evil' is absolute"),
        (["a\x1b[2J"], "has a control character"),
        (["A", "a"], "are one name on some disks"),
        (["a", "a/b"], "are one name on some disks"),
        (["short"], DAMAGED),
    ],
)
def test_hostile_names_and_content_leave_nothing(
    world: Any,
    output: Path,
    nimbus: Invoke,
    tmp_path: Path,
    files: list[str],
    said: str,
) -> None:
    size = 5 if said == DAMAGED else 4
    world.outputs = _Hostile(*(ListedFile(path=path, size_bytes=size) for path in files))
    application(world.services())
    (tmp_path / "here").mkdir()

    got = nimbus("run", "get", "r1", "extract", str(tmp_path / "here" / "new"))

    assert (got.exit_code, got.stdout) == (4, "")
    assert said in got.stderr
    assert "\x1b" not in got.stderr
    assert list((tmp_path / "here").iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_page_of_a_task_links_to_its_files(output: Path, web: httpx.Client) -> None:
    page = web.get("/ui/runs/r1/tasks/extract").text

    assert 'href="/ui/runs/r1/tasks/extract/output?path=data%2Fpart-0#rows"' in page
    assert "3 files, 402 B in" in page
    assert 'id="output"' not in web.get("/ui/runs/r1/tasks/load").text


def test_page_shows_first_rows_to_those_who_may_download_the_file(
    world: Any, output: Path, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "id,<b>name</b>\n" + "".join(f"{n},<script>{n}\n" for n in range(50_000))
    (output / "rows.csv").write_text(rows)
    (output / "link.csv").symlink_to("/etc/passwd")
    (output / "bad \u202e.bin").write_bytes(b"\0")
    page = f"{api_url}/ui/runs/r1/tasks/extract/output"

    first = httpx.get(page).text
    assert "rows.csv</h2>" in first
    assert "&lt;b&gt;name&lt;/b&gt;<br>" in first
    assert '<td class="n">19</td><td>&lt;script&gt;19</td>' in first
    assert "<script>1" not in first
    assert "It is no text." in httpx.get(page, params={"path": "bad \u202e.bin"}).text
    for path in ("link.csv", "../1/rows.csv", "none.csv"):
        assert httpx.get(page, params={"path": path}).status_code == 404
    assert httpx.get(page.replace("extract", "load")).status_code == 404
    assert 'href="/ui/runs/r1/tasks/extract/output?path=rows.csv#rows"' in httpx.get(page[:-7]).text

    def refused(*_args: Any) -> None:
        raise AccessDeniedError("role_too_low", "no")

    monkeypatch.setattr(output_routes._Outputs, "check_reader", refused)
    assert httpx.get(page).status_code == 403
    assert page_need("GET /runs/{run_id}/tasks/{task}/output") is AccessRole.OPERATOR


def test_result_of_a_task_is_a_table(output: Path, api_url: str) -> None:
    assert '<th scope="row">rows</th><td>7</td>' in httpx.get(f"{api_url}/ui/runs/r1/tasks/extract").text
