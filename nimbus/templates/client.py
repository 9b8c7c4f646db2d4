"""Renders the templates of runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from nimbus.domain.data.publications import KEY_PATTERN, Publication, Read, interval_in
from nimbus.domain.ids import TaskName
from nimbus.domain.pipelines.intervals import NO_INTERVAL
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.child_runs import spec_of
from nimbus.domain.runs.children import Parent
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.tasks import Tasks
from nimbus.templates.checking import check_size
from nimbus.templates.lists import with_lists
from nimbus.templates.names import (
    TemplateError,
    kept,
    needs_interval,
    needs_rendering,
    short,
)
from nimbus.templates.rendering import Renderer, render_arguments, render_context

_CONF = "spark.conf."
_KEY = "key of "
LARGEST_RENDERED = 96 << 10
"""Limit of the rendered texts of a task that reads results, in bytes of JSON: they are part of its order."""


class Templates:
    """Renders templates. Any thread."""

    def __init__(self) -> None:
        self._renderer = Renderer()

    def render(self, run: Run) -> Run:
        """The run with the templates of its tasks rendered.

        Raises TemplateError: names the task, and the argument, the property of Spark or `when`.
        """
        specs = [task.spec for task in run.tasks.values()]
        for spec in specs:
            if spec.reads and run.data_interval is None and any(map(needs_interval, texts_of(spec).values())):
                raise TemplateError(f"task {spec.name} needs a data interval: {NO_INTERVAL}")
        known = [replace(spec, args=(), spark_conf={}, when="") if spec.reads else spec for spec in specs]
        rendered = [
            replace(spec, publishes=new.publishes) if spec.reads else new
            for spec, new in zip(specs, self._rendered(run, known), strict=True)
        ]
        _check_keys_differ(rendered)
        tasks = Tasks(
            replace(task, spec=spec) for task, spec in zip(run.tasks.values(), rendered, strict=True)
        )
        return replace(run, tasks=tasks, reads=self._rendered_reads(run))

    def _rendered_reads(self, run: Run) -> tuple[Read, ...]:
        """The reads of a run, with their keys rendered."""
        keyed = [read for read in run.reads if read.key]
        if not keyed:
            return run.reads
        try:
            keys = self._texts(run, [read.key for read in keyed], [""] * len(keyed))
        except TemplateError as exc:
            raise TemplateError(f"reads: {exc}") from exc
        for read, key in zip(keyed, keys, strict=True):
            _check_key(f"reads {read.name}", read.key, key)
        rendered = dict(zip(keyed, keys, strict=True))
        return tuple(replace(read, key=rendered.get(read, "")) for read in run.reads)

    def render_task(
        self, run: Run, name: TaskName, results: Mapping[TaskName, Mapping[str, Any]]
    ) -> TaskSpec:
        """A task that reads results, with its templates rendered.

        `results`: results by task, for tasks that have one. Raises TemplateError: names the task, and the
        argument, the property of Spark or `when`.
        """
        spec = run.tasks[name].spec
        (rendered,) = self._rendered(run, [spec], tasks=_known(spec, results))
        size = len(json.dumps([rendered.args, rendered.spark_conf]))
        if size > LARGEST_RENDERED:
            raise TemplateError(
                f"task {name}: its arguments are rendered to {size} bytes as JSON, and {LARGEST_RENDERED} is "
                "the most where a task takes results; put a long text into the output of a task"
            )
        children = None if spec.children is None else with_lists(spec.children, results)
        return replace(rendered, reads=(), children=children)

    def _rendered(self, run: Run, specs: Sequence[TaskSpec], **more: Any) -> list[TaskSpec]:
        written = [texts_of(spec) for spec in specs]
        places = [(spec, place) for spec, texts in zip(specs, written, strict=True) for place in texts]
        texts = [text for texts in written for text in texts.values()]
        try:
            results = self._texts(run, texts, [spec.name for spec, _ in places], **more)
        except TemplateError as exc:
            if exc.at is None:
                raise
            spec, place = places[exc.at]
            raise TemplateError(f"task {spec.name}, {place}: {exc}") from exc
        rendered = iter(results)
        return [
            _with_texts(spec, {place: next(rendered) for place in texts})
            for spec, texts in zip(specs, written, strict=True)
        ]

    def child_parameters(
        self, parent: Run, link: Parent, results: Mapping[TaskName, Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """The parameters of a child run: those of the task, rendered with the item.

        `results`: results by task, for tasks that this one reads and that have one. Raises TemplateError:
        names the parameter.
        """
        task = parent.tasks[link.task].spec
        spec = spec_of(parent.tasks[link.task])
        if spec is None:
            raise TemplateError(f"task {link.task} starts no child runs")
        texts = {name: value for name, value in spec.parameters.items() if isinstance(value, str)}
        more: dict[str, Any] = {"tasks": _known(task, results)} if task.reads else {}
        if spec.for_each:
            more["item"] = spec.item(link.index)
        try:
            rendered = self._texts(parent, list(texts.values()), [link.task] * len(texts), **more)
        except TemplateError as exc:
            if exc.at is None:
                raise
            raise TemplateError(f"params.{list(texts)[exc.at]}: {exc}") from exc
        return {**spec.parameters, **dict(zip(texts, rendered, strict=True))}

    def _texts(self, run: Run, texts: Sequence[str], owners: Sequence[str], **more: Any) -> list[str]:
        check_size(texts)
        return render_arguments(self._renderer, texts, owners, render_context(run, **more))


def _known(spec: TaskSpec, results: Mapping[TaskName, Mapping[str, Any]]) -> dict[str, Any]:
    """The value of `tasks` in templates."""
    return {read: {"result": results.get(read, {})} for read in spec.reads}


def texts_of(spec: TaskSpec) -> dict[str, str]:
    """The templates of a task, by their places: arguments, properties of Spark, `when`."""
    return {
        **{f"argument {number}": kept(text) for number, text in enumerate(spec.args, 1)},
        **{
            f"{_CONF}{name}": kept(text, in_conf=True)
            for name, text in spec.spark_conf.items()
            if needs_rendering(text)
        },
        **({"when": spec.when} if spec.when else {}),
        **{
            f"{_KEY}{publication.dataset}": publication.key
            for publication in spec.publishes
            if publication.key
        },
    }


def _with_texts(spec: TaskSpec, texts: Mapping[str, str]) -> TaskSpec:
    """The task with rendered texts in place of `texts_of`. Equal texts are shared by all live runs."""
    args = tuple(sys.intern(text) for text in islice(texts.values(), len(spec.args)))
    conf = spec.spark_conf
    publishes = spec.publishes
    if len(texts) > len(args) + bool(spec.when):
        conf = {name: texts.get(f"{_CONF}{name}", text) for name, text in conf.items()}
        publishes = tuple(_with_key(spec, publication, texts) for publication in publishes)
    if not spec.when:
        return replace(spec, args=args, spark_conf=conf, publishes=publishes)
    answer = texts["when"].strip().lower()
    if answer not in ("true", "false"):
        raise TemplateError(
            f"task {spec.name}, when: {short(spec.when)} is {short(texts['when'])}, and must be true or "
            "false: write a comparison, such as {{ params.mode == 'full' }}"
        )
    return replace(spec, args=args, spark_conf=conf, when=answer, publishes=publishes)


def _with_key(spec: TaskSpec, publication: Publication, texts: Mapping[str, str]) -> Publication:
    """The publication with its key rendered."""
    if not publication.key:
        return publication
    key = texts[f"{_KEY}{publication.dataset}"]
    _check_key(f"task {spec.name}, publishes {publication.dataset}", publication.key, key)
    return replace(publication, key=key)


def _check_keys_differ(specs: Iterable[TaskSpec]) -> None:
    """Refuse two tasks that publish one key: which of the two versions is newer would be an accident."""
    publishers: dict[tuple[str, str], TaskName] = {}
    for spec in specs:
        for publication in spec.publishes:
            other = publishers.setdefault((publication.dataset, publication.key), spec.name)
            if other != spec.name:
                raise TemplateError(
                    f"task {spec.name}, publishes {publication.dataset}: task {other} publishes key "
                    f"{publication.key} already"
                )


def _check_key(where: str, text: str, key: str) -> None:
    if not KEY_PATTERN.fullmatch(key) or interval_in(key) is not None:
        raise TemplateError(
            f"{where}: key {short(text)} is {short(key)}, and must be 1 to 100 letters, digits, dots, _ and "
            "-, starting with a letter or digit, and no interval"
        )
