"""The progress of a task, as the command line shows it."""

from __future__ import annotations

from nimbus.cli.run.rows import application_rows, progress, remarks


def test_progress_names_the_flows_under_way_and_counts_the_others() -> None:
    flows = {"a.b.done": "COMPLETED", "a.b.now": "RUNNING", "a.b.bad": "FAILED", "a.b.next": "QUEUED"}
    told = {"stages": 3, "flows": flows, "flows_total": 4, "flows_done": 1, "at": "now", "number": 7}

    said = progress({"attempts": [{"progress": told}]})

    assert said == "stages 3, flows a.b.now RUNNING; a.b.bad FAILED, flows_total 4, flows_done 1"


def test_progress_ends_with_the_checkpoint_of_which_a_long_one_is_cut() -> None:
    def said(kept: object) -> str:
        return progress({"attempts": [{"progress": {"stages": 3}, "checkpoint": kept}]})

    assert said({"row": 3}) == 'stages 3, checkpoint {"row": 3}'
    assert said(0) == "stages 3, checkpoint 0"
    assert said(None) == "stages 3"
    assert said("x" * 100) == f'stages 3, checkpoint "{"x" * 58}…'


ENDED = {
    "outcome": "failed",
    "progress": None,
    "application": "app-1",
    "jvm": "new",
    "history_url": "http://h/history/app-1/",
}


def test_application_of_an_attempt_that_has_ended_is_named_with_its_page() -> None:
    task = {"name": "a", "why": None, "attempts": [ENDED]}

    assert remarks(task) == "application app-1, http://h/history/app-1/"
    assert (
        remarks({**task, "why": "failed: exit 1"})
        == "failed: exit 1, application app-1, http://h/history/app-1/"
    )


def test_application_of_an_attempt_that_runs_is_named_once() -> None:
    told = {"application": "app-1", "ui": "http://driver:4040"}
    attempt = {**ENDED, "outcome": None, "progress": told, "history_url": None}

    assert remarks({"why": None, "attempts": [attempt]}) == "application app-1, ui http://driver:4040"


def test_each_attempt_that_has_ended_and_had_an_application_has_a_row() -> None:
    without = {**ENDED, "number": 2, "application": None, "history_url": None}
    nowhere = {**ENDED, "number": 3, "history_url": None}
    running = {**ENDED, "number": 4, "outcome": None}
    tasks = [{"name": "a", "attempts": [{**ENDED, "number": 1}, without, nowhere, running]}]

    assert application_rows({"tasks": tasks}) == [
        ("a", 1, "app-1", "new", "http://h/history/app-1/"),
        ("a", 3, "app-1", "new", None),
    ]
