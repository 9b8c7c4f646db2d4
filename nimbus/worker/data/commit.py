"""Stores the output of a successful attempt before its END, which is the commit of the attempt.

Called when the driver and all its descendants are dead, so the output does not change any more: on a thread
of the runner or executor that is not its loop. The task's timeout does not apply.
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
    """Store the output of a success; return the verdict with the task's result, and the output's reference.

    A success becomes a failure if its output cannot be stored or its result is invalid.

    Args:
        verdict: The verdict about the driver.
        place: The storage of outputs.
        folder: The attempt's folder.
        output: The local folder that it wrote to.
        begun: Calls `place.begin`, or waits until it is done.
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
    readable = why.encode(errors="replace").decode()  # a name may contain any bytes
    return Verdict(Outcome.FAILED, readable[:REASON_LIMIT], verdict.exit_code, FailureClass.ERROR), None
