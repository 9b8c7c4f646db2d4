"""The error that ends a task, as its author reads it in the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_DRIVER = """
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from nimbus.worker.driver import main

root = sys.argv[1]
sys.path.insert(0, root)
plan = SimpleNamespace(script_path=Path(root, "tasks/load.py"), args=())
sys.exit(main.completed(partial(main._run_script, plan), root))
"""


def _log(tmp_path: Path, task: str, **env: str) -> str:
    root = tmp_path / "trees" / ("a" * 64)
    (root / "tasks").mkdir(parents=True)
    (root / "tasks" / "load.py").write_text(task)
    (root / "prices.py").write_text("def of(day):\n    return {}[day]\n")
    driver = tmp_path / "driver.py"
    driver.write_text(_DRIVER)
    ended = subprocess.run(
        [sys.executable, driver, root], text=True, capture_output=True, timeout=60, check=False, env=env
    )
    assert ended.returncode == 1
    return ended.stderr


def test_error_begins_at_the_code_of_the_task_with_names_of_the_release(tmp_path: Path) -> None:
    log = _log(tmp_path, "import prices\n\nprices.of('monday')\n")
    assert log == (
        "Traceback (most recent call last):\n"
        '  File "tasks/load.py", line 3, in <module>\n'
        "    prices.of('monday')\n"
        '  File "prices.py", line 2, in of\n'
        "    return {}[day]\n"
        "           ~~^^^^^\n"
        "KeyError: 'monday'\n"
    )


def test_linked_errors_have_short_names_too(tmp_path: Path) -> None:
    log = _log(tmp_path, "import prices\ntry:\n    prices.of(1)\nexcept KeyError:\n    raise ValueError(1)\n")
    assert log.count('File "tasks/load.py"') == 2
    assert "During handling of the above exception" in log
    assert "a" * 64 not in log


def test_script_that_does_not_compile_is_told_as_python_does(tmp_path: Path) -> None:
    log = _log(tmp_path, "x = (\n")
    assert log.startswith('  File "tasks/load.py", line 1\n    x = (\n')
    assert log.endswith("SyntaxError: '(' was never closed\n")


_HOOK = "import sys\nsys.excepthook = lambda *error: print('mine', file=sys.stderr)\n"


@pytest.mark.parametrize("hook", ["", _HOOK])
def test_whole_traceback_and_own_hooks_stay(tmp_path: Path, hook: str) -> None:
    log = _log(tmp_path, f"{hook}raise ValueError('bad')\n", NIMBUS_WHOLE_TRACEBACK="1")
    assert log == "mine\n" if hook else "program_end.py" in log
