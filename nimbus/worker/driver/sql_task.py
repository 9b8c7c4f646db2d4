"""Runs a task of type `sql`: statements over the outputs of needed tasks.

Runs in the driver, after go. Each needed task's folder `data` is a view with the task's name, `_` for `-`,
and each other folder of Parquet files the view TASK_FOLDER. So are those of a dataset that it reads, with the
name of the read, over all its versions, also those from outside. If the last statement is a query, its result
is written as Parquet to `data` in the task's own output. With outputs in a bucket and executors that may be
on other hosts, both go through the format `nimbus`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from nimbus.domain.errors import NimbusError
from nimbus.task import ReadVersion, TaskContext, context
from nimbus.templates.dates import date_values
from nimbus.templates.names import secrets_in, takes_secrets, with_secrets
from nimbus.templates.sandbox import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA_FOLDER = "data"
WAREHOUSE = "spark.sql.warehouse.dir"
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
"""Formats of data from outside, by the end of their name."""


class SqlTaskError(NimbusError):
    """A SQL file cannot be run as a task."""

    code = "sql_task"


def render_sql(text: str, task: TaskContext, place: str) -> str:
    """Render a SQL template, with the names that arguments of tasks can use. Raises SqlTaskError."""
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


def views(folders: Mapping[str, Iterable[str]], text: str) -> dict[str, tuple[str, str]]:
    """The views that SQL uses, each with task and folder; each costs a job of Spark. Raises SqlTaskError."""
    words = frozenset(re.findall(r"\w+", text.lower()))
    named: dict[str, tuple[str, str]] = {}
    for task in sorted(folders):
        for folder in folders[task]:
            name = (task if folder == DATA_FOLDER else f"{task}_{folder}").replace("-", "_")
            if name.lower() not in words:
                continue
            if name in named:
                raise SqlTaskError(f"two tables of needed tasks would both be the view {name!r}; rename one")
            named[name] = task, folder
    return named


def folders_of(task: TaskContext, needed: str) -> list[str]:
    """The folders in the output of a needed task that have Parquet files."""
    top = task.input_uri(needed).rstrip("/") + "/"
    paths = (uri.removeprefix(top).split("/") for uri in task.input_files(needed))
    return sorted({folder for folder, *below in paths if below and below[-1].endswith(".parquet")})


def _inputs_by_folder(task: TaskContext, inputs: Iterable[str]) -> dict[str, list[str]]:
    folders: dict[str, list[str]] = {}
    for needed in inputs:
        for folder in folders_of(task, needed):
            folders.setdefault(folder, []).append(needed)
    return folders


def markers(statement: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a statement names, as in `:day`. Spark takes them as values, not as text."""
    code = _TOKEN.sub(lambda token: "" if token.lastgroup in _NO_CODE else token[0], statement)
    named = frozenset(re.findall(r":(\w+)", code))
    return {name: value for name, value in parameters.items() if name in named}


def run_sql(script: Path, args: Sequence[str], conf: Mapping[str, str], *, keeps_tables: bool) -> None:
    """Run a SQL file as this process's task. SqlTaskError: it cannot be used.

    Args:
        script: The file.
        args: Must be empty.
        conf: Its properties. Those that name secrets get their values here, in the session: Spark knows their
            names from its start, without the values, and so hides them in event logs.
        keeps_tables: Whether tables of Spark's default catalog are stored in the output.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    if args:
        raise SqlTaskError(f"{script.name}: a SQL task takes no args (given: {list(args)}); use parameters")
    task = context()
    text = render_sql(script.read_text(encoding="utf-8"), task, script.name)
    statements = split_statements(text)
    if not statements:
        raise SqlTaskError(f"{script.name} holds no statement")
    builder: Any = SparkSession.builder
    spark = (builder.config(WAREHOUSE, str(task.output)) if keeps_tables else builder).getOrCreate()
    for name, value in conf.items():
        if takes_secrets(name) and secrets_in(value):
            spark.conf.set(name, with_secrets(value, os.environ))
    is_remote = _is_remote(spark, task)
    sources = {needed: [needed] for needed in task.inputs}
    sources |= {
        read: [version.input for version in versions if not version.outside]
        for read, versions in task.reads.items()
    }
    folders = {name: _inputs_by_folder(task, inputs) for name, inputs in sources.items()}
    outside = {
        read: others
        for read, versions in task.reads.items()
        if (others := [version for version in versions if version.outside])
    }
    for read in outside:
        folders[read].setdefault(DATA_FOLDER, [])
    for name, (source, folder) in views(folders, text).items():
        inputs = folders[source][folder]
        others = outside.get(source, []) if folder == DATA_FOLDER else []
        parts = [_read(spark, task, needed, folder, is_remote=is_remote) for needed in inputs]
        parts += [_read_outside(spark, version) for version in others]
        # Each is read by itself, because its partitions are in folders of its own.
        joined = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
        joined.createOrReplaceTempView(name)
        count = f", {len(parts)} versions" if source in task.reads else ""
        sys.stdout.write(f"view {name}: {source}/{folder}{count}\n")
    for statement in statements[:-1]:
        spark.sql(statement, markers(statement, task.parameters) or None)
    result = spark.sql(statements[-1], markers(statements[-1], task.parameters) or None)
    try:
        place = _write(result, task, is_remote=is_remote)
    except AnalysisException:
        if result.columns:  # read last, because it is a round trip to a Connect server
            raise
        place = ""
    sys.stdout.write(f"result: {place or 'none, because the last statement is no query'}\n")


def format_of(uri: str) -> str:
    """Spark's format of data from outside, by the end of their name. SqlTaskError: none is known."""
    name = re.sub(r"\.(gz|bz2|zst)$", "", uri.rstrip("/").lower())
    for ends, form in _FORMATS.items():
        if name.endswith(ends):
            return form
    raise SqlTaskError(
        f"{uri} is data from outside, and the end of its name tells no format that a view can have "
        f"({', '.join(_FORMATS)}, also with .gz, .bz2, .zst): name it so, or read it by a Python task"
    )


def _read_outside(spark: SparkSession, version: ReadVersion) -> DataFrame:
    """A table of data from outside. The first line of a CSV file has the names of its columns."""
    uri = version.outside
    form = format_of(uri)
    place = unquote(uri) if uri.startswith("file:") else uri.replace("s3://", "s3a://", 1)
    if version.verified:  # so it is one file, and no pattern of others that were not compared
        place = re.sub(r"[*?\[\]{}\\]", r"\\\g<0>", place)
    options = {"header": True, "inferSchema": True} if form == "csv" else {}
    return spark.read.format(form).options(**options).load(place)


def _is_remote(spark: SparkSession, task: TaskContext) -> bool:
    """True if executors may be on hosts without the copies of inputs from a bucket."""
    master = spark.conf.get("spark.master", "") or ""
    return task.output_uri.startswith("s3://") and not master.startswith("local")


def _read(spark: SparkSession, task: TaskContext, needed: str, folder: str, *, is_remote: bool) -> DataFrame:
    if is_remote:
        return spark.read.format("nimbus").load(task.input_uri(needed, folder))
    return spark.read.parquet(str(task.input_folder(needed) / folder))


def _write(result: DataFrame, task: TaskContext, *, is_remote: bool) -> str:
    if not is_remote:
        place = str(task.output / DATA_FOLDER)
        result.write.parquet(place)
        return place
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
_NO_CODE = ("raw", "string", "name", "line")
_EDGE = re.compile(r"/\*|\*/")


def split_statements(text: str) -> list[str]:
    """Split SQL text into statements without their semicolons, stripped.

    A semicolon in a string, a quoted name or a comment does not end a statement. Block comments nest, as in
    Spark; line comments and text after the last semicolon are kept with their statement. Statements with only
    blanks and comments are left out.
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
