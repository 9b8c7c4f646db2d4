"""One session on a Spark Connect server: opened before its attempt is claimed, released before END.

Runner, main thread, after its driver was forked: gRPC has threads. As a program, for processes that must not
have them: `python -I -m nimbus.worker.connect_session`, with a `ConnectPlan` on standard input, opens and
releases the session, and ends with 0 if the server answered.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from pydantic import TypeAdapter

from nimbus.domain.errors import NimbusError
from nimbus.worker.environment import passed_on
from nimbus.worker.settings import ConnectPlan

USER = "nimbus"
"""The user of all sessions: a server tells sessions apart by user and id."""
ANSWER_S = 15.0
"""For a call that does no work on the server. One that does not answer so long counts as gone."""
_HELPER_S = 3 * ANSWER_S
"""For the program: an interpreter, its imports, and two calls."""
_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
}
_OF_A_PROPERTY = re.compile(r"\[[A-Z_]*CONF")
"""Begins what Spark says of a property that it refuses: `[INVALID_CONF_VALUE.TYPE_MISMATCH]` and others."""
_PLAN = TypeAdapter(ConnectPlan)


class ConnectSessionError(NimbusError):
    """A session could not be opened."""

    code = "connect_session"


class PropertyRefusedError(ConnectSessionError):
    """The server refuses a property that the task asks for."""

    code = "connect_property"


class MissingPackagesError(NimbusError):
    """This installation lacks what a client of Spark Connect needs."""

    code = "connect_packages"

    def __init__(self, missing: list[str]) -> None:
        super().__init__(
            f"`spark: {{mode: connect}}` needs packages that are not installed here: {', '.join(missing)}. "
            "Install them with: pip install 'nimbus-scheduler[connect]'"
        )


def check_packages(find: Callable[[str], object] = find_spec) -> None:
    """Look whether the packages of the extra `connect` are installed, without importing them.

    Raises:
        MissingPackagesError: some are not.
    """
    missing = []
    for module, package in _PACKAGES.items():
        try:
            found = find(module)
        except ModuleNotFoundError:  # of the package that it lies in
            found = None
        if found is None:
            missing.append(package)
    if missing:
        raise MissingPackagesError(missing)


def session_url(plan: ConnectPlan) -> str:
    """What SPARK_REMOTE says. Without the token: pyspark takes that from a variable of its own."""
    base, _, parameters = plan.url.partition("/;")
    return f"{base}/;{f'{parameters};' if parameters else ''}user_id={USER};session_id={plan.session_id}"


def driver_variables(plan: ConnectPlan) -> dict[str, str]:
    """What makes `SparkSession.builder.getOrCreate()` take the session."""
    token = {} if plan.token is None else {"SPARK_CONNECT_AUTHENTICATE_TOKEN": plan.token}
    return {"SPARK_REMOTE": session_url(plan), "SPARK_CONNECT_MODE_ENABLED": "1", **token}


class SessionLine:
    """A connection for one session."""

    def __init__(self, plan: ConnectPlan) -> None:
        from pyspark.sql.connect.client.core import DefaultChannelBuilder
        from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

        builder = DefaultChannelBuilder(session_url(plan))
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
        """Ask for the session, with properties; `opened` waits for the answer."""
        pairs = [self._proto.KeyValue(key=name, value=conf[name]) for name in sorted(conf)]
        request = self._proto.ConfigRequest(**self._who)
        request.operation.set.CopyFrom(self._proto.ConfigRequest.Set(pairs=pairs))
        self._opening = self._stub.Config.future(request, timeout=ANSWER_S)

    def opened(self) -> str:
        """The server's own id of the session. After `begin`.

        Raises:
            PropertyRefusedError: the server refuses a property.
            ConnectSessionError: it does not answer, or refuses the token.
        """
        import grpc

        try:
            return str(self._opening.result().server_side_session_id)
        except grpc.RpcError as exc:
            why = " ".join(str(exc.details()).split())[:300]
            error = PropertyRefusedError if _OF_A_PROPERTY.match(why) else ConnectSessionError
            raise error(f"the Spark Connect server says {exc.code().name}: {why}") from exc

    def release(self) -> bool:
        """End the session and its operations; nobody can use it again.

        Returns:
            False when the server did not answer.
        """
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
                    return False  # any other answer says that there is no such session
        return True

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def release_elsewhere(plan: ConnectPlan) -> bool:
    """As `SessionLine.release`, in a process of its own; ends within a minute."""
    return _run_program("release", plan)


def answers(plan: ConnectPlan) -> bool:
    """Whether a session can be opened, asked in a process of its own; ends within a minute.

    With a session id of its own: the one of the plan could not be used after that.
    """
    return _run_program("try", replace(plan, session_id=str(uuid.uuid4())))


def _run_program(what: str, plan: ConnectPlan) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "nimbus.worker.connect_session", what],
            input=_PLAN.dump_json(plan),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=passed_on(os.environ),
            timeout=_HELPER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def main(what: str) -> int:
    """Run the program."""
    line = SessionLine(_PLAN.validate_json(sys.stdin.buffer.read()))
    if what == "try":
        line.begin({})
        with suppress(ConnectSessionError):
            line.opened()
            return 0 if line.release() else 1
        return 1
    return 0 if line.release() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
