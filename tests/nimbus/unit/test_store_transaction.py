"""A leader's transaction: what it encodes, in which order it writes, and when it is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nimbus.adapters.store.transaction import LARGEST_BATCH, Operation, TreeTransaction
from nimbus.domain import writes as w


class Bench:
    """A transaction whose decisions are given as operations. Records what is encoded and written."""

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.written: list[Operation] = []
        self._next: Sequence[Operation] = ()
        self._transaction = TreeTransaction(self.written.extend, self._operations)

    def _operations(self, _write: w.Write) -> Iterator[Operation]:
        return iter(self._next)

    def add(self, *operations: Operation) -> bool:
        self._next = operations
        return self._transaction.add([w.RaiseSchema(1)])

    def commit(self) -> list[Operation]:
        self._transaction.commit()
        return self.written

    def page(self, text: str) -> Operation:
        def encode() -> bytes:
            self.encoded.append(text)
            return text.encode()

        return Operation("set", "/page", encode=encode)


def test_only_the_first_and_the_last_of_many_versions_are_encoded() -> None:
    bench = Bench()

    for number in range(100):
        assert bench.add(bench.page(f"v{number}"))

    assert bench.commit() == [Operation("set", "/page", b"v99")]
    assert bench.encoded == ["v0", "v99"]


def test_version_of_a_node_that_is_new_is_created() -> None:
    bench = Bench()

    assert bench.add(Operation("create", "/page", b"new"))
    assert bench.add(bench.page("v1"))

    assert bench.commit() == [Operation("create", "/page", b"v1")]


def test_node_that_is_changed_and_then_removed_is_removed_after_its_children() -> None:
    bench = Bench()

    assert bench.add(bench.page("v1"))
    assert bench.add(Operation("delete", "/page/a"), Operation("delete", "/page"))

    assert bench.commit() == [Operation("delete", "/page/a"), Operation("delete", "/page")]


def test_node_that_comes_and_goes_can_come_again() -> None:
    bench = Bench()

    assert bench.add(Operation("create", "/a", b"1"), Operation("delete", "/a"))
    assert bench.add(Operation("create", "/a", b"2"))
    assert not bench.add(Operation("create", "/b"), Operation("create", "/a", b"3"))

    assert bench.commit() == [Operation("create", "/a", b"2")]


def test_decision_that_does_not_fit_is_left_for_the_next_transaction() -> None:
    bench = Bench()
    half = b"x" * (LARGEST_BATCH // 2)

    assert bench.add(Operation("create", "/a", half))
    assert not bench.add(Operation("create", "/b", half))
    assert bench.add(Operation("set", "/a", half)), "it takes the place of the first"
    assert bench.add(Operation("delete", "/a"))
    assert bench.add(Operation("create", "/b", half))

    assert bench.commit() == [Operation("create", "/b", half)]
