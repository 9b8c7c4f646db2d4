"""Runs a task of type `sql`: statements over the outputs of needed tasks; the last one is its result.

Runs in the driver, after go. Each needed task's `data/` folder is a view with the task's name, `_` for `-`;
the result of the last statement is written as Parquet to `data/` in the task's own output. With outputs in a
bucket and executors that may be on other hosts, both go through the format `nimbus`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from nimbus.domain.errors import NimbusError
from nimbus.task import TaskContext, context
from nimbus.templates.dates import date_values
from nimbus.templates.sandbox import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
import re

DATA_FOLDER = "data"


class SqlTaskError(NimbusError):
    """A SQL file cannot be run as a task."""

    code = "sql_task"


def render_sql(text: str, task: TaskContext, place: str) -> str:
    """Render a SQL template.

    It can use the same names as the arguments of tasks.

    Raises:
        SqlTaskError: the template is invalid or uses an unknown name.
    """
    start, end = task.data_interval_start, task.data_interval_end
    interval = None if start is None or end is None else (start, end)
    values: dict[str, Any] = {
        "release_root": str(task.release_root),
        "params": dict(task.parameters),
        "vars": dict(task.variables),
        "run": {"id": task.run_id, "logical_date": task.logical_date},
        **date_values(task.logical_date, interval, task.tz),
        "pipeline": {"name": task.pipeline},
        "task": {"name": task.task},
    }
    # No HTML escaping; sandboxed, because the text of a parameter must not execute Python.
    environment = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False, finalize=shown)
    try:
        return environment.from_string(text).render(values)
    except (TemplateError, ArithmeticError, TypeError, ValueError) as exc:
        line = getattr(exc, "lineno", None)
        where = f"{place}:{line}" if line else place
        why = getattr(exc, "message", None) or exc
        raise SqlTaskError(f"{where}: the template cannot be filled in: {why}") from exc


def views(needed: Iterable[str]) -> dict[str, str]:
    """The needed tasks by their names in SQL.

    Raises:
        SqlTaskError: two tasks would have the same name.
    """
    named: dict[str, str] = {}
    for task in sorted(needed):
        name = task.replace("-", "_")
        if name in named:
            raise SqlTaskError(f"two needed tasks would both be the view {name!r}; rename one of them")
        named[name] = task
    return named


def run_sql(script: Path, args: Sequence[str]) -> None:
    """Run a SQL file as this process's task.

    Raises:
        SqlTaskError: the file cannot be used, or its last statement is not a query.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    if args:
        raise SqlTaskError(f"{script.name}: a SQL task takes no args (given: {list(args)}); use parameters")
    task = context()
    statements = split_statements(render_sql(script.read_text(encoding="utf-8"), task, script.name))
    if not statements:
        raise SqlTaskError(f"{script.name} holds no statement")
    spark = SparkSession.builder.getOrCreate()
    tables = _RemoteTables if _is_remote(spark, task) else _LocalTables
    for name, needed in views(task.inputs).items():
        if (place := tables.find(task, needed)) is not None:
            tables.read(spark, place).createOrReplaceTempView(name)
            sys.stdout.write(f"view {name}: {place}\n")
    for statement in statements[:-1]:
        spark.sql(statement)
    result = spark.sql(statements[-1])
    try:
        place = tables.write(result, task)
    except AnalysisException:
        if result.columns:  # read last, because it is a round trip to a Connect server
            raise
        place = ""
    if not place:
        why = "its last statement is no query, so the task has no result; end it with a SELECT"
        raise SqlTaskError(f"{script.name}: {why}")
    sys.stdout.write(f"result: {place}\n")


def _is_remote(spark: SparkSession, task: TaskContext) -> bool:
    """True if executors may be on hosts without the copies of inputs from a bucket."""
    master = spark.conf.get("spark.master", "") or ""
    return task.output_uri.startswith("s3://") and not master.startswith("local")


class _LocalTables:
    """Tables in local folders that all executors can read."""

    @staticmethod
    def find(task: TaskContext, needed: str) -> str | None:
        folder = task.inputs[needed] / DATA_FOLDER
        return str(folder) if folder.is_dir() else None

    @staticmethod
    def read(spark: SparkSession, place: str) -> DataFrame:
        return spark.read.parquet(place)

    @staticmethod
    def write(result: DataFrame, task: TaskContext) -> str:
        place = str(task.output / DATA_FOLDER)
        result.write.parquet(place)
        return place


class _RemoteTables:
    """Tables in the bucket."""

    @staticmethod
    def find(task: TaskContext, needed: str) -> str | None:
        from nimbus.worker.data.source import has_table

        uri = task.input_uri(needed, DATA_FOLDER)
        return uri if has_table(uri) else None

    @staticmethod
    def read(spark: SparkSession, place: str) -> DataFrame:
        return spark.read.format("nimbus").load(place)

    @staticmethod
    def write(result: DataFrame, task: TaskContext) -> str:
        if not result.columns:  # Spark's own formats refuse this
            return ""
        place = f"{task.output_uri}/{DATA_FOLDER}"
        result.write.format("nimbus").mode("append").save(place)
        return place


_TOKEN = re.compile(
    r"""
      (?P<raw>(?<!\w)[rR](?:'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)))  # r'...': a backslash is a backslash
    | (?P<string>'(?:\\.|''|[^'\\])*(?:'|\Z) | "(?:\\.|""|[^"\\])*(?:"|\Z))
    | (?P<name>`(?:``|[^`])*(?:`|\Z))
    | (?P<line>--[^\n]*)
    | (?P<block>/\*)
    | (?P<end>;)
    | (?P<other>[^'"`;/rR-]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_EDGE = re.compile(r"/\*|\*/")


def split_statements(text: str) -> list[str]:
    """Split SQL text.

    A semicolon in a string, a quoted name or a comment does not end a statement. Block comments nest, as in
    Spark; line comments and text after the last semicolon are kept with their statement. Statements with only
    blanks and comments are left out.

    Returns:
        Statements without their semicolons, in order, stripped.
    """
    statements: list[str] = []
    parts: list[str] = []
    says_something = False
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:  # the last alternative takes any character
            raise AssertionError(text[at : at + 20])
        kind = token.lastgroup
        stop = _end_of_block(text, token.end()) if kind == "block" else token.end()
        if kind == "end":
            if says_something:
                statements.append("".join(parts).strip())
            parts, says_something = [], False
        else:
            parts.append(text[at:stop])
            says_something |= kind not in ("line", "block") and not text[at:stop].isspace()
        at = stop
    if says_something:
        statements.append("".join(parts).strip())
    return statements


def _end_of_block(text: str, at: int) -> int:
    depth = 1
    for edge in _EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
