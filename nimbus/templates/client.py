"""The interface for rendering and checking templates, in a helper process or in this one."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

from nimbus.domain.child_runs import spec_of
from nimbus.domain.children import Parent
from nimbus.domain.ids import TaskName
from nimbus.domain.intervals import NO_INTERVAL
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.publications import KEY_PATTERN, Publication, Read, interval_in
from nimbus.domain.run import Run
from nimbus.domain.tasks import Tasks
from nimbus.templates.answers import Fault, TemplateError, short
from nimbus.templates.lists import with_lists
from nimbus.templates.names import is_plain, kept, needs_interval, needs_rendering

Question = Literal["render", "arguments", "file"]
MOST_TEXT = 512 << 10
"""Limit of all templates of one question, in characters, without texts that have no `{{` or `{%`. Checking so
many takes 5 s at most."""
MOST_FILE_TEXT = 1 << 20
"""The same for the template in a SQL file: most of such a text is none of its expressions."""
MOST_PLAIN = 64 << 10
"""Limit of texts without templates that are returned without a question, in characters: that of one text.
`nimbus.templates.rendering` refuses longer ones."""
_CONF = "spark.conf."
_KEY = "key of "
LARGEST_RENDERED = 96 << 10
"""Limit of the rendered texts of a task that reads results, in bytes of JSON: they are part of its order."""


class Templates(ABC):
    """Renders and checks templates.

    All methods raise TemplateHelperError if there is no answer, and no template is the cause.
    """

    def render(self, run: Run) -> Run:
        """The run with the templates of its tasks rendered.

        Raises:
            TemplateError: names the task, and the argument, the property of Spark or `when`.
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
            keys = self._results(
                "render", [read.key for read in keyed], tasks=[""] * len(keyed), **_facts(run)
            )
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

        Args:
            run: Its run.
            name: Name of the task.
            results: Results by task, for tasks that have one.

        Raises:
            TemplateError: names the task, and the argument, the property of Spark or `when`.
        """
        spec = run.tasks[name].spec
        (rendered,) = self._rendered(run, [spec], results=_known(spec, results))
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
            results = self._results(
                "render", texts, tasks=[spec.name for spec, _ in places], **_facts(run), **more
            )
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

        Args:
            parent: The run.
            link: Names the task and the item.
            results: Results by task, for tasks that this one reads and that have one.

        Raises:
            TemplateError: names the parameter.
        """
        task = parent.tasks[link.task].spec
        spec = spec_of(parent.tasks[link.task])
        if spec is None:
            raise TemplateError(f"task {link.task} starts no child runs")
        texts = {name: value for name, value in spec.parameters.items() if isinstance(value, str)}
        more: dict[str, Any] = {"results": _known(task, results)} if task.reads else {}
        if spec.for_each:
            more["item"] = spec.item(link.index)
        try:
            rendered = self._results(
                "render", list(texts.values()), tasks=[link.task] * len(texts), **_facts(parent), **more
            )
        except TemplateError as exc:
            if exc.at is None:
                raise
            raise TemplateError(f"params.{list(texts)[exc.at]}: {exc}") from exc
        return {**spec.parameters, **dict(zip(texts, rendered, strict=True))}

    def argument_faults(
        self,
        texts: Sequence[str],
        parameters: Collection[str],
        items: Sequence[Collection[str] | None] | None = None,
    ) -> list[list[Fault]]:
        """Faults of each argument: syntax, unknown names, statements, unknown filters.

        Args:
            texts: Arguments as written.
            parameters: Names of the pipeline's parameters.
            items: Names that `item` has in each text; None: there is no `item`.
        """
        return self._faults("arguments", texts, parameters, items)

    def file_faults(self, text: str, parameters: Collection[str]) -> list[Fault]:
        """What is wrong with the template in a SQL file: syntax, unknown names; with lines."""
        (faults,) = self._faults("file", [text], parameters)
        return faults

    def _faults(
        self,
        question: Question,
        texts: Sequence[str],
        parameters: Collection[str],
        items: Sequence[Collection[str] | None] | None = None,
    ) -> list[list[Fault]]:
        more = {} if items is None else {"items": [item and sorted(item) for item in items]}
        try:
            results = self._results(question, texts, parameters=sorted(parameters), **more)
        except TemplateError as exc:  # breaks the limits: the others are not known
            found = [Fault(str(exc))]
            return [found if number == (exc.at or 0) else [] for number in range(len(texts))]
        return [[Fault(*fault) for fault in faults] for faults in results]

    def _results(self, question: Question, texts: Sequence[str], **more: Any) -> list[Any]:
        if not texts:
            return []
        size = sum(len(text) for text in texts if not is_plain(text))
        most = MOST_FILE_TEXT if question == "file" else MOST_TEXT
        if size > most:
            raise TemplateError(f"the templates have {size} characters, {most} is the most")
        if question == "render" and size == 0 and sum(map(len, texts)) <= MOST_PLAIN:
            return list(texts)
        answer = self._ask({"question": question, "texts": list(texts), **more})
        if "error" in answer:
            raise TemplateError(answer["error"], answer["at"])
        return list(answer["results"])

    @abstractmethod
    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer, in the form of `nimbus.templates.program.Program.answer`."""


def _known(spec: TaskSpec, results: Mapping[TaskName, Mapping[str, Any]]) -> dict[str, Any]:
    """The value of `tasks` in templates."""
    return {read: {"result": results.get(read, {})} for read in spec.reads}


def _facts(run: Run) -> dict[str, Any]:
    """The values for the templates of a run."""
    interval = run.data_interval
    return {
        "pipeline": run.pipeline,
        "run_id": run.id,
        "logical_date": run.logical_date.isoformat(),
        "data_interval": interval and [interval.start.isoformat(), interval.end.isoformat()],
        "timezone": run.timezone,
        "parameters": dict(run.parameters),
        "variables": dict(run.variables),
    }


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
        **{f"{_KEY}{one.dataset}": one.key for one in spec.publishes if one.key},
    }


def _with_texts(spec: TaskSpec, texts: Mapping[str, str]) -> TaskSpec:
    """The task with rendered texts in place of `texts_of`. Equal texts are shared by all live runs."""
    args = tuple(sys.intern(text) for text in islice(texts.values(), len(spec.args)))
    conf = spec.spark_conf
    publishes = spec.publishes
    if len(texts) > len(args) + bool(spec.when):
        conf = {name: texts.get(f"{_CONF}{name}", text) for name, text in conf.items()}
        publishes = tuple(_with_key(spec, one, texts) for one in publishes)
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
        for one in spec.publishes:
            other = publishers.setdefault((one.dataset, one.key), spec.name)
            if other != spec.name:
                raise TemplateError(
                    f"task {spec.name}, publishes {one.dataset}: task {other} publishes key {one.key} already"
                )


def _check_key(where: str, text: str, key: str) -> None:
    if not KEY_PATTERN.fullmatch(key) or interval_in(key) is not None:
        raise TemplateError(
            f"{where}: key {short(text)} is {short(key)}, and must be 1 to 100 letters, digits, dots, _ and "
            "-, starting with a letter or digit, and no interval"
        )
