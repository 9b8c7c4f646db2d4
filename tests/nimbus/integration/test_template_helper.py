"""The template helper as a process: its limits, its end, and the effects of its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from nimbus.definition import InvalidDefinitionError, read_definition
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.run import Run, RunCause
from nimbus.domain.task_run import TaskRun
from nimbus.templates import helper as module
from nimbus.templates.answers import TemplateError, TemplateHelperError
from nimbus.templates.client import Templates
from nimbus.templates.helper import TemplateHelper

Eventually = Callable[..., None]

WHEN = datetime(2013, 2, 5, 6, 0, tzinfo=UTC)
ENDLESS = "{{ ([[1] * 1000] * 3000) | sum(start=[]) | length }}"
"""Computes for a minute in one call, and holds the GIL."""
COSTLY = [
    "{{ [('x' * 1000000)] * 1000000 }}",  # a text of 1 TB
    "{{ ([('x' * 1000000)] * 1000000) | string | length }}",
    "{{ ([('x' * 1000000)] * 1000000) | tojson | length }}",
    ENDLESS,
]
CONSTANT = (
    "{{ '" + "x" * 1000 + "' | replace('x', '" + "y" * 1000 + "') | list" + " | sort" * 200 + " | first }}"
)
"""Jinja computes it when it compiles: a list of a million, sorted again and again."""


@pytest.fixture
def helper() -> Iterator[TemplateHelper]:
    with TemplateHelper() as helper:
        yield helper


def draft(*args: str) -> Run:
    load = TaskSpec(name=TaskName("load"), kind=TaskKind.PYTHON, script="load.py", args=args)
    return Run(
        id=RunId("r1"),
        pipeline=PipelineName("flights"),
        release=ReleaseDigest("a" * 64),
        parameters={},
        logical_date=WHEN,
        created_at=WHEN,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks={TaskName("load"): TaskRun(spec=load)},
    )


def rendered(templates: Templates, *args: str) -> tuple[str, ...]:
    return templates.render(draft(*args)).tasks[TaskName("load")].spec.args


@pytest.mark.parametrize("text", COSTLY, ids=["a text of 1 TB", "string", "tojson", "a call of a minute"])
def test_a_template_that_breaks_the_limits_is_named_and_the_next_run_is_rendered(
    helper: TemplateHelper, text: str
) -> None:
    with pytest.raises(TemplateError) as refused:
        rendered(helper, "{{ ds }}", text)

    assert str(refused.value).startswith("task load, argument 2: template ")
    assert "s of processor time" in str(refused.value) or "MemoryError" in str(refused.value)
    assert rendered(helper, "{{ ds }}") == ("2013-02-05",)


def test_a_template_cannot_take_more_memory_than_it_may() -> None:
    with TemplateHelper(cpu_s=20) as helper:
        with pytest.raises(TemplateError, match="cannot be rendered: MemoryError"):
            rendered(helper, "{{ ([('x' * 1000000)] * 1000) | string | length }}")
        pid = helper.pid

        assert rendered(helper, "{{ ds }}") == ("2013-02-05",)
        assert helper.pid == pid, "memory is given back: the process goes on"


def test_checking_a_template_is_limited_too(helper: TemplateHelper, tmp_path: Path) -> None:
    """A check compiles the template, and so computes its constants."""
    (tmp_path / "a.py").touch()
    (tmp_path / "b.sql").write_text("SELECT {{ 7 ** 99999999 }}")
    (tmp_path / "pipeline.yaml").write_text(
        "schema: 1\nname: p\ntasks:\n"
        "  b: {type: sql, script: b.sql}\n"
        f'  a: {{type: python, script: a.py, args: ["{{{{ ds }}}}", "{CONSTANT}", "{{{{ dss }}}}"]}}\n'
    )

    with pytest.raises(InvalidDefinitionError) as refused:
        read_definition(tmp_path, helper)

    file, argument = sorted(str(problem) for problem in refused.value.problems)
    assert re.search(
        r"b.sql: template 'SELECT \{\{ 7 \*\* 99999999 }}' takes more than .* s of processor time", file
    )
    assert re.search(
        r"pipeline.yaml:5: tasks.a.args\[1\]: template .* takes more than .* s of processor time", argument
    )


def test_texts_without_templates_need_no_helper(helper: TemplateHelper) -> None:
    assert rendered(helper, "plain", "{}") == ("plain", "{}")
    assert helper.pid is None


def test_a_helper_that_was_killed_is_replaced(helper: TemplateHelper) -> None:
    rendered(helper, "{{ ds }}")
    killed = helper.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    assert rendered(helper, "{{ ds }}") == ("2013-02-05",)
    assert helper.pid != killed


def test_a_helper_that_hangs_is_replaced(helper: TemplateHelper, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(helper, "{{ ds }}")
    hung = helper.pid
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(module, "ANSWER_S", 6.0)

        assert rendered(helper, "{{ ds }}") == ("2013-02-05",)
    assert not psutil.pid_exists(hung)


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_a_helper_that_cannot_start_is_no_fault_of_a_template(
    helper: TemplateHelper, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", program)
        with pytest.raises(TemplateHelperError):
            rendered(helper, "{{ ds }}")

    assert rendered(helper, "{{ ds }}") == ("2013-02-05",)


def test_closing_ends_a_question_under_way_and_refuses_later_ones(eventually: Eventually) -> None:
    helper = TemplateHelper(cpu_s=30)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(rendered, helper, ENDLESS)
        eventually(lambda: helper.pid and psutil.Process(helper.pid).cpu_times().user > 0.5)
        process = psutil.Process(helper.pid)
        helper.close()

        assert isinstance(asked.exception(timeout=30), TemplateHelperError)
    assert not process.is_running()
    with pytest.raises(TemplateHelperError):
        rendered(helper, "{{ ds }}")


def test_a_helper_has_no_credentials(helper: TemplateHelper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIMBUS_STORAGE__SECRET_ACCESS_KEY", "not for templates")
    rendered(helper, "{{ ds }}")

    environment = Path(f"/proc/{helper.pid}/environ").read_text().split("\0")

    assert {line.partition("=")[0] for line in environment} <= {"", "PATH", "LD_LIBRARY_PATH"}


def test_a_helper_ends_with_the_process_that_asks_it(eventually: Eventually) -> None:
    script = (
        "import time\n"
        "from nimbus.templates.helper import TemplateHelper\n"
        "helper = TemplateHelper()\n"
        "helper.argument_faults(['{{ ds }}'], [])\n"
        "print(helper.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        pid = int(asker.stdout.readline())
        assert psutil.pid_exists(pid)
        asker.kill()

    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
