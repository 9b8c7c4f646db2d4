"""A fork of the test's own process: nothing of pytest runs on in the child, and it ends, whatever happens."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

FAILED = 70
LIMIT_S = 60


def exit_code_of_child(work: Callable[[], int]) -> int:
    """Run `work` in a forked child; its answer is the child's exit code.

    A child in which an exception goes up would finish the tests in its parent's place, on the same channel.
    One that hangs, since only the forking thread lives on in it, is ended by an alarm: a negative answer.
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
