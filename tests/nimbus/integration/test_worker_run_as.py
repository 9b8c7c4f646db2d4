"""Drivers that run as other users, with real processes: attacks of a hostile task, and their results.

It needs root, and an interpreter that other users can read.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.pipeline import Isolation, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.s3 import S3Server
from nimbus.worker import process_executor
from nimbus.worker.host import procfs
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.host.remains import EXECUTOR_VARIABLE, RUNNER_VARIABLE, attempt_tag
from nimbus.worker.host.task_user import TaskUser, TaskUsers, find_users
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, eventually

pytestmark = pytest.mark.usefixtures("shared_forks")

SOON = timedelta(seconds=60)
VICTIM = "run9.victim.1"
UID = 2_000_000 + 2 * os.getpid() % 1_000_000
"""A user id that nothing else uses, not even a test in another process."""
BOTH = pytest.mark.parametrize("isolation", list(Isolation))


def _user(uid: int) -> TaskUser:
    user = find_users(str(uid), {}).of_all
    assert user is not None
    return user


@pytest.fixture(scope="module")
def mallory() -> TaskUser:
    if os.geteuid() != 0:
        pytest.skip("running tasks as other users takes root")
    user = _user(UID)
    if not (user.may_read(Path(sys.executable)) and user.may_read(Path(procfs.__file__))):
        pytest.skip(f"other users cannot read {sys.executable}")
    return user


@pytest.fixture
def alice(mallory: TaskUser) -> TaskUser:
    del mallory
    return _user(UID + 1)


@pytest.fixture
def bench(mallory: TaskUser) -> Iterator[Bench]:
    del mallory
    root = Path(tempfile.mkdtemp())
    root.chmod(0o711)
    made = Bench(root)
    (root / "secret").touch(mode=0o600)
    (root / "secret").write_text("key: hunter2")
    yield made
    made.close()
    shutil.rmtree(root)


@pytest.fixture
def worker(bench: Bench, mallory: TaskUser, alice: TaskUser) -> Iterator[Worker]:
    users = TaskUsers(mallory, {PipelineName("of-alice"): alice})
    started = bench.worker("w1", settings={"users": users, "stop_grace": timedelta(seconds=0.2), "slots": 4})
    started.start()
    yield started
    started.close(SOON)
    assert started.failure is None
    executors = lambda: procfs.with_variable(EXECUTOR_VARIABLE, str(bench.root / "w1"))  # noqa: E731
    procfs.kill_all(executors, deadline_s=60.0)
    for user in (mallory, alice):
        assert not _of_user(user)


def _of_user(user: TaskUser) -> list[ProcessId]:
    return [found.id for found in procfs.living() if procfs.user_of(found.id.pid) == user.uid]


def _order(bench: Bench, text: str, *args: object, attempt: str = "run1.task.1", **more: object) -> None:
    script = bench.script(f"{attempt}/main.py", text)
    bench.board.assign("w1", bench.order(script, attempt=attempt, args=tuple(map(str, args)), **more))


def _log(bench: Bench, attempt: str = "run1.task.1") -> str:
    folder = bench.folder(attempt)
    return eventually(lambda: bench.logs.read(folder.attempt).decode(), "the log is stored")


def _run(bench: Bench, text: str, *args: object, **more: object) -> End:
    _order(bench, text, *args, **more)
    return bench.await_end(str(more.get("attempt", "run1.task.1")))


def _unharmed(bench: Bench, isolation: Isolation) -> None:
    """Check that the next attempt of another user works."""
    pipeline = PipelineName("of-alice")
    _order(bench, "print('fine')", attempt="run2.task.1", isolation=isolation, pipeline=pipeline)
    assert bench.await_end("run2.task.1").outcome is Outcome.SUCCEEDED


RIGHTS = """
import ctypes, json, os
from nimbus.task import context
on_death = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(on_death))
assert b"NIMBUS_CONTEXT" in open("/proc/self/environ", "rb").read()
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
(context().output / "made").write_text("x")
open("scratch", "w").close()
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), os.environ["HOME"], os.environ["USER"],
    status["NoNewPrivs"], status["CapEff"], status["CapPrm"], os.path.samefile(".", os.environ["TMPDIR"]),
    len(os.listdir("/proc/self/fd")) <= 7, on_death.value]))
"""


@pytest.mark.usefixtures("stored_logs")
@BOTH
def test_driver_has_the_rights_of_its_pipelines_user(
    bench: Bench, worker: Worker, mallory: TaskUser, alice: TaskUser, isolation: Isolation
) -> None:
    for pipeline, user in (("bench", mallory), ("of-alice", alice)):
        attempt = f"run1.{pipeline}.1"
        end = _run(bench, RIGHTS, attempt=attempt, isolation=isolation, pipeline=PipelineName(pipeline))

        assert end.outcome is Outcome.SUCCEEDED, _log(bench, attempt)
        ids = [user.uid] * 3
        zero = "0" * 16
        shown = [ids, ids, [user.uid], user.home, user.name, "1", zero, zero, True, True, 9]
        assert _log(bench, attempt).strip() == str(shown).replace("'", '"').replace("True", "true")
        assert end.output is not None
        made = bench.data / end.output / "made"
        assert (made.stat().st_uid, made.parent.stat().st_uid) == (user.uid, user.uid)
        assert made.parent.parent.stat().st_uid == 0
    assert worker.failure is None


@pytest.mark.usefixtures("stored_logs")
@BOTH
def test_program_of_a_shell_task_runs_as_its_pipelines_user(
    bench: Bench, worker: Worker, mallory: TaskUser, isolation: Isolation
) -> None:
    (bench.release / bench.script("greet", '#!/bin/sh\nexec /bin/sh "$@"\n')).chmod(0o755)
    args = ("-c", "id -u; touch $NIMBUS_OUTPUT/made; stat -c %u $NIMBUS_OUTPUT/made")

    for number, program in enumerate(("sh", "/bin/sh", "./greet"), 1):
        attempt = f"run{number}.task.1"
        order = bench.order(
            program, attempt=attempt, task_kind=TaskKind.SHELL, args=args, isolation=isolation
        )
        bench.board.assign("w1", order)

        end = bench.await_end(attempt)
        assert end.outcome is Outcome.SUCCEEDED, end.reason
        assert _log(bench, attempt) == f"{mallory.uid}\n{mallory.uid}\n"
    assert worker.failure is None


READS_AND_SPOILS = """
from nimbus.task import context
ctx = context()
part = ctx.inputs["make"] / "part"
(ctx.output / "copy").write_text(part.read_text())
for spoil in (lambda: part.write_text("x"), part.unlink, lambda: part.chmod(0o666)):
    try:
        spoil()
    except PermissionError:
        print("refused")
"""
READS_ANOTHERS = """
import sys
from pathlib import Path
try:
    print(Path(sys.argv[1], "part").read_text())
except PermissionError:
    print("refused")
"""


@pytest.mark.usefixtures("stored_logs")
@BOTH
def test_copies_of_inputs_are_read_by_their_pipelines_user_alone_and_changed_by_nobody(
    bench: Bench,
    mallory: TaskUser,
    alice: TaskUser,
    s3_server: S3Server,
    s3_bucket: str,
    request: pytest.FixtureRequest,
    isolation: Isolation,
) -> None:
    bench.keep_outputs_in(
        f"s3://{s3_bucket}/data",
        endpoint_url=s3_server.endpoint_url,
        access_key_id=s3_server.access_key,
        secret_access_key=s3_server.secret_key,
    )
    request.getfixturevalue("worker")
    text = "from nimbus.task import context\n(context().output / 'part').write_text('rows')\n"
    made = _run(bench, text, attempt="run1.make.1", isolation=isolation)
    assert made.output is not None, made.reason

    inputs = {"make": made.output}
    used = _run(bench, READS_AND_SPOILS, attempt="run1.use.1", inputs=inputs, isolation=isolation)

    assert used.outcome is Outcome.SUCCEEDED, used.reason
    assert _log(bench, "run1.use.1").split() == ["refused"] * 3
    copy = bench.place("w1").input(made.output)
    assert (copy / "part").read_text() == "rows"
    of_alice = PipelineName("of-alice")
    _run(bench, READS_ANOTHERS, copy, attempt="run2.t.1", pipeline=of_alice, isolation=isolation)
    assert _log(bench, "run2.t.1").strip() == "refused"


HOSTILE = """
import ctypes, os, resource, signal, sys
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)


def tried(name, act):
    try:
        answer = act()
    except (OSError, ValueError) as exc:
        print("refused", name, exc)
    else:
        print("BREACH", name, repr(answer)[:200])


def call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")


secret, victim, *pids = sys.argv[1:]
own = Path(os.environ["NIMBUS_CONTEXT"]).parent
tried("secret", lambda: open(secret).read())
above = os.getppid()
while above > 1 and len(pids) < 20:
    pids.append(above)
    above = int(Path(f"/proc/{above}/stat").read_bytes().rpartition(b")")[2].split()[1])
for pid in {int(pid) for pid in pids}:
    for name in ("environ", "mem", "maps", "auxv"):
        tried(f"{name} of {pid}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    tried(f"files of {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    tried(f"file of {pid}", lambda: open(f"/proc/{pid}/fd/0", "rb").read())
    tried(f"folder of {pid}", lambda: os.listdir(f"/proc/{pid}/cwd/"))
    tried(f"trace {pid}", lambda: call(libc.ptrace, 16, pid, None, None))
    tried(f"take of {pid}", lambda: call(libc.syscall, 438, os.pidfd_open(pid), 0, 0))
    for number in (0, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        tried(f"signal {number} to {pid}", lambda: os.kill(pid, number))
    tried(f"priority of {pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    tried(f"limits of {pid}", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)))
tried("signal to a group", lambda: os.killpg(int(victim), signal.SIGKILL))
for name in ("order.json", "lock", "claim.json", "exit.json", "driver.json", "context.json", "log",
             "delivered", "new"):
    tried(f"write {name}", lambda: open(own / name, "a"))
    tried(f"take the place of {name}", lambda: os.symlink(secret, own / name))
    tried(f"rename to {name}", lambda: os.rename(own / "work" / "tmp", own / name))
for name in ("order.json", "lock", "claim.json", "runner.log"):
    tried(f"read {name}", lambda: open(own / name))
for name in ("driver.json", "context.json", "log"):
    tried(f"remove {name}", lambda: os.unlink(own / name))
    tried(f"mode of {name}", lambda: os.chmod(own / name, 0o666))
tried("move work", lambda: os.rename(own / "work", own / "elsewhere"))
tried("mode of folder", lambda: os.chmod(own, 0o777))
tried("list attempts", lambda: os.listdir(own.parent))
tried("list worker", lambda: os.listdir(own.parent.parent))
for place in (own.parent / "run9.victim.1", own.parent.parent / "attempts" / "run9.victim.1"):
    for name in ("context.json", "log", "work/tmp/private", "work/new"):
        tried(f"{name} of {place}", lambda: open(place / name, "a"))
        tried(f"read {name} of {place}", lambda: open(place / name))
output = Path(__import__("nimbus.task").task.context().output)
others = output.parents[2] / "run9" / "victim" / "1"
tried("output of others", lambda: os.listdir(others))
tried("write output of others", lambda: open(others / "made", "w"))
tried("own output's parent", lambda: os.rename(output, output.with_name("2")))
tried("release", lambda: open(sys.argv[0], "a"))
for name, act in {
    "setuid": lambda: os.setresuid(0, 0, 0), "setgid": lambda: os.setresgid(0, 0, 0),
    "setgroups": lambda: os.setgroups([0]), "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    "realtime": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "chroot": lambda: os.chroot("/tmp"),
    "mount": lambda: call(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None),
    "oom": lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"),
    "limits": lambda: resource.setrlimit(resource.RLIMIT_NPROC,
        (resource.RLIM_INFINITY,) * 2) if resource.getrlimit(resource.RLIMIT_NPROC)[1] >= 0
        else resource.setrlimit(resource.RLIMIT_RTPRIO, (99, 99)),
}.items():
    tried(name, act)
print("end")
"""
VICTIMS = """
import sys, time
from pathlib import Path
Path("private").write_text("x")
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""


@pytest.mark.usefixtures("stored_logs")
@BOTH
def test_hostile_task_reaches_nothing_of_worker_or_others(
    bench: Bench, worker: Worker, alice: TaskUser, isolation: Isolation
) -> None:
    gates = bench.root / "gates"
    gates.mkdir()
    gates.chmod(0o777)
    alices = {"isolation": isolation, "pipeline": PipelineName("of-alice")}
    _order(bench, VICTIMS, gates / "ran", gates / "gate", attempt=VICTIM, **alices)
    eventually((gates / "ran").exists, "the victim runs")
    (victim,) = _of_user(alice)
    ours = [one.id.pid for one in procfs.living() if one.parent == os.getpid()]  # the fork server, too

    end = _run(bench, HOSTILE, bench.root / "secret", victim.pid, victim.pid, *ours, isolation=isolation)

    log = _log(bench)
    assert end.outcome is Outcome.SUCCEEDED, log
    assert "BREACH" not in log, [line for line in log.splitlines() if line.startswith("BREACH")]
    assert log.count("refused") > 150
    (gates / "gate").touch()
    assert bench.await_end(VICTIM).outcome is Outcome.SUCCEEDED
    assert worker.failure is None


LINKS = """
import os, shutil, sys
from pathlib import Path
from nimbus.task import context

precious, how = sys.argv[1:]
work = Path(os.environ["TMPDIR"]).parent
output = context().output
os.symlink(precious, output / "folder")
os.symlink(precious + "/file", output / "file")
os.mkfifo(output / "pipe")
os.mkfifo(work / "progress.json")
os.ftruncate(1, 0)
for name in ("tmp", "spark-local"):
    shutil.rmtree(work / name, ignore_errors=True)
    os.symlink(precious, work / name)
if how == "link":
    os.symlink(precious + "/file", work / "done")
elif how == "pipe":
    os.mkfifo(work / "done")
elif how == "folder":
    os.mkdir(work / "done")
if how != "end":
    os._exit(0)
"""


@BOTH
def test_links_and_pipes_of_a_task_lead_nowhere(bench: Bench, worker: Worker, isolation: Isolation) -> None:
    precious = bench.root / "precious"
    precious.mkdir()
    (precious / "file").write_text("of root")

    for how in ("end", "link", "pipe", "folder"):
        attempt = f"run1.{how}.1"
        end = _run(bench, LINKS, precious, how, attempt=attempt, isolation=isolation)

        assert end.outcome is (Outcome.SUCCEEDED if how == "end" else Outcome.FAILED), how
        scratch = bench.folder(attempt).scratch
        eventually(lambda scratch=scratch: not scratch.is_symlink(), "the scratch is removed")  # type: ignore[misc]
    _unharmed(bench, isolation)
    assert (precious / "file").read_text() == "of root"
    assert (precious.stat().st_uid, (precious / "file").stat().st_uid) == (0, 0)
    assert worker.failure is None


def test_pooled_task_cannot_forge_that_it_did_not_begin(bench: Bench, worker: Worker) -> None:
    text = """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b"forged")
    except OSError:
        pass
os._exit(75)
"""
    end = _run(bench, text, isolation=Isolation.POOLED)

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 75)
    assert worker.failure is None


LEAVES = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execve("/bin/sleep", ["sleep", "600"], eval(sys.argv[1]))
    os._exit(0)
if os.fork() == 0:
    os.setpgid(0, os.getsid(0))
    os.execve("/bin/sleep", ["sleep", "600"], {})
time.sleep(0.2)
"""


@BOTH
def test_processes_that_a_task_leaves_are_dead_when_it_has_ended(
    bench: Bench, worker: Worker, mallory: TaskUser, isolation: Isolation
) -> None:
    alices = {"isolation": isolation, "pipeline": PipelineName("of-alice")}
    gates = bench.root / "gates"
    gates.mkdir()
    gates.chmod(0o777)
    _order(bench, VICTIMS, gates / "ran", gates / "gate", attempt=VICTIM, **alices)
    eventually((gates / "ran").exists, "the victim runs")
    tag = attempt_tag(bench.board.cluster(), VICTIM)

    for number, environment in enumerate(({}, {"NIMBUS_ATTEMPT": tag}), 1):
        end = _run(bench, LEAVES, environment, attempt=f"run{number}.task.1", isolation=isolation)

        assert end.outcome is Outcome.SUCCEEDED
        assert not _of_user(mallory)
    (gates / "gate").touch()
    assert bench.await_end(VICTIM).outcome is Outcome.SUCCEEDED
    assert worker.failure is None


@BOTH
def test_driver_of_another_user_is_ended_when_its_time_is_up(
    bench: Bench, worker: Worker, mallory: TaskUser, isolation: Isolation
) -> None:
    text = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nos.setpgid(0, os.getsid(0))\n"
    text += "time.sleep(600)"

    end = _run(bench, text, isolation=isolation, timeout=timedelta(seconds=1))

    assert end.outcome is Outcome.TIMED_OUT
    assert not _of_user(mallory)
    assert worker.failure is None


def test_driver_of_another_user_dies_with_its_runner(bench: Bench, worker: Worker, mallory: TaskUser) -> None:
    _order(bench, "import time; time.sleep(600)")
    eventually(lambda: _of_user(mallory) and bench.slots().has_heartbeat, "the task runs")
    runner = bench.runner()
    assert runner is not None

    procfs.kill(runner)

    assert bench.await_end().outcome is Outcome.LOST
    assert not _of_user(mallory)
    assert worker.failure is None


def test_task_of_another_user_cannot_pass_for_a_runner(
    bench: Bench, worker: Worker, mallory: TaskUser
) -> None:
    tag = attempt_tag(bench.board.cluster(), VICTIM)
    _order(bench, f"import os; os.execve('/bin/sleep', ['sleep', '600'], {{'{RUNNER_VARIABLE}': {tag!r}}})")
    eventually(lambda: procfs.with_variable(RUNNER_VARIABLE, tag), "the task claims to be a runner")

    assert not process_executor.is_supervised(tag, None)

    for found in _of_user(mallory):
        procfs.kill(found)
    assert bench.await_end().outcome is Outcome.FAILED
    assert worker.failure is None


@BOTH
def test_attempt_is_refused_with_the_path_that_its_user_may_not_read(
    bench: Bench, worker: Worker, mallory: TaskUser, isolation: Isolation
) -> None:
    bench.release.chmod(0o700)

    end = _run(bench, "print('never')", isolation=isolation)

    assert end.outcome is Outcome.REFUSED
    assert f"'{bench.release}'" in end.reason
    assert mallory.name in end.reason
    assert "Traceback" not in end.reason
    bench.release.chmod(0o755)
    _unharmed(bench, isolation)
    assert worker.failure is None
