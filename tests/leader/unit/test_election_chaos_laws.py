"""The checker of the election's chaos tests finds faults in a history, and none in a good one."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from tests.leader.chaos.election.election_driver import plan
from tests.leader.chaos.election.election_faults import KINDS
from tests.leader.chaos.election.election_laws import Due, judge, moment_of
from tests.leader.chaos.election.history_lines import Did, Line, Pen, Reader
from tests.leader.election.history import Kind, Moment

SESSION_NS = 1_000


def line(did: Did, at: int, name: str = "a", *, until: int | None = None, **more: Any) -> Line:
    """One event that began at `at`."""
    return Line(name=name, boot=f"boot-{name}", did=did, before_ns=at, after_ns=until or at + 1, **more)


def led(name: str, epoch: int, *moments: int) -> list[Line]:
    """Confirmed, then True at each moment."""
    first = line(Did.CONFIRMED, moments[0], name, epoch=epoch)
    return [first, *(line(Did.OBSERVED, at, name, epoch=epoch, gap_ns=1) for at in moments)]


def found(
    lines: list[Line], *, played: list[Moment] | None = None, dues: list[Due] | None = None
) -> list[str]:
    """The findings of the checker."""
    return judge(lines, played or [], dues or [], SESSION_NS)


def test_judge_finds_nothing_when_one_leads_after_the_other() -> None:
    assert found(led("a", 1, 10, 20, 30) + led("b", 2, 40, 50)) == []


def test_judge_finds_an_older_leader_that_still_leads_after_a_newer_began() -> None:
    (wrong,) = found(led("a", 1, 10_000, 45_000) + led("b", 2, 40_000, 50_000))

    assert wrong.startswith("no two leaders at one time: ")


def test_judge_does_not_accuse_where_two_answers_may_have_been_given_in_good_order() -> None:
    slow = line(Did.OBSERVED, 39_000, "a", until=60_000, epoch=1, gap_ns=1)

    assert found([*led("a", 1, 10_000), slow, *led("b", 2, 40_000, 50_000)]) == []


def test_judge_excuses_a_leader_that_an_operator_deposed_until_it_must_know() -> None:
    lines = led("a", 1, 10_000, 45_000) + led("b", 2, 40_000, 50_000)
    deposed = moment_of(Kind.DEPOSED, "a", 35_000, 60_000, of=lines[0])

    assert found(lines, played=[deposed]) == []


def test_judge_allows_epochs_to_begin_anew_in_another_process_when_the_data_were_lost() -> None:
    lines = led("a", 7, 10_000, 20_000) + led("b", 1, 40_000)
    reborn = moment_of(Kind.REBORN, "ensemble", 28_000, 30_000)

    assert found(lines, played=[reborn]) == []
    assert len(found(lines)) == 1


def test_judge_finds_writes_that_zookeeper_took_in_the_wrong_order() -> None:
    newer = line(Did.WROTE, 41, "b", until=90, epoch=2, zxid=8)
    older = line(Did.WROTE, 39, "a", until=90, epoch=1, zxid=9)
    (wrong,) = found([*led("a", 1, 10), older, newer])

    assert wrong.startswith("no write is accepted in an epoch after a newer one was taken")


def test_judge_finds_a_leader_that_wakes_as_one() -> None:
    woken = line(Did.OBSERVED, 5_000, epoch=1, gap_ns=SESSION_NS + 1)
    denied = line(Did.DENIED, 9_000, gap_ns=SESSION_NS + 1)

    assert found([*led("a", 1, 10), woken, denied]) == ["a leads after 0.000 s without a question"]


def test_judge_finds_that_nobody_led_for_too_long() -> None:
    dues = [
        Due("one", 15, 16, 10),
        Due("two", 21, 25, 8),
        Due("three", 100, 112, 10),
        Due("four", 130, 150, 10),
    ]

    wrong = found(led("a", 1, 10, 20, 30, 105), dues=dues)

    assert [each.rpartition(" ")[2] for each in wrong] == ["two", "four"]


def test_history_survives_the_way_through_its_file(tmp_path: Path) -> None:
    reader, file = Reader(tmp_path / "history"), tmp_path / "history"
    assert reader.news() == []
    pen = Pen(file)
    lines = [
        line(Did.WROTE, 1, epoch=3, zxid=1 << 40),
        line(Did.DENIED, 2, gap_ns=0),
        line(Did.REVOKED, 3, epoch=0, why='a "word"\nand another'),
    ]
    pen.write(lines[0])
    assert reader.news() == lines[:1]
    for each in lines[1:]:
        pen.write(each)
    with file.open("ab") as torn:
        torn.write(b'{"name": "a", "bo')

    assert reader.news() == lines[1:]
    assert reader.news() == []
    pen.close()


def test_plan_plays_every_kind_before_any_twice_and_the_same_for_the_same_seed() -> None:
    session = timedelta(seconds=2)
    first, again = (list(islice(plan(Random(7), session), 40)) for _ in range(2))

    assert first == again
    assert first != list(islice(plan(Random(8), session), 40))
    kinds = [drawn.kind for draws in first[: len(KINDS) - 1] for drawn in draws]
    assert sorted(kinds) == sorted(set(KINDS) - {"wiped"})
    assert any(len(draws) == 2 for draws in first)
