"""Reads the items of `for_each` from files in the outputs of needed tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from nimbus.domain.children import LARGEST_ITEMS, SCALAR, ItemsError, items_in
from nimbus.domain.lifecycle import committed_outputs
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.run import Run
from nimbus.templates.lists import file_in
from nimbus.templates.names import TemplateError

OpenFile = Callable[[str, str], Iterator[bytes] | None]
"""Opens a file of an output, by the reference of the output and the path in it; None: there is none."""


def takes_items(spec: TaskSpec) -> bool:
    """True when a rendered task starts child runs with items from files."""
    return spec.is_wanted and spec.children is not None and bool(spec.children.templates)


def with_items(spec: TaskSpec, run: Run, open_file: OpenFile) -> TaskSpec:
    """A task with the items that it takes from files.

    Raises:
        TemplateError: there is no such file, or it has bad lines.
        OutputsNotHereError: this scheduler cannot read the output.
        NimbusError: storage does not answer.
    """
    if spec.children is None or not takes_items(spec):
        return spec
    most, lists = spec.children.max_items, {}
    for name, text in spec.children.templates.items():
        where = "for_each" if name == SCALAR else f"for_each.{name}"
        task, path = file_in(text) or (spec.name, "")
        output = committed_outputs(run, [task]).get(task)
        pieces = None if output is None else open_file(output, path)
        if pieces is None:
            raise TemplateError(f"{where}: the output of task {task} has no file {path}")
        try:
            lists[name] = items_in(pieces, most)
        except ItemsError as exc:
            raise TemplateError(f"{where}: {path} of task {task}: {exc}") from exc
    if (size := sum(len(json.dumps(items)) for items in lists.values())) > LARGEST_ITEMS:
        raise TemplateError(f"for_each: the files have {size} bytes, {LARGEST_ITEMS} is the most")
    return replace(spec, children=spec.children.with_lists(lists))
