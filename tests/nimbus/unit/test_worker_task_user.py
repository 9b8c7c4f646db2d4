"""Allowed users of tasks, refusals at a worker's start, and files that tasks may have created."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from nimbus.domain.ids import PipelineName
from nimbus.worker.host import task_user
from nimbus.worker.host.files import read_untrusted, remove_tree
from nimbus.worker.host.task_user import (
    TaskUser,
    TaskUserError,
    TaskUsers,
    find_users,
    refuse_readable_secrets,
)

OTHER = TaskUser(name="etl", uid=54321, gid=54321, groups=(54321, 54400), home="/")


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_user, "_lacking", lambda: "")


@pytest.mark.usefixtures("as_root")
def test_pipelines_have_their_own_user_or_that_of_all() -> None:
    nobody = pwd.getpwnam("nobody")

    users = find_users("nobody", {"flights": "54321"})

    assert users.of(PipelineName("flights")) == TaskUser(
        name="54321", uid=54321, gid=54321, groups=(54321,), home="/"
    )
    other = users.of(PipelineName("other"))
    assert other is not None
    assert (other.name, other.uid, other.gid, other.home) == (
        "nobody",
        nobody.pw_uid,
        nobody.pw_gid,
        nobody.pw_dir,
    )
    assert {user.name for user in users.all()} == {"nobody", "54321"}
    assert find_users(str(nobody.pw_uid), {}).of_all == other


def test_without_configured_users_tasks_run_as_the_worker() -> None:
    assert find_users(None, {}) == TaskUsers()
    assert TaskUsers().of(PipelineName("flights")) is None


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-such-user", "there is no user 'no-such-user' on this host"),
        ("root", "is root"),
        ("00", "is root"),
        (str(2**32 - 1), "there is no user"),
    ],
)
def test_user_that_tasks_cannot_run_as_is_refused_with_its_key(name: str, words: str) -> None:
    with pytest.raises(TaskUserError, match=rf"^worker\.run_as: .*{words}"):
        find_users(name, {})
    with pytest.raises(TaskUserError, match=rf"^worker\.run_as_pipelines\.flights: .*{words}"):
        find_users(None, {"flights": name})


def test_worker_that_may_not_switch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(TaskUserError, match="it lacks the rights of root"):
        find_users("nobody", {})


def test_root_without_a_capability_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "CapEff:\t00000000a80425fb\n")  # Docker's default

    with pytest.raises(TaskUserError, match="it lacks CAP_SYS_PTRACE"):
        find_users("nobody", {})


@pytest.mark.parametrize(
    ("mode", "group", "readable"),
    [(0o600, 0, False), (0o640, 0, False), (0o640, 54400, True), (0o604, 0, True), (0o604, 54400, False)],
)
def test_secrets_that_a_tasks_user_can_read_are_refused(mode: int, group: int, readable: bool) -> None:
    class Stat:
        st_uid, st_gid, st_mode = 0, group, mode

    class Folder:
        st_uid, st_gid, st_mode = 0, 0, 0o755

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "stat", lambda path: Stat if path.name == "nimbus.yaml" else Folder)
        if readable:
            with pytest.raises(TaskUserError, match="user etl, as whom tasks run, can read it"):
                refuse_readable_secrets(TaskUsers(OTHER), [Path("/etc/nimbus/nimbus.yaml")])
        else:
            refuse_readable_secrets(TaskUsers(OTHER), [Path("/etc/nimbus/nimbus.yaml")])


def test_secrets_in_a_folder_that_is_closed_are_not_readable(tmp_path: Path) -> None:
    file = tmp_path / "nimbus.yaml"
    file.touch(mode=0o644)
    tmp_path.chmod(0o700)

    assert not OTHER.may_read(file)
    assert not OTHER.may_read(tmp_path / "missing")


def test_untrusted_file_is_read_only_if_it_is_a_small_regular_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    assert read_untrusted(tmp_path / "file", 5) == b"12345"
    assert read_untrusted(tmp_path / "file", 4) is None
    for name in ("link", "pipe", "folder", "missing"):
        assert read_untrusted(tmp_path / name, 5) is None


def test_tree_of_any_depth_is_removed_and_its_links_are_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(precious)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)

    remove_tree(top)

    assert not top.exists()
    assert (precious / "file").exists()
    (tmp_path / "alias").symlink_to(precious)
    remove_tree(tmp_path / "alias")
    assert (precious / "file").exists()


def test_program_that_removes_a_deep_tree_gets_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    monkeypatch.setattr("subprocess.run", lambda *_, env=os.environ, **__: given.append(env))

    remove_tree(tmp_path)

    assert [list(environment) for environment in given] == [["PATH"]]
