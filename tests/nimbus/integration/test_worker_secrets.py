"""A task's secrets, with real processes: its code has them, but no stored or shown text contains them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.host import procfs
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, eventually

VALUE = "s3cr3t-of-the-warehouse"
SOON = timedelta(seconds=20)
CODE = """
import os, sys, subprocess, time
value = os.environ["DB_PASSWORD"]
sys.stdout.write(value[:9]); sys.stdout.flush(); time.sleep(0.05); sys.stdout.write(value[9:] + " split\\n")
print("whole", value, value[::-1])
subprocess.run(["sh", "-c", 'echo "child $DB_PASSWORD"'], check=True)
"""


@pytest.fixture
def bench(tmp_path: Path, shared_forks: None) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def workers(bench: Bench) -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.close(SOON)


def start(bench: Bench, workers: list[Worker], **secrets: str) -> None:
    worker = bench.worker("w1", settings={"secrets": secrets.__getitem__})
    worker.start()
    workers.append(worker)


def order(bench: Bench, text: str, **more: Any) -> None:
    made = bench.order(bench.script("main.py", text), **more)
    task = replace(made.task, secrets={"DB_PASSWORD": "warehouse"})
    bench.board.assign("w1", replace(made, task=task))


def test_secret_reaches_the_code_of_a_task_and_nothing_that_is_kept(
    bench: Bench, workers: list[Worker]
) -> None:
    start(bench, workers, warehouse=VALUE)
    order(bench, CODE)

    end = bench.await_end()
    folder = bench.folder()
    eventually(lambda: folder.is_delivered, "delivery", 60)
    log = folder.log.read_text()
    assert end.outcome is Outcome.SUCCEEDED, log
    assert log == f"*** split\nwhole *** {VALUE[::-1]}\nchild ***\n"
    assert bench.files_with(VALUE) == []


def test_secret_is_masked_in_the_reason_of_a_failure(bench: Bench, workers: list[Worker]) -> None:
    start(bench, workers, warehouse=VALUE)
    order(bench, "import os\nraise ValueError('no ' + os.environ['DB_PASSWORD'])\n")

    end = bench.await_end()
    assert (end.outcome, "no ***" in end.reason, VALUE in end.reason) == (Outcome.FAILED, True, False)
    eventually(lambda: bench.folder().is_delivered, "delivery", 60)
    assert bench.files_with(VALUE) == []


def test_secret_is_masked_in_what_a_program_writes(bench: Bench, workers: list[Worker]) -> None:
    start(bench, workers, warehouse=VALUE)
    made = bench.order("sh", task_kind=TaskKind.SHELL, args=("-ec", 'echo "$DB_PASSWORD" >&2; exit 3'))
    task = replace(made.task, secrets={"DB_PASSWORD": "warehouse"})
    bench.board.assign("w1", replace(made, task=task))

    end = bench.await_end()
    assert (end.outcome, end.reason) == (Outcome.FAILED, "*** [exit code 3]")
    eventually(lambda: bench.folder().is_delivered, "delivery", 60)
    assert bench.files_with(VALUE) == []


def test_secret_is_in_no_list_of_processes_while_the_task_runs(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    start(bench, workers, warehouse=VALUE)
    gate = tmp_path / "gate"
    wait = f"import time, pathlib\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)\n"
    order(bench, wait)
    eventually(lambda: bench.slots().claim is not None, "claim", 60)

    shown = []
    for process in procfs.living():
        place = Path(f"/proc/{process.id.pid}")
        try:
            shown.append((place / "cmdline").read_bytes() + (place / "environ").read_bytes())
        except OSError:
            continue
    gate.touch()
    assert bench.await_end().outcome is Outcome.SUCCEEDED
    assert not any(VALUE.encode() in text for text in shown)


def test_attempt_is_refused_with_the_name_when_a_secret_is_not_there(
    bench: Bench, workers: list[Worker]
) -> None:
    start(bench, workers, other=VALUE)
    order(bench, CODE)

    end = bench.await_end()
    assert (end.outcome, end.reason) == (Outcome.REFUSED, "there is no secret warehouse")
    assert end.pipeline_at_fault


def test_secret_of_one_task_is_not_in_the_environment_of_the_next(
    bench: Bench, workers: list[Worker]
) -> None:
    start(bench, workers, warehouse=VALUE)
    order(bench, "import os; print(len(os.environ['DB_PASSWORD']))")
    assert bench.await_end().outcome is Outcome.SUCCEEDED

    script = bench.script(
        "other.py", "import os; print(sorted(os.environ)); assert 'DB_PASSWORD' not in os.environ"
    )
    bench.board.assign("w1", bench.order(script, attempt="run1.other.1"))

    assert bench.await_end("run1.other.1").outcome is Outcome.SUCCEEDED


def test_retry_asks_for_the_secret_again(bench: Bench, workers: list[Worker]) -> None:
    given = iter(["first", VALUE])
    worker = bench.worker("w1", settings={"secrets": lambda _: next(given)})
    worker.start()
    workers.append(worker)
    text = f"import os; assert os.environ['DB_PASSWORD'] == {VALUE!r}"
    order(bench, text)
    assert bench.await_end().outcome is Outcome.FAILED

    order(bench, text, attempt="run1.task.2")

    assert bench.await_end("run1.task.2").outcome is Outcome.SUCCEEDED


def test_attempt_of_a_pipeline_that_may_not_use_the_secret_is_refused(
    bench: Bench, workers: list[Worker]
) -> None:
    read: list[str] = []
    settings = {
        "secrets": lambda name: read.append(name) or VALUE,
        "secret_rules": SecretRules({"other": ["bench"]}),
    }
    worker = bench.worker("w1", settings=settings)
    worker.start()
    workers.append(worker)

    order(bench, CODE)

    end = bench.await_end()
    assert end.outcome is Outcome.REFUSED
    assert "pipeline bench may not use secret warehouse" in end.reason
    assert read == []
