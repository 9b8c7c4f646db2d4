"""`nimbus cluster export` and `import`, between SQLite and a real ZooKeeper, with a real S3 server."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from blobsync.bucket.keys import manifest as manifest_key
from leader import EpochRecord, FencingToken, ZooKeeperConfig, ZooKeeperSession
from leader.protocol.terms import encode_epoch
from nimbus.adapters.sqlite.calls import begin_term, last_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store import moving
from nimbus.adapters.store.calls import Calls, StoreSession, calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeCommandQueue
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.moving import make_cluster, read_state
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.tree import ClusterInUseError, ClusterTree, ClusterUnfinishedError
from nimbus.bootstrap.resources import open_resources, open_session
from nimbus.cli.main import cli
from nimbus.cli.options import object_store
from nimbus.config import Settings, load_settings
from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import AssignmentKind
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import Abdicate, CommandOutcome
from nimbus.domain.ids import TaskName
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer
from nimbus.ports import StoreUnavailableError
from tests.nimbus.contract.test_cluster_views import ATTEMPT, DIGEST, NOW, RECORD, RUN
from tests.nimbus.integration.test_engine_zookeeper import WORKER, Cluster, start
from tests.nimbus.leader_writes import commit
from tests.nimbus.loading import loaded

Eventually = Callable[..., None]
LONG = timedelta(seconds=60)
EPOCH = 7
MADE = ("sqlite", "zookeeper")


class Stage:
    """Configurations of two clusters that share a bucket: `old`, and `new` with the other kind of store."""

    def __init__(self, folder: Path, s3: S3Server, bucket: str, hosts: str, root: str, old: str) -> None:
        self.archive, self._folder = folder / "nimbus.zip", folder
        self._storage = {
            "endpoint_url": s3.endpoint_url,
            "bucket": bucket,
            "access_key_id": s3.access_key,
            "secret_access_key": s3.secret_key,
        }
        single = {"leadership": {"elector": "single"}, "cluster": {"root": "/nimbus"}}
        distributed = {"zookeeper": {"hosts": hosts}, "cluster": {"root": root}}
        kinds = {"sqlite": single, "zookeeper": distributed}
        self.old = self._file("old", kinds.pop(old))
        ((_, other),) = kinds.items()
        self.new = self._file("new", other)

    def _file(self, name: str, document: dict[str, Any]) -> Path:
        folders = {
            "storage": self._storage,
            "scheduler": {"state_dir": str(self._folder / name)},
            "worker": {"data": str(self._folder / "data")},
        }
        file = self._folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**document, **folders}))
        return file

    def call(self, what: str, config: Path, *words: str) -> Result:
        line = ["cluster", what, str(self.archive), *words, "--config", str(config)]
        return CliRunner().invoke(cli, line)

    def publish(self) -> None:
        """Put an object that looks like a release's manifest into the bucket."""
        store = object_store(load_settings(self.old, {}).storage)
        store.write(manifest_key(RECORD.name, RECORD.release or ""), b"{}")
        store.write(manifest_key(RUN.pipeline, DIGEST), b"{}")
        store.close()


@contextmanager
def opened(config: Path) -> Iterator[tuple[StoreSession, Settings]]:
    settings = load_settings(config, {})
    session = open_session(settings)
    try:
        yield session, settings
    finally:
        session.close(LONG)


def fill(session: StoreSession, root: str) -> None:
    """Write a pipeline, settings, a run with a claimed attempt and its order, an outcome, and a command."""
    path = f"{root}/epoch"
    token = FencingToken(path=path, version=EPOCH, epoch=EPOCH)
    calls = calls_on(session)
    calls.ensure(root)
    if isinstance(session, SqliteSession):
        token = begin_term(session, token)
    else:
        calls.create(path, encode_epoch(EpochRecord(EPOCH)))
        token = replace(token, version=0)
    store = TreeLeaderStore(calls_on(session), root, token)
    loaded(store)
    queue = TreeCommandQueue(calls_on(session), root)
    for _ in range(12):  # more than the limit
        calls.delete(Paths(root).command(queue.submit(Abdicate(reason=""), submitted_by="me")))
    answered = queue.submit(Abdicate(reason="why"), submitted_by="me")
    commit(
        store,
        [w.CreatePipeline(RECORD), w.PutSettings(ClusterSettings(pools={"db": 3}, variables={"a": "b"}))],
        [w.CreateRun(RUN), w.CreateAttempt(ATTEMPT)],
        [
            w.ConsumeCommand(
                CommandOutcome(
                    command=answered,
                    accepted=True,
                    code="ok",
                    message="",
                    decided_at=NOW,
                    epoch=EPOCH,
                    kind="start_run",
                )
            )
        ],
        [w.WriteClaim(ATTEMPT, Claim(attempt=str(ATTEMPT), claimed_at=NOW, nonce="n"))],
    )
    queue.submit(Abdicate(reason="waits"), submitted_by="me")
    calls.create(Paths(root).heartbeat(ATTEMPT), b"", ephemeral=True)


@pytest.fixture(params=MADE)
def stage(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    s3_server: S3Server,
    s3_bucket: str,
    zookeeper: ZooKeeperServer,
    zk_root: str,
) -> Stage:
    """The stage with a filled old cluster, whose releases are in the bucket."""
    stage = Stage(tmp_path, s3_server, s3_bucket, zookeeper.hosts, zk_root, request.param)
    with opened(stage.old) as (session, settings):
        fill(session, settings.cluster.root)
    stage.publish()
    return stage


def test_imported_state_is_that_which_was_exported(stage: Stage) -> None:
    exported = stage.call("export", stage.old, "-o", "json")
    imported = stage.call("import", stage.new)

    assert (exported.exit_code, imported.exit_code) == (0, 0), exported.output + imported.output
    told = json.loads(exported.stdout)
    assert set(told["releases"]) == {f"{RECORD.name}@{RECORD.release}", f"{RUN.pipeline}@{RUN.release}"}
    assert (stage.archive.stat().st_mode & 0o777, told["parts"]["pipelines"]["nodes"]) == (0o600, 2)
    with opened(stage.old) as (old, of_old), opened(stage.new) as (new, of_new):
        before, after = read_state(old, of_old.cluster.root), read_state(new, of_new.cluster.root)
        reader = TreeClusterReader(calls_on(new), of_new.cluster.root)
        assert (after, after.epoch) == (before, EPOCH)
        assert reader.run(RUN.id) == RUN
        assert reader.slots([ATTEMPT])[ATTEMPT].claim is not None
        start = len(of_old.cluster.root) + 1
        found = ClusterTree(old, of_old.cluster.root).below([of_old.cluster.root])
        lies = {path[start:] for path in found if path[start:].partition("/")[0] in moving.PARTS}
        assert lies - {path for path in lies if path.endswith("/beat")} == set(after.nodes)


def test_backup_is_verified_by_restoring_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage.call("export", stage.old).exit_code == 0
    good = stage.call("verify", stage.old, "-o", "json")
    monkeypatch.setattr(
        moving, "read_state", lambda session, root: replace(read_state(session, root), epoch=1)
    )
    bad = stage.call("verify", stage.old)
    damage(stage.archive, "newer")
    newer = stage.call("verify", stage.old)

    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout)["parts"]["pipelines"]["nodes"] == 2
    assert good.stderr.endswith(" can be restored\n")
    assert bad.exit_code == 1
    assert "keep an older backup" in bad.output
    assert (newer.exit_code, "has schema 99, and this release knows" in newer.output) == (2, True)


def test_numbers_of_commands_and_epochs_go_on_after_an_import(stage: Stage) -> None:
    assert stage.call("export", stage.old).exit_code == stage.call("import", stage.new).exit_code == 0

    with opened(stage.new) as (session, settings):
        root = settings.cluster.root
        (waiting,) = TreeClusterReader(calls_on(session), root).commands()
        number = TreeCommandQueue(calls_on(session), root).submit(Abdicate(reason=""), submitted_by="me")
        assert number > waiting.id
        if isinstance(session, SqliteSession):
            assert last_term(session, f"{root}/epoch").epoch == EPOCH


def test_export_is_refused_while_a_worker_runs_unless_it_is_a_backup(stage: Stage) -> None:
    with opened(stage.old) as (session, settings):
        path = f"{settings.cluster.root}/workers/w1"
        calls_on(session).create(path, b"", ephemeral=True)
        refused, taken = stage.call("export", stage.old), stage.call("export", stage.old, "--live")

    assert (refused.exit_code, "workers/w1" in refused.stderr) == (4, True)
    assert taken.exit_code == 0
    assert stage.call("export", stage.old, "--live").exit_code == 4  # the file exists


def test_import_and_export_are_refused_when_attempts_are_open_and_none_may_be(stage: Stage) -> None:
    with opened(stage.old) as (session, settings):
        open_attempt(session, settings.cluster.root)
    refused = stage.call("export", stage.old, "--no-open")
    assert stage.call("export", stage.old).exit_code == 0

    assert (refused.exit_code, "r.t.1" in refused.stderr) == (4, True)
    assert stage.call("import", stage.new, "--no-open").exit_code == 4
    assert stage.call("import", stage.new).exit_code == 0


def open_attempt(session: StoreSession, root: str) -> None:
    """Open an attempt of the run."""
    token = FencingToken(path=f"{root}/epoch", version=0, epoch=EPOCH)
    if isinstance(session, SqliteSession):
        token = replace(token, version=EPOCH)
    opened_run = lifecycle.open_attempt(RUN, TaskName("t"), worker=WORKER.id, epoch=EPOCH, now=NOW)
    commit(TreeLeaderStore(calls_on(session), root, token), [w.PutRun(opened_run, RUN)])


def test_import_is_refused_into_a_root_that_holds_something(stage: Stage) -> None:
    assert stage.call("export", stage.old).exit_code == 0
    with opened(stage.new) as (session, settings):
        calls_on(session).ensure(f"{settings.cluster.root}/pipelines/other")

        refused = stage.call("import", stage.new)

        assert (refused.exit_code, "not empty" in refused.stderr) == (4, True)
        assert ClusterTree(session, settings.cluster.root).counts() == {"pipelines": 2}


def test_import_is_refused_when_the_bucket_lacks_a_release(stage: Stage) -> None:
    assert stage.call("export", stage.old).exit_code == 0
    store = object_store(load_settings(stage.old, {}).storage)
    store.delete(manifest_key(RECORD.name, RECORD.release or ""))
    store.close()

    refused = stage.call("import", stage.new)

    assert (refused.exit_code, f"{RECORD.name}@" in refused.stderr) == (4, True)
    with opened(stage.new) as (session, settings):
        assert not ClusterTree(session, settings.cluster.root).exists()


@pytest.mark.parametrize("harm", ["changed", "cut", "elsewhere", "unnumbered", "newer"])
def test_damaged_archive_is_refused_before_anything_is_written(stage: Stage, harm: str) -> None:
    assert stage.call("export", stage.old).exit_code == 0
    damage(stage.archive, harm)

    refused = stage.call("import", stage.new)

    assert refused.exit_code == (2 if harm == "newer" else 4), refused.output
    with opened(stage.new) as (session, settings):
        assert not ClusterTree(session, settings.cluster.root).exists()


def damage(archive: Path, harm: str) -> None:
    """Change a record, cut the file, name another node or command, or claim that a later release wrote it."""
    if harm == "cut":
        archive.write_bytes(archive.read_bytes()[:-200])
        return
    with zipfile.ZipFile(archive) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    manifest = json.loads(parts["manifest.json"])
    if harm == "newer":
        manifest["schema"] = 99
    elif harm == "changed":
        parts["runs.jsonl"] += b'["runs/x", ""]\n'
    else:
        path = {"elsewhere": "runs/../../elsewhere", "unnumbered": "commands/first"}[harm]
        part = path.partition("/")[0]
        parts[f"{part}.jsonl"] += f'["{path}", ""]\n'.encode()
        manifest["parts"][part]["sha256"] = hashlib.sha256(parts[f"{part}.jsonl"]).hexdigest()
    parts["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(archive, "w") as new:
        for name, data in parts.items():
            new.writestr(name, data)


def test_half_an_import_keeps_daemons_out_and_is_ended_by_the_next_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.call("export", stage.old).exit_code == 0
    monkeypatch.setattr(moving, "NODES_TOGETHER", 5)
    with opened(stage.old) as (old, of_old), opened(stage.new) as (new, of_new):
        state = read_state(old, of_old.cluster.root)
        calls = type(calls_on(new))
        transact, done = calls.transact, list[str]()

        def failing(self: Calls, what: str, build: Callable[[Any], None]) -> None:
            if len(done) == 2:
                raise StoreUnavailableError(what)
            done.append(what)
            transact(self, what, build)

        with monkeypatch.context() as patch, pytest.raises(StoreUnavailableError):
            patch.setattr(calls, "transact", failing)
            make_cluster(new, of_new.cluster.root, state)

    with pytest.raises(ClusterUnfinishedError, match="cluster import"):
        open_resources(load_settings(stage.new, {}))
    with opened(stage.new) as (new, of_new):
        assert ClusterTree(new, of_new.cluster.root).unfinished() == "import"
    again = stage.call("import", stage.new)
    assert again.exit_code == 0, again.output
    resources = open_resources(load_settings(stage.new, {}))
    assert resources.reader.run(RUN.id) == RUN
    resources.session.close(LONG)
    resources.local.close()
    resources.store.close()


def test_half_an_import_can_be_destroyed_and_half_a_removal_cannot_be_imported_over(stage: Stage) -> None:
    assert stage.call("export", stage.old).exit_code == 0
    with opened(stage.new) as (session, settings):
        tree = ClusterTree(session, settings.cluster.root)
        tree.begin("import")
        tree.begin("destroy")

        refused = stage.call("import", stage.new)

        assert (refused.exit_code, "cluster destroy" in refused.stderr) == (4, True)
        assert (tree.unfinished(), tree.counts()) == ("destroy", {"unfinished": 1})


def test_lone_command_and_schema_are_imported(stage: Stage) -> None:
    commands = {"commands": b"", "commands/cmd-0000000001": b"{}"}
    state = moving.ClusterState(nodes=commands | {"outcomes": b""}, epoch=EPOCH, schema=1)
    with opened(stage.new) as (session, settings):
        root = settings.cluster.root

        make_cluster(session, root, replace(state, nodes=dict.fromkeys(moving.PARTS, b"") | state.nodes))

        number = TreeCommandQueue(calls_on(session), root).submit(Abdicate(reason=""), submitted_by="me")
        assert number > "cmd-0000000001"
        if not isinstance(session, SqliteSession):
            assert read_state(session, root).schema == 1


def test_state_is_read_again_until_nothing_changes_between_two_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SqliteSession(tmp_path / "state.db")
    session.start()
    calls, read, changes = calls_on(session), moving._read, [3]
    calls.ensure("/nimbus/runs")
    calls.ensure("/nimbus/terms")

    def reading(session: StoreSession, root: str) -> moving.ClusterState:
        found = read(session, root)
        calls.create("/nimbus/terms/sign-of-life", b"", sequence=True)
        if changes[0]:
            changes[0] -= 1
            calls.create("/nimbus/runs/r", b"", sequence=True)
        return found

    monkeypatch.setattr(moving, "_read", reading)
    try:
        assert len(read_state(session, "/nimbus").part("runs")) == 4
        changes[0] = 100
        with pytest.raises(ClusterInUseError, match="changes all the time"):
            read_state(session, "/nimbus")
    finally:
        session.close(LONG)


def test_attempt_that_was_open_is_lost_after_the_import_and_its_task_tried_again(
    zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    old, new_root = Cluster(zookeeper.hosts, zk_root), f"{zk_root}-new"
    first = old.scheduler("s1")
    eventually(lambda: first.leads)
    old.publish()
    assert old.answer(start()).accepted
    eventually(lambda: old.board.assignments(WORKER.id), what="the first task is assigned")
    assert old.claim("p-1.a.1")
    state = read_state(old.session, zk_root)
    old.stop()

    new = moved(zookeeper.hosts, new_root, state)
    try:
        new.scheduler("s2")

        def work() -> bool:
            for order in new.board.assignments(WORKER.id):
                if order.kind is AssignmentKind.REAP:
                    now = datetime.now(UTC)
                    lost = End(attempt=order.attempt, outcome=Outcome.LOST, written_by="w1", ended_at=now)
                    new.board.end(lost)
                elif new.claim(order.attempt):
                    new.finish(order.attempt)
            run = new.run("p-1")
            return run is not None and run.state is RunState.SUCCEEDED

        eventually(work)
        assert new.executed == ["p-1.a.2", "p-1.b.1"]
        run = new.run("p-1")
        assert run is not None
        lost, second = run.tasks[TaskName("a")].attempts
        assert (lost.outcome, lost.opened_by_epoch < second.opened_by_epoch) == (Outcome.LOST, True)
    finally:
        new.stop()


def moved(hosts: str, root: str, state: moving.ClusterState) -> Cluster:
    """The new cluster. Its worker registers when the import has ended."""
    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
    session.start(LONG)
    try:
        make_cluster(session, root, state)
    finally:
        session.close(LONG)
    return Cluster(hosts, root)
