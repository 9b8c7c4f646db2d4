"""Tasks of kind `shell`, as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import Limits, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.java import JavaMissingError
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host import procfs
from nimbus.worker.launcher import ForkLauncher
from tests.nimbus.worker_bench import Bench, eventually


@pytest.fixture
def bench(tmp_path: Path, forks: ForkLauncher) -> Iterator[Bench]:
    made = Bench(tmp_path, forks)
    yield made
    made.close()


def _start(bench: Bench, *command: str, **order: Any) -> AttemptFolder:
    folder = bench.folder()
    folder.create(bench.order(command[0], task_kind=TaskKind.SHELL, args=command[1:], **order))
    bench.launch(folder, bench.startup(stop_grace_s=0.5))
    return folder


def _run(bench: Bench, *command: str, **order: Any) -> tuple[End, str]:
    folder = _start(bench, *command, **order)
    eventually(lambda: folder.is_delivered, "delivery", 60)
    end = folder.exit_record()
    assert end is not None
    return end, folder.log.read_text()


def test_program_of_the_host_gets_its_arguments_as_they_are(bench: Bench) -> None:
    end, log = _run(bench, "printf", "<%s>", "a b", "$HOME; `id`", "*")

    assert (end.outcome, end.exit_code, end.reason) == (Outcome.SUCCEEDED, 0, "")
    assert log == "<a b><$HOME; `id`><*>"


def test_program_of_the_release_runs_in_the_temporary_folder(bench: Bench) -> None:
    bench.script("bin/load.sh", '#!/bin/sh\npwd; echo "$0 $1"\n')
    (bench.release / "bin/load.sh").chmod(0o755)

    end, log = _run(bench, "./bin/load.sh", "x")

    assert end.outcome is Outcome.SUCCEEDED, log
    assert log.splitlines() == [str(bench.folder().scratch), f"{bench.release}/bin/load.sh x"]


def test_task_finds_all_that_it_may_know_in_its_environment(bench: Bench) -> None:
    text = 'env | grep ^NIMBUS_ | sort; cat "$NIMBUS_CONTEXT" > "$NIMBUS_OUTPUT/context"'
    end, log = _run(
        bench,
        "sh",
        "-ec",
        text,
        parameters={"who": "a b", "month": 1, "on": True, "rate": 0.5},
        inputs={"make-numbers": "bench/run1/make-numbers/1"},
    )

    assert end.outcome is Outcome.SUCCEEDED, log
    assert (bench.data / "bench/run1/task/1/context").read_text() == bench.folder().context_file.read_text()
    found = dict(line.partition("=")[::2] for line in log.splitlines() if line.startswith("NIMBUS_"))
    assert {name: found[name] for name in found if name not in ("NIMBUS_TEST", "NIMBUS_ATTEMPT")} == {
        "NIMBUS_ATTEMPT_NUMBER": "1",
        "NIMBUS_CHECKPOINT": str(bench.folder().checkpoint_file),
        "NIMBUS_CONTEXT": str(bench.folder().context_file),
        "NIMBUS_FENCE_TOKEN": "000001",
        "NIMBUS_LAST_CHECKPOINT": "",
        "NIMBUS_INPUT_make_numbers": str(bench.data / "bench/run1/make-numbers/1"),
        "NIMBUS_LOGICAL_DATE": "2013-01-31T00:00:00+00:00",
        "NIMBUS_OUTPUT": str(bench.data / "bench/run1/task/1"),
        "NIMBUS_PARAM_month": "1",
        "NIMBUS_PARAM_on": "true",
        "NIMBUS_PARAM_rate": "0.5",
        "NIMBUS_INPUT_URI_make_numbers": f"file://{bench.data}/bench/run1/make-numbers/1",
        "NIMBUS_OUTPUT_URI": f"file://{bench.data}/bench/run1/task/1",
        "NIMBUS_PARAM_who": "a b",
        "NIMBUS_PIPELINE": "bench",
        "NIMBUS_RELEASE_ROOT": str(bench.release),
        "NIMBUS_RESULT": str(bench.folder().result_file),
        "NIMBUS_RUN_ID": "run1",
        "NIMBUS_TASK": "task",
        "NIMBUS_TZ": "UTC",
    }


def test_exit_code_that_is_not_zero_is_a_failure_with_the_last_words(bench: Bench) -> None:
    end, _ = _run(bench, "sh", "-c", "echo no such table >&2; exit 3")

    assert (end.outcome, end.exit_code, end.reason) == (Outcome.FAILED, 3, "no such table [exit code 3]")


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ("no-such-program", 127, "no-such-program: No such file or directory"),
        ("/etc/passwd", 126, "/etc/passwd: Permission denied"),
        ("./text", 126, "Exec format error: its first line does not name an interpreter, such as #!/bin/sh"),
        ("./crlf", 127, "No such file or directory: its lines end as in Windows (CRLF)"),
        ("./gone", 127, "No such file or directory: its interpreter /usr/bin/gone does not exist here"),
    ],
)
def test_program_that_cannot_be_started_is_a_failure_as_in_a_shell(
    bench: Bench, program: str, code: int, words: str
) -> None:
    for name, text in (("text", b"no program"), ("crlf", b"#!/bin/sh\r\n"), ("gone", b"#!/usr/bin/gone\n")):
        (bench.release / name).write_bytes(text)
        (bench.release / name).chmod(0o755)

    end, _ = _run(bench, program)

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, code)
    assert words in end.reason


def test_program_has_signals_as_one_that_a_shell_starts(bench: Bench) -> None:
    end, log = _run(bench, "bash", "-c", "set -o pipefail; yes | head -1; echo ${PIPESTATUS[@]}")

    assert log == "y\n141 0\n", "yes must end by SIGPIPE"
    assert end.outcome is Outcome.SUCCEEDED


def test_program_and_all_it_started_end_with_the_timeout(bench: Bench) -> None:
    end, _ = _run(bench, "sh", "-c", "setsid sleep 600 & sleep 600", timeout=timedelta(seconds=1))

    assert end.outcome is Outcome.TIMED_OUT
    assert bench.driver_tree() == []


def test_program_dies_with_its_runner(bench: Bench) -> None:
    _start(bench, "sleep", "600")
    eventually(lambda: [p for p in bench.driver_tree() if _name(p.pid) == "sleep"], "the program runs")
    runner = bench.runner()
    assert runner is not None

    procfs.kill(runner)

    eventually(lambda: bench.driver_tree() == [], "the program is gone")


def test_program_has_the_limits_of_its_task(bench: Bench) -> None:
    end, log = _run(bench, "sh", "-c", "ulimit -n", limits=Limits(open_files=100))

    assert (end.outcome, log) == (Outcome.SUCCEEDED, "100\n")


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_worker_without_java_runs_programs(bench: Bench) -> None:
    def no_java() -> Path:
        raise JavaMissingError(("PATH: has no executable `java`",))

    order = bench.order("true", task_kind=TaskKind.SHELL)
    worker = bench.worker(settings={"java_home": no_java})
    worker.start()
    try:
        bench.board.assign("w1", order)
        assert bench.await_end().outcome is Outcome.SUCCEEDED
    finally:
        worker.close(timedelta(seconds=10))


@pytest.mark.parametrize(
    ("text", "outcome", "result"),
    [
        ('{"rows": 3}', Outcome.SUCCEEDED, {"rows": 3}),
        ("rows=3", Outcome.FAILED, None),
    ],
)
def test_program_gives_a_result_in_a_file(
    bench: Bench, text: str, outcome: Outcome, result: dict[str, int] | None
) -> None:
    end, _ = _run(bench, "sh", "-ec", f"echo '{text}' > \"$NIMBUS_RESULT\"")

    assert (end.outcome, end.result) == (outcome, result)
    assert result or "the result is not JSON" in end.reason


def test_result_of_a_program_that_fails_is_not_kept(bench: Bench) -> None:
    end, _ = _run(bench, "sh", "-ec", "echo '{}' > \"$NIMBUS_RESULT\"; exit 3")

    assert (end.outcome, end.result) == (Outcome.FAILED, None)
