"""Checks between the parts of a definition. Each rule finds all of its faults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from nimbus.config.problems import KeyPath
from nimbus.config.values import format_duration
from nimbus.definition.build import (
    SparkSettings,
    build_parameter,
    build_retries,
    build_spark,
    environment_fault,
)
from nimbus.definition.dataset_rules import dataset_faults, key_texts
from nimbus.definition.faults import KeyFault
from nimbus.definition.models import ParameterKeys, PipelineKeys, SparkKeys, TaskKeys
from nimbus.definition.needs import NeedGraph
from nimbus.definition.schedule_rules import schedule_faults, webhook_faults
from nimbus.definition.task_rules import (
    all_items_faults,
    child_faults,
    child_template_faults,
    given_texts,
    kept_faults,
    list_faults,
    wait_faults,
    wait_texts,
)
from nimbus.domain.pipelines.parameters import has_type, value_fault
from nimbus.domain.pipelines.pipeline import SPARK_KINDS, Isolation, SparkDeploy, SparkMode, TaskKind
from nimbus.domain.wording import closest
from nimbus.templates.checking import argument_faults
from nimbus.templates.names import kept, names_release, needs_rendering, secrets_in, takes_secrets, tasks_read

KEYS = {
    TaskKind.PYSPARK: ("script",),
    TaskKind.PYTHON: ("script",),
    TaskKind.SQL: ("script",),
    TaskKind.SHELL: ("command",),
    TaskKind.SPARK_SUBMIT: ("jar", "main_class"),
    TaskKind.SPARK_PIPELINE: ("spec",),
    TaskKind.PIPELINE: ("pipeline",),
    TaskKind.APPROVAL: ("prompt",),
    TaskKind.WAIT: ("waits_for",),
}
"""Required keys of each kind of task. For kinds that workers run, the first key names a file."""
SUFFIXES = {
    TaskKind.PYSPARK: (".py",),
    TaskKind.PYTHON: (".py",),
    TaskKind.SQL: (".sql",),
    TaskKind.SPARK_SUBMIT: (".jar",),
    TaskKind.SPARK_PIPELINE: (".yml", ".yaml"),
}
GIVES_RESULT = frozenset({TaskKind.PYSPARK, TaskKind.PYTHON, TaskKind.SHELL, TaskKind.SPARK_SUBMIT})
_REFRESHES = ("refresh", "full_refresh", "full_refresh_all")
"""Optional keys of a declarative pipeline."""


_SAID_BY_PLACE = {"spark.master": "the target", "spark.submit.deployMode": "spark.deploy"}
"""Properties that a task with a target must not set, and what sets them instead."""
_LISTS_OF_FILES = ("spark.archives", "spark.files", "spark.jars", "spark.submit.pyFiles")
_READ_BEFORE_RELEASE = ("spark.driver.", "spark.kubernetes.", "spark.submit.", "spark.yarn.")
"""Properties that the submission, or the start of the driver's JVM in a cluster, reads."""
_LONGEST_CYCLE = 20
"""Limit of the tasks that are listed of a cycle."""
SESSION_PROPERTIES = "spark.sql."
"""Prefix of properties that a Connect session can set. The server refuses the static ones among them."""


def faults(model: PipelineKeys, *, is_published: bool = False) -> Iterator[KeyFault]:
    """All faults between the parts of a definition and, if it is not published, in its templates."""
    for name, parameter in model.parameters.items():
        for fault in _parameter_faults(parameter):
            yield fault._replace(path=("parameters", name, *fault.path))
    for name, task in model.tasks.items():
        faults = (*_needs_faults(name, task, model.tasks), *_task_faults(task, model))
        for fault in (*faults, *child_faults(task, model.name)):
            yield fault._replace(path=("tasks", name, *fault.path))
    needs = NeedGraph({name: task.needs for name, task in model.tasks.items()})
    if not is_published:
        yield from _argument_faults(model, needs)
        yield from child_template_faults(model)
    yield from all_items_faults(model.tasks)
    yield from list_faults(model)
    yield from _cycle_faults(needs)
    yield from schedule_faults(model)
    yield from kept_faults(model)
    yield from webhook_faults(model)
    yield from dataset_faults(model)


def _parameter_faults(parameter: ParameterKeys) -> Iterator[KeyFault]:
    if (parameter.type == "list") != (parameter.items is not None):
        if parameter.items is None:
            yield KeyFault((), "a list needs `items`, the type of its values, such as `items: string`")
        else:
            yield KeyFault(("items",), f"a {parameter.type} has no items; remove it")
        return
    kind = parameter.items or parameter.type
    if (fault := _limits_fault(parameter, kind)) is not None:
        yield fault
    elif parameter.required and parameter.default is not None:
        yield KeyFault(("required",), "a required parameter has no default; remove one of them")
    elif parameter.default is not None:
        problem = value_fault(build_parameter(parameter), parameter.default)
        if problem is not None:
            yield KeyFault(("default",), problem)
    elif not parameter.required:
        yield KeyFault((), "needs a default, or `required: true`")


def _limits_fault(parameter: ParameterKeys, kind: str) -> KeyFault | None:
    """The first fault of `minimum`, `maximum` and `choices` of values of type `kind`."""
    for bound in ("minimum", "maximum"):
        if getattr(parameter, bound) is not None and kind not in ("integer", "number"):
            return KeyFault((bound,), f"a {kind} has no {bound}; remove it")
    if None not in (low := parameter.minimum, high := parameter.maximum) and low > high:  # type: ignore[operator]  # neither is None
        return KeyFault(("minimum",), f"minimum ({low:g}) must not be above maximum ({high:g})")
    for number, choice in enumerate(parameter.choices or ()):
        if not has_type(kind, choice):
            return KeyFault(("choices", number), f"must be of type {kind}, not {choice!r}")
    return None


def _needs_faults(name: str, task: TaskKeys, tasks: Mapping[str, TaskKeys]) -> Iterator[KeyFault]:
    seen = set()
    for number, need in enumerate(task.needs):
        path = ("needs", need if task.requirements else number)
        if need == name:
            yield KeyFault(path, "a task cannot need itself; remove it")
        elif need not in tasks:
            yield KeyFault(path, f"there is no task {need!r}", partial(_other_task, name, need, tasks))
        elif need in seen:
            yield KeyFault(path, f"{need!r} is listed twice; keep one")
        seen.add(need)


def _other_task(name: str, word: str, tasks: Collection[str]) -> str | None:
    """The task that is probably meant, other than the task itself."""
    return closest(word, (task for task in tasks if task != name))


def _task_faults(task: TaskKeys, model: PipelineKeys) -> Iterator[KeyFault]:
    yield from _key_faults(task)
    yield from _secret_faults(task)
    yield from _variable_faults(task)
    if not task.type.uses_worker:
        yield from wait_faults(task, model.name)
        return
    if task.type.is_program:
        yield from _input_faults(task)
    if task.type is TaskKind.SQL and task.args:
        yield KeyFault(("args",), "a sql task takes no args; its file can use {{ params.name }}")
    if task.isolation is Isolation.POOLED and task.type.uses_spark:
        yield KeyFault(("isolation",), f"a {task.type} task runs isolated, not pooled; remove this")
    if task.type is TaskKind.SHELL and task.args:
        yield KeyFault(("args",), "a shell task takes no args; its command has them")
    yield from _refresh_faults(task)
    yield from _library_faults(task)
    if task.type.uses_spark:
        spark = build_spark(task.type, task.spark, model.defaults.spark)
        yield from _secret_conf_faults(task, spark)
        yield from _relative_faults(spark)
        yield from _place_faults(task, spark)
        yield from _connect_faults(task, spark)
    elif any(said for _, said in task.spark):
        yield KeyFault(("spark",), f"a {task.type} task has no Spark; make it a pyspark task, or remove this")
    yield from _environment_faults(task, model)
    retries = build_retries(task.retries, model.defaults.retries)
    if retries.max_delay < retries.delay:
        message = (
            f"max_delay ({format_duration(retries.max_delay)}) must not be below delay "
            f"({format_duration(retries.delay)}); raise the one or lower the other"
        )
        yield KeyFault(("retries",), message)


def _secret_faults(task: TaskKeys) -> Iterator[KeyFault]:
    if task.secrets and not task.type.uses_worker:
        yield KeyFault(("secrets",), f"no worker runs a {task.type} task, so it has no secrets; remove this")
    elif task.secrets and task.isolation is Isolation.POOLED:
        yield KeyFault(
            ("isolation",), "a task with secrets runs isolated, so that its log is masked; remove this"
        )


def _variable_faults(task: TaskKeys) -> Iterator[KeyFault]:
    if task.env and not task.type.uses_worker:
        yield KeyFault(("env",), f"no worker runs a {task.type} task, so it has no environment; remove this")
    for name in sorted(task.env.keys() & task.secrets.keys()):
        yield KeyFault(("env", name), "is the variable of a secret, too; rename one of them")


def _key_faults(task: TaskKeys) -> Iterator[KeyFault]:
    keys = KEYS[task.type]
    missing = [key for key in keys if getattr(task, key) is None]
    for key in missing:
        yield KeyFault((key,), f"is missing; {_a(task.type)} task needs it")
    if missing:
        return
    for key in sorted({key for others in KEYS.values() for key in others} - set(keys)):
        if getattr(task, key) is not None:
            yield KeyFault((key,), f"{_a(task.type)} task has no {key}; remove it")
    suffixes = SUFFIXES.get(task.type)
    if suffixes and not (path := getattr(task, keys[0])).endswith(suffixes):
        endings = " or ".join(suffixes)
        yield KeyFault((keys[0],), f"{path!r} must end with {endings}, as the task is of type {task.type}")


def _a(kind: TaskKind) -> str:
    return f"an {kind}" if kind is TaskKind.APPROVAL else f"a {kind}"


def _refresh_faults(task: TaskKeys) -> Iterator[KeyFault]:
    said = [key for key in _REFRESHES if getattr(task, key) is not None]
    if task.type is not TaskKind.SPARK_PIPELINE:
        for key in said:
            yield KeyFault((key,), f"a {task.type} task has no {key}; remove it")
        return
    if task.args:
        yield KeyFault(("args",), f"a {task.type} task takes no args; it has {', '.join(_REFRESHES)}")
    for key in said if task.full_refresh_all else ():
        if key != "full_refresh_all":
            yield KeyFault((key,), "full_refresh_all takes all datasets already; remove one of them")


def _input_faults(task: TaskKeys) -> Iterator[KeyFault]:
    seen: dict[str, str] = {}
    for number, need in enumerate(task.needs):
        other = seen.setdefault(name := need.replace("-", "_"), need)
        if other != need:
            yield KeyFault(
                ("needs", need if task.requirements else number),
                f"{other!r} and {need!r} would both be NIMBUS_INPUT_{name}; rename one of them",
            )


def _library_faults(task: TaskKeys) -> Iterator[KeyFault]:
    if task.dependencies and not task.type.uses_wheels:
        yield KeyFault(("dependencies",), f"a {task.type} task imports no wheels; remove this")
    if task.jars and not task.type.uses_spark:
        yield KeyFault(("jars",), f"a {task.type} task has no Spark; make it a pyspark task, or remove this")


def _secret_conf_faults(task: TaskKeys, spark: SparkSettings) -> Iterator[KeyFault]:
    """Secrets in properties: only the session of a sql task gets them, and Spark must hide them."""
    for name, text in spark.conf.items():
        secrets = secrets_in(text)
        if secrets and task.type is not TaskKind.SQL:
            yield KeyFault(
                ("spark",), f"{name} names a secret, which only a sql task can: set it in the task's code"
            )
        elif secrets and not takes_secrets(name):
            yield KeyFault(
                ("spark",),
                f"{name} cannot have a secret: only {SESSION_PROPERTIES}* with password, secret, token or "
                "access.key in the name can, because Spark hides these",
            )
        elif secrets and spark.mode is SparkMode.CONNECT:
            yield KeyFault(
                ("spark",),
                f"{name} names a secret, which the event log of the Spark Connect server could show; use "
                "mode: classic",
            )
        for variable in sorted(secrets - task.secrets.keys()):
            yield KeyFault(
                ("spark",), f"{name} names secrets.{variable}, and the task has no secret {variable}"
            )


def _relative_faults(spark: SparkSettings) -> Iterator[KeyFault]:
    """Relative paths, which Spark would search in the temporary folder of the attempt."""
    for name in _LISTS_OF_FILES:
        for file in spark.conf.get(name, "").split(","):
            if file.strip() and not file.strip().startswith(("/", "{{", "{%")) and ":" not in file:
                yield KeyFault(
                    ("spark",),
                    f"{name} has the relative path {file.strip()!r}, which Spark would search in a temporary "
                    "folder: write {{ release_root }}/" + f"{file.strip()}, or name jars in `jars`",
                )


def _environment_faults(task: TaskKeys, model: PipelineKeys) -> Iterator[KeyFault]:
    spark = (
        build_spark(task.type, task.spark, model.defaults.spark) if task.type.uses_spark else SparkSettings()
    )
    if task.environment is not None and (why := environment_fault(task.type, spark)) is not None:
        yield KeyFault(("environment",), f"{why}; or remove this")


def _place_faults(task: TaskKeys, spark: SparkSettings) -> Iterator[KeyFault]:
    for name, instead in _SAID_BY_PLACE.items() if spark.target is not None else ():
        if name in spark.conf:
            yield KeyFault(("spark",), f"{name} is set by {instead}; remove it")
    if spark.deploy is not SparkDeploy.CLUSTER:
        return
    for name, text in spark.conf.items():
        if name.startswith(_READ_BEFORE_RELEASE) and names_release(text):
            yield KeyFault(
                ("spark",),
                f"{name} is read before the release is on the driver's host, so it cannot name release_root",
            )
    if spark.mode is SparkMode.CONNECT:
        yield KeyFault(
            ("spark", "deploy"),
            "mode: connect uses a running Spark and deploys no driver; write deploy: client",
        )
    elif task.type not in SPARK_KINDS:
        yield KeyFault(
            ("spark", "deploy"), f"the driver of a {task.type} task runs on its worker; write deploy: client"
        )
    elif spark.target is None:
        yield KeyFault(
            ("spark", "deploy"),
            "cluster needs a target: add target: NAME, one of spark.targets in the workers' configuration",
        )


def _connect_faults(task: TaskKeys, spark: SparkSettings) -> Iterator[KeyFault]:
    if spark.mode is not SparkMode.CONNECT:
        return
    if task.type not in SPARK_KINDS:
        yield KeyFault(("spark", "mode"), f"a {task.type} task starts a Spark of its own; remove this")
        return
    if task.spark.event_log:
        yield KeyFault(
            ("spark", "event_log"),
            "a Spark Connect server has one event log for all of its sessions; remove this, or use "
            "mode: classic",
        )
    for name in spark.conf:
        if not name.startswith(SESSION_PROPERTIES):
            yield KeyFault(
                ("spark",),
                f"{name} is set when Spark starts, but mode: connect uses a running Spark; "
                f"there only {SESSION_PROPERTIES}* can be set. Remove it, or use mode: classic",
            )


def _argument_faults(model: PipelineKeys, needs: NeedGraph) -> Iterator[KeyFault]:
    """Faults in arguments of all tasks. They are checked together: there is one limit for all."""
    texts = _conf_texts(("defaults", "spark", "conf"), model.defaults.spark)
    for name, task in model.tasks.items():
        if task.when:
            texts["tasks", name, "when"] = task.when
        texts |= {("tasks", name, "args", number): kept(text) for number, text in enumerate(task.args)}
        texts |= _conf_texts(("tasks", name, "spark", "conf"), task.spark)
        texts |= {("tasks", name, *path): text for path, text in wait_texts(task)}
        if task.command:
            texts |= {("tasks", name, "command", n): kept(text) for n, text in enumerate(task.command) if n}
    texts |= key_texts(model)
    faults = argument_faults(list(texts.values()), model.parameters)
    for path, faults_of_one in zip(texts, faults, strict=True):
        for message, suggestion, _ in faults_of_one:
            yield KeyFault(path, message, suggestion)
    for path, text in (*texts.items(), *given_texts(model.tasks)):
        if path[0] == "reads":
            continue  # see `dataset_faults`
        if path[0] == "defaults" and tasks_read(text):
            yield KeyFault(
                path, "takes the result of a task: write it into spark.conf of the tasks that need that one"
            )
            continue
        for read in sorted(tasks_read(text)):
            yield from _reading_faults(path, read, model.tasks, needs)


def _conf_texts(path: KeyPath, spark: SparkKeys) -> dict[KeyPath, str]:
    return {
        (*path, name): kept(text, in_conf=True) for name, text in spark.conf.items() if needs_rendering(text)
    }


def _reading_faults(
    path: KeyPath, read: str, tasks: Mapping[str, TaskKeys], needs: NeedGraph
) -> Iterator[KeyFault]:
    """Faults of a template that reads the result of task `read`."""
    name = str(path[1])
    if read not in tasks:
        yield KeyFault(path, f"there is no task {read!r}", partial(_other_task, name, read, tasks))
    elif needs.may_come_later(name, read):
        yield KeyFault(
            path, f"takes the result of {read!r}, which may come later: add {read} to the task's needs"
        )
    elif tasks[read].type not in GIVES_RESULT:
        yield KeyFault(path, f"takes the result of {read!r}, and a {tasks[read].type} task gives none")


def _cycle_faults(needs: NeedGraph) -> Iterator[KeyFault]:
    """One fault for each cycle, at its first task by name."""
    for cycle in needs.cycles:
        turn = cycle.index(min(cycle))
        ordered = [*cycle[turn:], *cycle[:turn]]
        way = [*ordered, ordered[0]] if len(ordered) < _LONGEST_CYCLE else [*ordered[:_LONGEST_CYCLE], "..."]
        yield KeyFault(
            ("tasks", ordered[0], "needs"), f"tasks need each other in a cycle: {' needs '.join(way)}"
        )
