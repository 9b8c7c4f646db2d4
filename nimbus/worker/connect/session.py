"""One session on a Spark Connect server: opened before its attempt is claimed, released before END.

In a runner, after its driver was forked, because gRPC starts threads. Processes that must not have threads
run `python -I -m nimbus.worker.connect.session`, with a `ConnectPlan` on standard input; 0: the server
answered.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from nimbus.domain.errors import NimbusError
from nimbus.worker.connect.plan import ConnectPlan
from nimbus.worker.driver.environment import passed_on

USER = "nimbus"
"""The user of all sessions: a server identifies sessions by user and id."""
ANSWER_S = 15.0
"""Time limit of a call that does no work on the server. After it the server counts as dead."""
_HELPER_S = 3 * ANSWER_S
"""Time limit of the program: starting Python, imports, and two calls."""
_EXERCISES = 5
"""Warm-up runs: the first loads classes and takes 5 s, later ones 1 s until Java has compiled hot code."""
_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
}
_OF_A_PROPERTY = re.compile(r"\[[A-Z_]*CONF")
"""The start of Spark's error for a refused property: `[INVALID_CONF_VALUE.TYPE_MISMATCH]` and others."""
_PLAN = TypeAdapter(ConnectPlan)


class ConnectSessionError(NimbusError):
    """A session could not be opened."""

    code = "connect_session"


class PropertyRefusedError(ConnectSessionError):
    """The server refuses a property of the task."""

    code = "connect_property"


class MissingPackagesError(NimbusError):
    """This installation lacks packages for a Spark Connect client."""

    code = "connect_packages"

    def __init__(self, missing: list[str]) -> None:
        super().__init__(
            "Spark Connect, which also runs declarative pipelines, needs packages that are not installed "
            f"here: {', '.join(missing)}. Install them with: pip install 'nimbus-scheduler[connect]'"
        )


def check_packages(find: Callable[[str], object] = find_spec) -> None:
    """Check, without importing, the packages of the extra `connect`. Raises MissingPackagesError."""
    missing = []
    for module, package in _PACKAGES.items():
        try:
            spec = find(module)
        except ModuleNotFoundError:  # the parent package is missing
            spec = None
        if spec is None:
            missing.append(package)
    if missing:
        raise MissingPackagesError(missing)


def session_url(plan: ConnectPlan) -> str:
    """The value of SPARK_REMOTE, without the token, which pyspark reads from another variable."""
    base, _, parameters = plan.url.partition("/;")
    return f"{base}/;{f'{parameters};' if parameters else ''}user_id={USER};session_id={plan.session_id}"


def driver_variables(plan: ConnectPlan) -> dict[str, str]:
    """Variables with which `SparkSession.builder.getOrCreate()` returns the session."""
    token = {} if plan.token is None else {"SPARK_CONNECT_AUTHENTICATE_TOKEN": plan.token}
    return {"SPARK_REMOTE": session_url(plan), "SPARK_CONNECT_MODE_ENABLED": "1", **token}


class SessionLine:
    """A connection for one session."""

    def __init__(self, plan: ConnectPlan) -> None:
        from pyspark.sql.connect.client.core import DefaultChannelBuilder
        from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

        # Direct, as the driver, which sees no proxy of the worker's environment.
        builder = DefaultChannelBuilder(session_url(plan), [("grpc.enable_http_proxy", 0)])
        if plan.token is not None:
            builder.set("token", plan.token)
        self._who = {
            "session_id": plan.session_id,
            "client_type": USER,
            "user_context": base_pb2.UserContext(user_id=USER),
        }
        self._proto: Any = base_pb2
        self._channel = builder.toChannel()
        services: Any = base_pb2_grpc
        self._stub = services.SparkConnectServiceStub(self._channel)
        self._opening: Any = None

    def begin(self, conf: Mapping[str, str]) -> None:
        """Request the session, with properties; `opened` waits for the response."""
        pairs = [self._proto.KeyValue(key=name, value=conf[name]) for name in sorted(conf)]
        request = self._proto.ConfigRequest(**self._who)
        request.operation.set.CopyFrom(self._proto.ConfigRequest.Set(pairs=pairs))
        self._opening = self._stub.Config.future(request, timeout=ANSWER_S)

    def opened(self) -> str:
        """The server's own id of the session, after `begin`.

        Raises:
            PropertyRefusedError: the server refuses a property.
            ConnectSessionError: it does not answer, or refuses the token.
        """
        import grpc

        try:
            return str(self._opening.result().server_side_session_id)
        except grpc.RpcError as exc:
            raise _refused(exc) from exc

    def version(self) -> str:
        """The server's Spark version. Raises ConnectSessionError as `opened`."""
        import grpc

        request = self._proto.AnalyzePlanRequest(**self._who)
        request.spark_version.SetInParent()
        try:
            return str(self._stub.AnalyzePlan(request, timeout=ANSWER_S).spark_version.version)
        except grpc.RpcError as exc:
            raise _refused(exc) from exc

    def release(self) -> bool:
        """End the session and its operations; it cannot be used again. False: the server did not answer."""
        import grpc

        stop = self._proto.InterruptRequest.InterruptType.INTERRUPT_TYPE_ALL
        calls: tuple[Callable[[], Any], ...] = (
            lambda: self._stub.Interrupt(
                self._proto.InterruptRequest(**self._who, interrupt_type=stop), timeout=ANSWER_S
            ),
            lambda: self._stub.ReleaseSession(
                self._proto.ReleaseSessionRequest(**self._who), timeout=ANSWER_S
            ),
        )
        for call in calls:
            try:
                call()
            except grpc.RpcError as exc:
                if exc.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    return False  # any other response means that there is no such session
        return True

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _refused(exc: Any) -> ConnectSessionError:
    why = " ".join(str(exc.details()).split())[:300]
    error = PropertyRefusedError if _OF_A_PROPERTY.match(why) else ConnectSessionError
    return error(f"the Spark Connect server says {exc.code().name}: {why}")


def release_elsewhere(plan: ConnectPlan) -> bool:
    """`SessionLine.release` by another process, within a minute."""
    return _run_program("release", plan)[0]


def answers(plan: ConnectPlan) -> bool:
    """True if a session can be opened, by another process within a minute; a released id cannot be reused."""
    return _run_program("try", replace(plan, session_id=str(uuid.uuid4())))[0]


def version_of(plan: ConnectPlan) -> str:
    """A server's Spark version, by another process within a minute. Raises ConnectSessionError."""
    answered, said = _run_program("version", replace(plan, session_id=str(uuid.uuid4())))
    if not answered:
        raise ConnectSessionError(said or f"{plan.url} does not answer")
    return said


def exercising(plan: ConnectPlan) -> subprocess.Popen[bytes]:
    """Start a program that warms up a server of this host with what most tasks need. Raises OSError."""
    return _start_program("exercise", replace(plan, session_id=str(uuid.uuid4())), subprocess.DEVNULL)


def _run_program(what: str, plan: ConnectPlan) -> tuple[bool, str]:
    """True if it exited with 0, and its output."""
    try:
        program = _start_program(what, plan, subprocess.PIPE)
    except OSError:
        return False, ""
    with program:
        try:
            said, _ = program.communicate(timeout=_HELPER_S)
        except subprocess.TimeoutExpired:
            program.kill()
            return False, ""
    return program.returncode == 0, said.decode(errors="replace").strip()


def _start_program(what: str, plan: ConnectPlan, output: int) -> subprocess.Popen[bytes]:
    program = subprocess.Popen(
        [sys.executable, "-I", "-m", "nimbus.worker.connect.session", what],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.DEVNULL,
        env=passed_on(os.environ),
    )
    assert program.stdin is not None  # noqa: S101 - asked for
    with suppress(BrokenPipeError):
        program.stdin.write(_PLAN.dump_json(plan))
        program.stdin.close()
    program.stdin = None  # so that `communicate` does not close it again
    return program


def main(what: str) -> int:
    """Run the program."""
    plan = _PLAN.validate_json(sys.stdin.buffer.read())
    line = SessionLine(plan)
    if what == "try":
        line.begin({})
        with suppress(ConnectSessionError):
            line.opened()
            return 0 if line.release() else 1
        return 1
    if what == "version":
        return _print_version(line)
    if what == "exercise":
        _exercise(plan)
    return 0 if line.release() else 1


def _print_version(line: SessionLine) -> int:
    try:
        version = line.version()
    except ConnectSessionError as exc:
        sys.stdout.write(str(exc))
        return 1
    sys.stdout.write(version)
    line.release()
    return 0


def _exercise(plan: ConnectPlan) -> None:
    from pyspark.errors import PySparkException

    from nimbus.worker.connect.client import make_session

    assert plan.folder is not None  # noqa: S101 - a server of our own
    os.environ.update(driver_variables(plan))
    scratch = plan.folder / "tmp"
    with suppress(PySparkException, OSError):
        session = make_session(scratch)
        for _ in range(_EXERCISES):
            _exercise_once(session, scratch / "exercise")


def _exercise_once(session: Any, place: Path) -> None:
    """A small job with what most tasks use: a shuffle, a file written and read, a query."""
    grouped = session.range(1000).selectExpr("id % 7 AS k", "id").groupBy("k").sum("id")
    grouped.write.mode("overwrite").parquet(str(place))
    session.read.parquet(str(place)).createOrReplaceTempView("nimbus_exercise")
    session.sql("SELECT k, count(*) AS n FROM nimbus_exercise GROUP BY k ORDER BY k").collect()
    session.catalog.dropTempView("nimbus_exercise")
    shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
