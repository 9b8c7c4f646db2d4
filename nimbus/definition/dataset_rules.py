"""Checks of the datasets that a pipeline publishes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from nimbus.config.problems import KeyPath
from nimbus.definition.faults import KeyFault
from nimbus.definition.models import PipelineKeys, PublicationKeys, ReadKeys, TaskKeys
from nimbus.domain.data.publications import Partitioning
from nimbus.domain.pipelines.pipeline import StartWhen
from nimbus.domain.wording import closest
from nimbus.templates.names import names_in, tasks_read

_LATER = "takes the result of a task, which is not known when the run starts"


def dataset_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    """Datasets that nobody or more than one task publishes, and faults of what tasks publish."""
    publishers: dict[str, str] = {}
    for task_name, task in model.tasks.items():
        for name, said in task.publishes.items():
            path = ("tasks", task_name, "publishes", name)
            if name not in model.datasets:
                yield KeyFault(
                    path,
                    f"there is no dataset {name!r} in `datasets` of this pipeline; add it there",
                    partial(closest, name, model.datasets),
                )
                continue
            other = publishers.setdefault(name, task_name)
            if other != task_name and model.datasets[name].partition is not Partitioning.KEY:
                yield KeyFault(path, f"task {other!r} publishes {name} already; only one task can")
            elif said.key and "task" not in names_in(said.key):
                other = publishers.setdefault(f"{name} with key {said.key}", task_name)
                if other != task_name:
                    yield KeyFault((*path, "key"), f"task {other!r} publishes it already; only one task can")
            yield from (fault._replace(path=path + fault.path) for fault in _faults(task, said, model, name))
    yield from _read_faults(model)
    yield from _start_faults(model)
    for name in sorted(model.datasets.keys() - publishers.keys()):
        if not model.datasets[name].outside:
            message = "no task publishes it: add it to `publishes` of one, say `outside: true`, or remove it"
            yield KeyFault(("datasets", name), message)


def _faults(task: TaskKeys, said: PublicationKeys, model: PipelineKeys, name: str) -> Iterator[KeyFault]:
    by_key = model.datasets[name].partition is Partitioning.KEY
    if by_key and not said.key:
        yield KeyFault(
            ("key",), f"is missing; {name} is partitioned by key, so say which one the task publishes"
        )
    elif said.key and not by_key:
        yield KeyFault(
            ("key",), f"{name} is not partitioned by key; remove this, or say `partition: key` there"
        )
    elif said.key and tasks_read(said.key):
        yield KeyFault(("key",), _LATER)
    if said.of is None:
        if not task.type.has_output:
            yield KeyFault(
                (), f"a {task.type} task has no output; name the task whose output it is, with `of`"
            )
    elif said.of not in task.needs:
        yield KeyFault(
            ("of",), f"{said.of!r} is not in the task's needs; add it", partial(closest, said.of, task.needs)
        )
    elif not model.tasks[said.of].type.has_output:
        yield KeyFault(("of",), f"a {model.tasks[said.of].type} task has no output; name another one")


def _read_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    used: set[str] = set()
    for task_name, task in model.tasks.items():
        for place, name in enumerate(task.reads):
            yield from _use_faults(("tasks", task_name, "reads", place), name, task, model.reads)
        used.update(task.reads)
    for name, read in model.reads.items():
        if name not in used:
            yield KeyFault(("reads", name), "no task reads it: add it to `reads` of one, or remove it")
        if read.of is not None and (read.of not in model.tasks or not model.tasks[read.of].pipeline):
            yield KeyFault(("reads", name, "of"), f"{read.of!r} is no task of type pipeline; name one")
        said = [key for key in ("of", "last", "key") if getattr(read, key) is not None]
        said += ["optional"] if read.optional and read.take == "new" else []
        said += ["take"] if read.take != "interval" else []
        if len(said) > 1:
            yield KeyFault(
                ("reads", name, said[1]), f"does not go together with {said[0]}; remove one of them"
            )
        if read.key and tasks_read(read.key):
            yield KeyFault(("reads", name, "key"), _LATER)
    yield from _new_faults(model)


def _new_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    """Faults of reads of what is new. Two runs at once would read the same."""
    readers: dict[str, str] = {}
    for name, read in model.reads.items():
        if read.take != "new":
            continue
        path = ("reads", name, "take")
        other = readers.setdefault(read.dataset or name, name)
        if other != name:
            yield KeyFault(path, f"{other!r} reads what is new in this dataset already; remove one of them")
        if model.concurrency is None or model.concurrency.limit > 1:
            yield KeyFault(path, "`new` needs `concurrency: {limit: 1}`, so that no two runs read the same")


def _use_faults(
    path: KeyPath, name: str, task: TaskKeys, reads: Mapping[str, ReadKeys]
) -> Iterator[KeyFault]:
    """Faults of a task's use of the read `name`."""
    if name not in reads:
        message = f"there is no {name!r} in `reads` of this pipeline; add it there"
        yield KeyFault(path, message, partial(closest, name, reads))
    elif not task.type.has_output:
        yield KeyFault(path, f"a {task.type} task reads no data; remove this")
    elif name in task.needs:
        yield KeyFault(path, f"{name!r} is a task that this one needs, too; give the read another name")
    elif (of := reads[name].of) is not None and of not in task.needs:
        message = f"{name!r} has what {of!r} published, which is not in the task's needs; add it"
        yield KeyFault(path, message, partial(closest, of, task.needs))


def _start_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    start = model.start
    for name, read in model.reads.items():
        path = ("reads", name, "start")
        if start is None and not read.start:
            yield KeyFault(path, "has no effect without `start: data` of the pipeline; remove it")
        elif start is not None and read.start and (read.dataset or name) in model.datasets:
            yield KeyFault(path, "each run would start the next one: this pipeline publishes it; say `false`")
    if start is None:
        return
    if not any(read.start and read.of is None for read in model.reads.values()):
        yield KeyFault(
            ("start",), "no read starts runs: add a dataset to `reads`, or start them by a schedule"
        )
    if model.schedule is not None and start.data is StartWhen.ALL:
        message = "does not go together with a schedule: each interval starts when all of its data are there"
        yield KeyFault(("start", "data"), message)


def key_texts(model: PipelineKeys) -> dict[KeyPath, str]:
    """Templates of keys, by their place."""
    of_reads: dict[KeyPath, str] = {
        ("reads", name, "key"): read.key for name, read in model.reads.items() if read.key
    }
    return of_reads | {
        ("tasks", task_name, "publishes", name, "key"): said.key
        for task_name, task in model.tasks.items()
        for name, said in task.publishes.items()
        if said.key
    }
