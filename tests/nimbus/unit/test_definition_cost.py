"""What a definition costs grows with its size alone, whatever is wrong with it."""

from __future__ import annotations

import difflib
import random
import re
from typing import Any

import pytest

from nimbus.config.problems import MAX_SHOWN
from nimbus.definition import parse_definition
from nimbus.definition.faults import InvalidDefinitionError
from nimbus.domain.wording import closest
from nimbus.templates import names
from nimbus.templates.names import tasks_read

HEAD = "schema: 1\nname: x\n"
TASK = "type: python, script: a.py"


GIVEN = ", ".join(f"p{n}: x" for n in range(1000))


def tasks(more: str, count: int = 1000) -> str:
    lines = (f"  t{n}: {{{TASK}, {more.replace('N', str(n))}}}\n" for n in range(count))
    return f"{HEAD}tasks:\n{''.join(lines)}"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "".join(f"unknown{n}: 1\n" for n in range(1000)) + f"tasks: {{a: {{{TASK}}}}}\n",
        tasks("priorityN: 1"),
        tasks("priority: hihgN"),
        tasks("needs: [uN]"),
        tasks("args: ['{{ params.pN }}']"),
        tasks("args: ['{{ pN }}']"),
        tasks("args: ['{{ ds | upperN }}']"),
        tasks("args: ['{{ tasks.uN.result.x }}']"),
        f"{tasks('isolation: pooled')}webhook: {{secret: s, params: {{{GIVEN}}}}}",
    ],
    ids=["keys", "task keys", "words", "needs", "params", "names", "filters", "results", "webhook"],
)  # fmt: skip
def test_suggestions_are_found_only_for_the_problems_that_are_shown(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def count(word: str, known: Any, **more: Any) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", count)
    with pytest.raises(InvalidDefinitionError) as refused:
        parse_definition(text.encode(), "x.yaml")

    lines = str(refused.value).splitlines()
    assert len(lines) == MAX_SHOWN + 1
    assert lines[-1] == f"... and {1000 - MAX_SHOWN} more problems"
    assert len(compared) <= 4 * MAX_SHOWN


def test_a_word_is_compared_with_those_near_it_when_there_are_many() -> None:
    known = [f"{letter}{number:04}" for letter in "abcdefghij" for number in range(1000)]

    assert closest("c0500x", known) == "c0500"
    assert closest("zzz0500", known) is None, "the words that differ from the first letter on are left out"
    assert closest("x" * 4_000_000, known) is None


def test_a_problem_of_megabytes_is_shown_in_part() -> None:
    with pytest.raises(InvalidDefinitionError) as refused:
        parse_definition(
            f"{tasks('needs: []', 1)}? {'x' * 100_000}\n: 1\n".encode(), "x.yaml", is_published=True
        )

    assert len(str(refused.value)) < 3000


@pytest.mark.parametrize("seed", range(200))
def test_templates_are_found_as_by_their_pattern(seed: int) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice(["{{", "}}", "{%", "%}", "{", "}", "%", "tasks.a", "b"]) for _ in range(30))

    assert list(names._codes(text)) == re.findall(r"\{\{.*?\}\}|\{%.*?%\}", text, re.DOTALL)


def test_what_is_opened_and_never_closed_is_searched_once() -> None:
    assert tasks_read("tasks" + "{{" * 1_000_000) == set()


def test_texts_without_templates_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from nimbus.templates import checking

    monkeypatch.setattr(checking, "_parsed", None)
    spec = parse_definition(tasks("args: [a, b-N, '{', '}}']", 2).encode(), "x")

    assert spec.tasks[1].args == ("a", "b-1", "{", "}}")
