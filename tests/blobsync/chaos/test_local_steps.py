"""A process dies before any step of a local store: no wrong file counts as verified, and work continues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.blobsync.unit.test_local_faults import check_and_go_on, steps_of

CHILD = """
import os, signal, sys
from pathlib import Path
from blobsync.local.store import LocalStore
from tests.blobsync.unit.test_local_faults import everything
left = int(sys.argv[2])
def die(step):
    global left
    left -= 1
    if left < 0:
        os._exit(7) if sys.argv[3] == "exit" else os.kill(os.getpid(), signal.SIGKILL)
everything(LocalStore(Path(sys.argv[1]), on_step=die))
"""


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["exit", "kill"])
def test_process_that_dies_before_any_step_leaves_nothing_false_and_the_next_completes(
    tmp_path: Path, way: str
) -> None:
    steps = steps_of(tmp_path / "steps")
    for number in range(0 if way == "exit" else 2, len(steps), 4):
        root = tmp_path / str(number)
        command = [sys.executable, "-c", CHILD, str(root), str(number), way]
        died = subprocess.run(command, check=False, cwd=Path(__file__).parents[3])
        assert died.returncode == (7 if way == "exit" else -9), (number, steps[number])
        check_and_go_on(root)
