"""Where SQL statements end."""

from __future__ import annotations

import pytest

from nimbus.worker.driver.sql_task import split_statements


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';'; SELECT 2", ["SELECT ';'", "SELECT 2"]),
        ('SELECT ";"; SELECT 2', ['SELECT ";"', "SELECT 2"]),
        ("SELECT `a;b` FROM t; SELECT 2", ["SELECT `a;b` FROM t", "SELECT 2"]),
        ("SELECT `a``;b`; SELECT 2", ["SELECT `a``;b`", "SELECT 2"]),
        (r"SELECT 'it\';s'; SELECT 2", [r"SELECT 'it\';s'", "SELECT 2"]),
        ("SELECT 'it'';s'; SELECT 2", ["SELECT 'it'';s'", "SELECT 2"]),
        (r"SELECT r'\'; SELECT 2", [r"SELECT r'\'", "SELECT 2"]),
        (r"SELECT tr'\';'; SELECT 2", [r"SELECT tr'\';'", "SELECT 2"]),
        ("SELECT 1 -- a; b\n; SELECT 2", ["SELECT 1 -- a; b", "SELECT 2"]),
        ("SELECT 1 /* a; b */; SELECT 2", ["SELECT 1 /* a; b */", "SELECT 2"]),
        ("SELECT 1 /* a /* ; */ ; */; SELECT 2", ["SELECT 1 /* a /* ; */ ; */", "SELECT 2"]),
        ("SELECT '/*'; SELECT '*/'", ["SELECT '/*'", "SELECT '*/'"]),
        ("SELECT 4 - 2 / 1; SELECT 2", ["SELECT 4 - 2 / 1", "SELECT 2"]),
        ("-- only a comment\n;;  ; /* ; */", []),
        ("SELECT 1; -- the end", ["SELECT 1"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
        ("", []),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_and_comments(text: str, statements: list[str]) -> None:
    assert split_statements(text) == statements
