"""Checks a definition in a process with limits, because anybody may have published it.

So the leader stays free for other work, and lives, whatever a definition costs. A definition that exceeds the
limits is refused, so no later leader tries it again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from pydantic import TypeAdapter

from nimbus.definition.faults import InvalidDefinitionError
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.records import RecordCodec

CPU_S = 20.0
"""Limit of processor time. A definition of 4 MiB takes 2 to 5 s."""
MEMORY_BYTES = 1 << 30
"""Limit of address space. A definition of 4 MiB takes 550 MiB at most."""
ANSWER_S = 180.0
"""Limit of elapsed time, on a busy host."""
REFUSED = 2
"""Exit code of the process. What it prints is the reason; with 0 it is the definition."""
SPEC: RecordCodec[PipelineSpec] = RecordCodec(TypeAdapter(PipelineSpec))

_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
"""Environment variables that Python may need to start. The process gets no credentials."""
_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)


class NotCheckedError(NimbusError):
    """The process that checks definitions cannot run, and no definition is the cause."""

    code = "not_checked"
    retryable = True


def check_apart(text: bytes, name_for_errors: str) -> PipelineSpec:
    """Read and check a definition, as `nimbus.definition.parse_definition` does with templates.

    Raises RefusedError: it is not valid, or costs too much. Raises NotCheckedError: it cannot be checked now.
    """
    try:
        done = run_apart(
            "nimbus.definition", name_for_errors, CPU_S, MEMORY_BYTES, given=text, within_s=ANSWER_S
        )
    except subprocess.TimeoutExpired as exc:
        raise _refused(f"{name_for_errors} is not checked after {ANSWER_S:.0f} s; make it smaller") from exc
    except OSError as exc:
        raise NotCheckedError(f"{name_for_errors} cannot be checked: {exc}") from exc
    if done.returncode == 0:
        return SPEC.decode(done.stdout, name_for_errors)
    if done.returncode == REFUSED:
        raise _refused(done.stdout.decode(errors="replace"))
    if done.returncode == -signal.SIGPROF:
        raise _refused(f"{name_for_errors} takes more than {CPU_S:.0f} s to check; make it smaller")
    if done.returncode in _OUTSIDE:
        raise NotCheckedError(f"{name_for_errors} cannot be checked now: {_last(done)}")
    raise _refused(f"{name_for_errors} ended the process that checks it: {_last(done)}")


def run_apart(
    module: str, *args: object, given: bytes, within_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a module with Python, in a process that has `given` as its input and no credentials.

    The module limits its own processor time and memory. Raises OSError and `subprocess.TimeoutExpired`.
    """
    return subprocess.run(
        [sys.executable, "-I", "-m", module, *map(str, args)],
        input=given,
        capture_output=True,
        timeout=within_s,
        check=False,
        cwd="/",
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        start_new_session=True,
    )


def _refused(message: str) -> RefusedError:
    return RefusedError(InvalidDefinitionError.code, message)


def _last(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stdout or done.stderr).decode(errors="replace").splitlines()
    return lines[-1][:1000] if lines else f"status {done.returncode}"
