"""Commits the output of a success before its END is written: END is the commit of the attempt.

Called once the driver and all that it started are dead, so nobody writes any more: on a runner's main thread,
and on a thread of an executor that is not its loop. The task's timeout is over by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from blobsync import BlobSyncError
from nimbus.domain.failures import FailureClass
from nimbus.domain.task_run import Outcome
from nimbus.result import ResultError
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.data.ports import DataPlace, OutputRefusedError
from nimbus.worker.verdict import REASON_LIMIT, Verdict


def committed(
    verdict: Verdict,
    place: DataPlace,
    folder: AttemptFolder,
    output: Path,
    begun: Callable[[], object],
) -> tuple[Verdict, str | None]:
    """Commit the output of a success; the verdict, with the task's result, and the output's reference.

    A success whose output is not kept, or whose result is none, is a failure.

    Args:
        verdict: So far.
        place: Where outputs are kept.
        folder: Of the attempt.
        output: The local folder that it wrote to.
        begun: Does `place.begin`, or waits until it is done.
    """
    if verdict.outcome is not Outcome.SUCCEEDED:
        return verdict, None
    try:
        verdict = replace(verdict, result=folder.result())
        begun()
        return verdict, place.commit(output, folder.output_prefix(), folder.noted)
    except ResultError as exc:
        why = str(exc)
    except OSError as exc:
        why = f"its output could not be flushed to the disk: {exc.strerror}: {exc.filename}"
    except (BlobSyncError, OutputRefusedError) as exc:
        why = f"its output could not be stored: {exc}"
    readable = why.encode(errors="replace").decode()  # a name may be of any bytes
    return Verdict(Outcome.FAILED, readable[:REASON_LIMIT], verdict.exit_code, FailureClass.ERROR), None
