"""Forks the test's own process. The child runs nothing of pytest, and always ends."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

FAILED = 70
LIMIT_S = 60


def exit_code_of_child(work: Callable[[], int]) -> int:
    """Run `work` in a forked child. Its result is the child's exit code.

    After an uncaught exception, a child would continue with the tests in its parent's place. A child may
    hang, because only the forking thread exists in it; an alarm then ends it: the exit code is negative.
    """
    child = os.fork()
    if child == 0:
        status = FAILED
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_S)
            status = work()
        except BaseException:  # noqa: BLE001 - the parent sees the exit code
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
