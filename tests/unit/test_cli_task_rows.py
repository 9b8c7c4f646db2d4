"""What people see of how far a task is."""

from __future__ import annotations

from nimbus.cli.task_rows import progress


def test_progress_names_the_flows_under_way_and_counts_the_others() -> None:
    flows = {"a.b.done": "COMPLETED", "a.b.now": "RUNNING", "a.b.bad": "FAILED", "a.b.next": "QUEUED"}
    told = {"stages": 3, "flows": flows, "flows_total": 4, "flows_done": 1, "at": "now", "number": 7}

    said = progress({"attempts": [{"progress": told}]})

    assert said == "stages 3, flows a.b.now RUNNING; a.b.bad FAILED, flows_total 4, flows_done 1"
