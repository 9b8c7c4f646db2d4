"""One factory chooses the elector by its name, and reports errors of a name or a setup."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from leader import ElectionConfig, ElectionConfigError, Leadership, Participant, Verdict
from leader.elector import Elector
from leader.factory import ElectorSetup, make_elector
from leader.local.single import SingleElector


class Silent:
    """An electable that does nothing."""

    def elected(self, leadership: Leadership) -> None:
        pass

    def revoked(self, leadership: Leadership, reason: str) -> None:
        pass


def _setup(**parts: object) -> ElectorSetup:
    return ElectorSetup(
        config=ElectionConfig(root=f"/t-{uuid.uuid4().hex}"),
        participant=Participant("a"),
        guard=lambda: Verdict(True),
        electable=Silent(),
        **parts,  # type: ignore[arg-type]
    )


def own_factory(setup: ElectorSetup) -> Elector:
    """A user's own factory."""
    return make_elector("single", setup)


def broken_factory(setup: ElectorSetup) -> object:
    """A factory that returns something else."""
    return setup


NOT_CALLABLE = 7


def test_a_single_node_is_made_by_its_name() -> None:
    elector = make_elector("single", _setup())

    assert type(elector) is SingleElector
    assert isinstance(elector, Elector)


def test_one_of_your_own_is_made_by_a_dotted_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    elector = make_elector(f"{Path(__file__).stem}:own_factory", _setup())

    assert isinstance(elector, Elector)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("raft", "'raft' is not known; give zookeeper, single, or dotted.path:factory"),
        ("memory", "is not known"),
        ("", "is not known"),
        ("zookeeper", "needs a started ZooKeeperSession"),
        ("no.such.module:factory", "cannot be loaded .ModuleNotFoundError"),
        (":factory", "cannot be loaded"),
        ("leader.config:", "cannot be loaded"),
        ("leader.config:NoSuch", "cannot be loaded .AttributeError"),
        (f"{Path(__file__).stem}:NOT_CALLABLE", "is not callable; it is a int"),
        (f"{Path(__file__).stem}:broken_factory", "made a ElectorSetup, which lacks methods"),
    ],
)
def test_a_kind_that_cannot_be_made_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, kind: str, words: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    with pytest.raises(ElectionConfigError, match=words):
        make_elector(kind, _setup())


def test_an_epoch_file_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElectionConfigError, match="does not exist; make it"):
        make_elector("single", _setup(epoch_file=tmp_path / "missing" / "epoch"))


def test_what_is_made_and_never_queued_leaves_nothing_behind() -> None:
    elector = make_elector("single", _setup())

    assert not elector.is_leader()
    assert elector.get_all_participants() == []
