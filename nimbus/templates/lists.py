"""Lists of `for_each` from results or files of tasks. They are looked up; no template is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nimbus.domain.ids import TaskName
from nimbus.domain.runs.children import LARGEST_LISTS, SCALAR, ChildSpec
from nimbus.templates.names import TemplateError

FORM = "{{ tasks.NAME.result.KEY }}"
FILE_FORM = "{{ tasks.NAME.output }}/FILE"
_TASK = (
    r"\{\{\s*tasks\s*(?:\.\s*(?P<name>\w+)|\[\s*(?P<quote>[\"'])(?P<quoted>[^\"']+)(?P=quote)\s*\])\s*\.\s*"
)
_FORM = re.compile(_TASK + r"result\s*\.\s*(?P<key>\w+)\s*\}\}")
_FILE = re.compile(_TASK + r"output\s*\}\}/(?P<path>[^{}]+)")


def is_lookup(text: str) -> bool:
    """True when a text only reads one value from the result of one task, or names a file of its output."""
    return _FORM.fullmatch(text.strip()) is not None or file_in(text) is not None


def file_in(text: str) -> tuple[TaskName, str] | None:
    """The task and the path in its output that a text names; None: it names no file."""
    match = _FILE.fullmatch(text.strip())
    return None if match is None else (TaskName(match["name"] or match["quoted"]), match["path"])


def with_lists(spec: ChildSpec, results: Mapping[TaskName, Mapping[str, Any]]) -> ChildSpec:
    """The child runs of a task, with lists from the results of other tasks. Those in files stay templates.

    Raises TemplateError: a result does not have the list, or the lists are too large.
    """
    texts = {name: text for name, text in spec.templates.items() if file_in(text) is None}
    lists = {name: _list(name, text, results) for name, text in texts.items()}
    size = len(json.dumps(lists))
    if size > LARGEST_LISTS:
        raise TemplateError(f"for_each: the lists have {size} bytes, {LARGEST_LISTS} is the most")
    return spec.with_lists(lists)


def _list(name: str, text: str, results: Mapping[TaskName, Mapping[str, Any]]) -> tuple[Any, ...]:
    match = _FORM.fullmatch(text.strip())
    where = "for_each" if name == SCALAR else f"for_each.{name}"
    if match is None:
        raise TemplateError(f"{where}: must have the form {FORM}")
    task, key = TaskName(match["name"] or match["quoted"]), match["key"]
    values = results.get(task, {}).get(key)
    if not isinstance(values, list):
        raise TemplateError(f"{where}: task {task} gave no list {key}")
    for value in values:
        if not isinstance(value, str | int | float | bool):
            raise TemplateError(
                f"{where}: {json.dumps(value, ensure_ascii=False)[:80]} is no text, number or boolean"
            )
    return tuple(values)
