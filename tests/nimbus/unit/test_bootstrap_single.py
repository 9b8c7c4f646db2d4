"""What a process refuses and imports with the configuration of a single scheduler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from leader import ElectionStateError, FencingToken
from leader.local.single import EpochFile
from nimbus.adapters.sqlite import calls
from nimbus.adapters.sqlite.calls import begin_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.bootstrap import processes
from nimbus.bootstrap.start_checks import StateLostError, check_epochs
from nimbus.cli.main import cli
from nimbus.config import load_settings
from nimbus.domain.cluster.schema import NEWEST_SCHEMA, SchemaUnknownError
from nimbus.localstack.errors import LocalStackError
from nimbus.localstack.ports import free_port
from nimbus.localstack.stack import LocalStack

SINGLE = """\
leadership: {elector: single}
storage: {bucket: nimbus}
scheduler: {state_dir: /nowhere}
worker: {data: /nowhere/data}
"""


def test_a_worker_of_its_own_is_refused_with_a_single_scheduler(tmp_path: Path) -> None:
    config = tmp_path / "single.yaml"
    config.write_text(SINGLE)

    result = CliRunner().invoke(cli, ["worker", "--config", str(config)])

    assert result.exit_code == 2
    assert "the worker of a single scheduler runs in its process" in result.output


@pytest.mark.parametrize("more", [["--schedulers", "3"], ["--spark", "standalone"]])
def test_up_with_single_refuses_options_that_need_a_cluster(tmp_path: Path, more: list[str]) -> None:
    result = CliRunner().invoke(cli, ["up", "--single", "--dir", str(tmp_path), *more])

    assert result.exit_code == 2
    assert "--single" in result.output


@pytest.mark.parametrize("single", [True, False])
def test_a_folder_stays_with_or_without_zookeeper(tmp_path: Path, single: bool) -> None:
    (tmp_path / ("zookeeper" if single else "scheduler-1/store")).mkdir(parents=True)

    with pytest.raises(LocalStackError, match="choose another folder"):
        LocalStack(tmp_path, 1, single=single).start()


def test_a_single_stack_has_one_scheduler_alone(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="a single scheduler has no others"):
        LocalStack(tmp_path, 2, single=True)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqliteSession]:
    session = SqliteSession(tmp_path / "store" / "state.db")
    session.start()
    yield session
    session.close(timedelta(seconds=10))


def test_epochs_go_on_from_the_database_when_their_file_is_lost(session: SqliteSession) -> None:
    file = session.file.with_name("epoch")
    check_epochs(session, "/nimbus", file)
    assert EpochFile(file).lock() == 0

    begin_term(session, FencingToken(path="/nimbus/epoch", version=1, epoch=41))
    other = session.file.with_name("another-epoch")
    check_epochs(session, "/nimbus", other)
    assert EpochFile(other).lock() == 41


def test_a_second_scheduler_is_refused_while_the_epochs_are_locked(session: SqliteSession) -> None:
    held = EpochFile(session.file.with_name("epoch"))
    held.lock()
    with pytest.raises(ElectionStateError, match=r"another process uses .*epoch"):
        check_epochs(session, "/nimbus", session.file.with_name("epoch"))
    held.unlock()
    check_epochs(session, "/nimbus", session.file.with_name("epoch"))


def test_empty_database_beside_the_epochs_of_a_cluster_is_refused_with_what_to_do(
    session: SqliteSession,
) -> None:
    file = session.file.with_name("epoch")
    check_epochs(session, "/nimbus", file)
    epochs = EpochFile(file)
    epochs.lock()
    epochs.raise_to(7)  # the process is killed before the term is in the database
    epochs.unlock()
    check_epochs(session, "/nimbus", file)
    session.close(timedelta(seconds=10))
    for path in session.file.parent.glob("state.db*"):
        path.unlink()

    empty = SqliteSession(session.file)  # a runner may open it before the scheduler does
    empty.start()
    try:
        with pytest.raises(StateLostError, match=r"nothing below /nimbus.*epoch 7.*Restore.*remove .*epoch"):
            check_epochs(empty, "/nimbus", file)
        file.unlink()
        check_epochs(empty, "/nimbus", file)
    finally:
        empty.close(timedelta(seconds=10))


def test_scheduler_does_not_start_with_a_database_of_a_newer_schema(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = session.file.parents[1] / "single.yaml"
    config.write_text(SINGLE.replace("/nowhere", str(config.parent)))
    settings = load_settings(config, {})
    monkeypatch.setattr(processes, "open_resources", lambda _: SimpleNamespace(session=session))
    monkeypatch.setattr(processes, "configure", lambda *_: None)
    with monkeypatch.context() as newer:
        newer.setattr(calls, "NEWEST_SCHEMA", NEWEST_SCHEMA + 1)
        begin_term(session, FencingToken(path="/nimbus/epoch", version=1, epoch=1))

    with pytest.raises(SchemaUnknownError, match="/nimbus has schema 2, and this release knows 1"):
        processes.run_scheduler(settings)


def test_only_its_own_user_may_read_the_database(session: SqliteSession) -> None:
    modes = {file.name: file.stat().st_mode & 0o777 for file in session.file.parent.iterdir()}

    assert set(modes.values()) == {0o600}
    assert session.file.parent.stat().st_mode & 0o777 == 0o700


LATE = (
    "boto3",
    "botocore",
    "httpx",
    "apprise",
    "pyspark",
    "nimbus.worker.application.spark_client",
    "nimbus.worker.application.kubernetes",
    "nimbus.worker.application.yarn",
    "nimbus.localstack",
)
"""Imported only when they are needed, so that `nimbus up --single` is ready in a second and a half."""
BUILT = """
import json, os, sys
from pathlib import Path
from nimbus.config import load_settings
from nimbus.bootstrap import processes, scheduler
settings = load_settings(Path(sys.argv[1]), os.environ)
resources = processes.open_resources(settings)
scheduler.build_parts(resources)
print(json.dumps(sorted(sys.modules)))
sys.stdout.flush()
os._exit(0)
"""


def test_a_single_scheduler_starts_without_what_it_may_never_need(tmp_path: Path) -> None:
    config = tmp_path / "single.yaml"
    config.write_text(
        f"leadership: {{elector: single}}\n"
        f"storage: {{bucket: nimbus, endpoint_url: 'http://127.0.0.1:{free_port()}',"
        " access_key_id: nobody, secret_access_key: none}\n"
        f"scheduler: {{state_dir: {tmp_path / 'state'}}}\n"
        f"worker: {{data: {tmp_path / 'data'}}}\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", BUILT, config], capture_output=True, text=True, check=True, timeout=60
    )

    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "nimbus.bootstrap.scheduler" in loaded
    assert loaded & set(LATE) == set()
