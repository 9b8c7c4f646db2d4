"""YAML with positions: refusals, early enough to cost nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.config.document import MAX_BYTES, MAX_DEPTH, parse_document, read_document
from nimbus.config.problems import (
    MAX_SHOWN,
    InvalidDocumentError,
    Problem,
    SuggestingError,
    spelled,
)
from nimbus.config.values import format_duration, parse_duration, parse_size

BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))

BROKEN: list[tuple[str, bytes, int | None, str]] = [
    ("empty", b"", None, "the document is empty"),
    ("only a comment", b"# nothing\n", None, "the document is empty"),
    ("a list", b"- 1\n- 2\n", None, "must be a mapping"),
    ("a text", b"hello\n", None, "must be a mapping"),
    ("a tab", b"a: 1\nb:\n\tc: 2\n", 3, "a tab is used for indentation; use spaces"),
    ("a tab in a flow", b"a: [1,\n\t2]\n@x: 1\n", 3, "put the text in quotes"),
    ("not UTF-8", b"a: 1\nb: \xff\n", 2, "not UTF-8"),
    ("UTF-16", "a: 1\n".encode("utf-16"), 1, "not UTF-8"),
    ("a control character", b"a: 1\nb: \x00\n", 2, "control character"),
    ("an open quote", b"a: 1\nb: 'x\nc: 2\n", 2, "a quote is opened and not closed"),
    ("an open bracket", b"a: [1, 2\nb: 3\n", 2, "is not closed"),
    ("two colons", b"a: b: c\n", 1, "a colon is not expected here"),
    ("two documents", b"a: 1\n---\nb: 2\n", 2, "a file holds one"),
    ("unknown alias", b"a: *x\n", 1, "nothing before it defines"),
    ("a foreign tag", b"a: 1\nb: !!python/object/apply:os.system ['ls']\n", 2, "is not supported; remove it"),
    ("a foreign tag on a text", b"a: !!python/name:os.system x\n", 1, "is not supported; remove it"),
    ("a foreign tag on a mapping", b"a: !!omap {b: 1}\n", 1, "is not supported; remove it"),
    ("no such day", b"a: 2013-02-31\n", 1, "put it in quotes"),
    ("a bad integer", b"a: !!int x\n", 1, "put it in quotes"),
    ("a bad boolean", b"a: !!bool x\n", 1, "put it in quotes"),
    ("a bad time", b"a: !!timestamp x\n", 1, "put it in quotes"),
    ("a huge number", b"a: " + b"9" * 5000 + b"\n", 1, "put it in quotes"),
    ("a number as key", b"a: {1: x}\n", 1, "put it in quotes"),
    ("a list as key", b"a: 1\n? [b]\n: c\n", 2, "a key must be text"),
    ("a merge key", b"a: &a {b: 1}\nc: {<<: *a}\n", 2, "merge keys are not supported"),
    ("too deep", b"a:\n  " + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), 2, "nested more than"),
    ("too deep for the stack", b"a: " + b"[" * 300_000, 1, "nested more than"),
    ("an alias of itself", b"a: &a [*a]\n", 1, "with its aliases the document is too large"),
    ("a bomb of aliases", BOMB.encode(), None, "with its aliases the document is too large"),
    ("too large", b"# " + b"x" * MAX_BYTES, None, "larger than 4 MiB"),
]


@pytest.mark.parametrize(("text", "line", "words"), [case[1:] for case in BROKEN], ids=[c[0] for c in BROKEN])
def test_document_is_refused_with_its_line_when_broken(text: bytes, line: int | None, words: str) -> None:
    with pytest.raises(InvalidDocumentError) as refused:
        parse_document(text, "x.yaml")

    (problem,) = refused.value.problems
    assert words in problem.message
    assert problem.file == "x.yaml"
    if line is not None:
        assert problem.line == line


def test_document_names_every_repeated_key_and_the_line_of_the_first() -> None:
    with pytest.raises(InvalidDocumentError) as refused:
        parse_document(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n", "x.yaml")

    assert str(refused.value).splitlines() == [
        "x.yaml:4: b.c: this key is here twice (first on line 3); keep one",
        "x.yaml:5: a: this key is here twice (first on line 1); keep one",
    ]


def test_document_keeps_the_line_of_every_key_and_list_item() -> None:
    document = parse_document(b"\xef\xbb\xbfa: 1\nb:\n  - x\n  - c: 2\n    d: {e: 3}\n", "x.yaml")

    assert document.data == {"a": 1, "b": ["x", {"c": 2, "d": {"e": 3}}]}
    assert document.lines == {
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "c"): 4,
        ("b", 1, "d"): 5,
        ("b", 1, "d", "e"): 5,
    }
    assert document.line_of(("b", 1, "missing")) == 4
    assert document.line_of(("missing",)) is None


def test_document_expands_a_modest_alias() -> None:
    assert parse_document(b"a: &x {b: [1]}\nc: *x\n", "x").data == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_unreadable_files_are_refused_by_what_they_are(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "missing.yaml", "there is no such file"),
        (tmp_path, "this is a folder"),
        (tmp_path / ("x" * 300), "cannot be read"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(InvalidDocumentError, match=words) as refused:
            read_document(path)
        assert str(path) in str(refused.value)


def test_problems_are_shown_by_line_and_a_flood_is_cut_off() -> None:
    problems = [Problem(file="x", line=line, message="bad") for line in range(MAX_SHOWN + 5, 0, -1)]

    error = InvalidDocumentError(problems)

    lines = str(error).splitlines()
    assert lines[0] == "x:1: bad"
    assert lines[-1] == "... and 5 more problems"
    assert len(error.problems) == MAX_SHOWN + 5


def test_problem_is_written_with_place_key_message_and_suggestion() -> None:
    problem = Problem(file="x.yaml", line=3, key="a.b[0]", message="unknown key", suggestion="c")

    assert str(problem) == 'x.yaml:3: a.b[0]: unknown key (did you mean "c"?)'
    assert str(Problem(file="x.yaml", message="is empty")) == "x.yaml: is empty"
    assert spelled(("a", 0, "b", 1, 2)) == "a[0].b[1][2]"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (" 3 s ", 3), ("0s", 0)],
)
def test_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(
    ("value", "words", "suggestion"),
    [
        (10, "say the unit, for example 10s", "10s"),
        (1.5, "say the unit", "1.5s"),
        ("10", "say the unit", "10s"),
        ("-5s", "is negative", None),
        ("5 minutes", "is not a unit of time", "5m"),
        ("5sec", "is not a unit of time", "5s"),
        ("5M", "is not a unit of time", "5m"),
        ("5fortnights", "is not a unit of time", None),
        ("soon", "is not a duration", None),
        ("", "is not a duration", None),
        ("9999999d", "longer than ten years", None),
        (True, "must be a duration such as 10s or 5m, not true", None),
        (None, "must be a duration such as 10s or 5m, not nothing", None),
        ([], "must be a duration such as 10s or 5m, not a list", None),
    ],
)
def test_duration_is_refused_with_what_to_write(value: object, words: str, suggestion: str | None) -> None:
    with pytest.raises(SuggestingError) as refused:
        parse_duration(value)

    assert words in str(refused.value)
    assert refused.value.suggestion == suggestion


@pytest.mark.parametrize("text", ["500ms", "10s", "90m", "2h", "1d", "0s", "36h"])
def test_format_duration_writes_what_parse_duration_reads(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize("word", ["on", "no", "true", "Yes"])
def test_key_that_yaml_reads_as_a_boolean_is_the_word_that_stands_there(word: str) -> None:
    assert parse_document(f"{word}: 1".encode(), "x").data == {word: 1}


@pytest.mark.parametrize(
    ("text", "size"),
    [("64KiB", 65536), ("1.5GiB", 3 << 29), (" 2 MiB ", 2 << 20), ("7B", 7), ("1024TiB", 1 << 50)],
)
def test_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "words", "suggestion"),
    [
        (10, "say the unit, for example 512MiB", None),
        ("10", "is not a size", None),
        ("-5MiB", "is not a size", None),
        ("5mb", "is not a unit of size", "5MiB"),
        ("5G", "is not a unit of size", "5GiB"),
        ("5bytes", "is not a unit of size", "5B"),
        ("5x", "is not a unit of size", None),
        ("1025TiB", "larger than 1024.0 TiB", None),
        (True, "must be a size such as 512MiB or 2GiB, not true", None),
    ],
)
def test_size_is_refused_with_what_to_write(value: object, words: str, suggestion: str | None) -> None:
    with pytest.raises(SuggestingError) as refused:
        parse_size(value)

    assert words in str(refused.value)
    assert refused.value.suggestion == suggestion
