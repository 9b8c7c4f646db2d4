"""The follower of tokens: updates of the gate, and its state when something cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nimbus import records
from nimbus.access.gate import AccessGate, Presented
from nimbus.access.tokens import new_token
from nimbus.bootstrap.access import build_access_follower
from nimbus.config import load_settings
from nimbus.domain.cluster.access import AccessRole, Principal, Token
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.ports import Enqueue, StoreUnavailableError
from nimbus.scheduler.followers import AccessFollower, TokensFile, TokensFileError

Eventually = Callable[..., None]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
MADE = new_token()
TOKEN = Token(id=MADE.id, name="ada", role=AccessRole.VIEWER, sha256=MADE.sha256, created_at=NOW)


class Store:
    """See `nimbus.ports.AccessStore`."""

    def __init__(self) -> None:
        self.found: Mapping[str, Token] = {}
        self.down = False
        self.reads = 0
        self.watch: Enqueue = lambda: None

    def settings(self, changed: Enqueue) -> ClusterSettings:
        self.reads += 1
        if self.down:
            raise StoreUnavailableError("no answer")
        self.watch = changed
        return ClusterSettings(tokens=self.found)

    def session_key(self) -> bytes:
        if self.down:
            raise StoreUnavailableError("no answer")
        return b"k" * 32


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def followed() -> AccessGate:
    return AccessGate(required=True)


@pytest.fixture(autouse=True)
def follower(store: Store, followed: AccessGate, tmp_path: Path) -> Iterator[AccessFollower]:
    follower = AccessFollower(store, followed, TokensFile(tmp_path / "tokens.json"))
    follower._pause_s = 60.0
    follower.start()
    yield follower
    follower.stop(timedelta(seconds=30))


def who(gate: AccessGate) -> str:
    found = gate.admit(Presented(authorization=f"Bearer {MADE.text}"), NOW, 0.0)
    return f"{found.role} by {found.source}" if isinstance(found, Principal) else found.code


def write(folder: Path, *tokens: Token) -> None:
    part = folder / "part"
    part.write_bytes(records.TOKENS.encode(records.TokensBody(tokens=tokens)))
    part.replace(folder / "tokens.json")


def test_change_of_the_clusters_tokens_is_followed(
    store: Store, followed: AccessGate, eventually: Eventually
) -> None:
    eventually(lambda: who(followed) == "token_unknown")
    store.found = {TOKEN.id: TOKEN}
    store.watch()
    eventually(lambda: who(followed) == "viewer by token")
    store.found = {}
    store.watch()

    eventually(lambda: who(followed) == "token_unknown")


def test_outage_of_the_store_locks_nobody_out(
    store: Store, followed: AccessGate, eventually: Eventually
) -> None:
    store.found = {TOKEN.id: TOKEN}
    eventually(lambda: store.reads == 1)
    store.watch()
    eventually(lambda: who(followed) == "viewer by token")
    reads = store.reads
    store.down = True
    store.watch()
    eventually(lambda: store.reads > reads)

    assert who(followed) == "viewer by token"


def test_tokens_of_a_file_follow_it_when_it_changes_and_stay_while_it_is_broken(
    store: Store,
    followed: AccessGate,
    tmp_path: Path,
    follower: AccessFollower,
    eventually: Eventually,
) -> None:
    follower._pause_s = 0.01
    eventually(lambda: who(followed) == "token_unknown")
    write(tmp_path, TOKEN)
    store.watch()
    eventually(lambda: who(followed) == "viewer by file")
    write(tmp_path, replace(TOKEN, role=AccessRole.ADMIN))
    eventually(lambda: who(followed) == "admin by file")
    (tmp_path / "tokens.json").write_text("{")
    reads = store.reads
    eventually(lambda: store.reads > reads + 2)
    assert who(followed) == "admin by file"

    write(tmp_path)

    eventually(lambda: who(followed) == "token_unknown")


def test_tokens_of_a_file_end_when_it_is_deleted_and_come_back_with_it(tmp_path: Path) -> None:
    file = TokensFile(tmp_path / "tokens.json")
    assert file.changed() == {}
    write(tmp_path, TOKEN)
    kept = tmp_path / "kept.json"
    assert file.changed() == {TOKEN.id: TOKEN}
    (tmp_path / "tokens.json").rename(kept)

    assert file.changed() == {}
    kept.rename(tmp_path / "tokens.json")
    assert file.changed() == {TOKEN.id: TOKEN}


def test_tokens_file_is_read_when_it_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    write(tmp_path, TOKEN)
    file = TokensFile(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda _: (_ for _ in ()).throw(PermissionError("refused")))
        assert file.changed() is None

    assert file.changed() == {TOKEN.id: TOKEN}


def test_unreadable_tokens_file_keeps_a_scheduler_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    document = {
        "zookeeper": {"hosts": "127.0.0.1:2181"},
        "storage": {"bucket": "unused"},
        "scheduler": {"state_dir": str(tmp_path)},
        "worker": {"data": str(tmp_path)},
        "api": {"tokens_file": str(file)},
    }
    (tmp_path / "nimbus.yaml").write_text(json.dumps(document))
    settings = load_settings(tmp_path / "nimbus.yaml", {})
    build_access_follower(settings, Store(), AccessGate(required=True), None)  # it may come later

    file.mkdir()
    with pytest.raises(TokensFileError, match=r"api\.tokens_file: .* cannot be read") as refused:
        build_access_follower(settings, Store(), AccessGate(required=True), None)

    assert refused.value.exit_code == 2
