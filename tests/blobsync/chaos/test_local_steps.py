"""A process dies before any step of a local store: no wrong file counts as verified, and work continues."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from blobsync.local.store import LocalStore
from tests.blobsync.unit.test_local_faults import check_and_go_on, everything, steps_of
from tests.thorough import sampled


def killed_before(step: int, root: Path) -> int:
    """Use a store in a forked process, which kills itself before this step. Returns its exit code."""
    pid = os.fork()
    if pid == 0:
        left = iter(range(step))

        def die(_name: str) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            everything(LocalStore(root, on_step=die))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.chaos
@pytest.mark.parametrize("offset", sampled(range(4), 1))
def test_process_that_dies_before_any_step_leaves_nothing_false_and_the_next_completes(
    tmp_path: Path, offset: int
) -> None:
    steps = steps_of(tmp_path / "steps")
    for number in range(offset, len(steps), 4):
        root = tmp_path / str(number)
        assert killed_before(number, root) == -signal.SIGKILL, (number, steps[number])
        check_and_go_on(root)
