"""Pipeline definitions: refusals with position and message; and the result of valid ones."""

# ruff: noqa: E501 - one row of a table is one line

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.definition import InvalidDefinitionError, parse_definition, read_definition
from nimbus.domain.cluster.alerts import AlertEvent, NotifyRule
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    Concurrency,
    FailureClass,
    FailureStrategy,
    Limits,
    ParameterSpec,
    PipelineSpec,
    Priority,
    Retries,
    Schedule,
    SparkDeploy,
    SparkMode,
    SparkPlace,
    TaskKind,
    TaskSpec,
    TriggerRule,
    WhenFull,
)
from nimbus.templates.client import Templates
from nimbus.templates.names import with_secrets

TEMPLATES = Templates()
EXAMPLES = Path(__file__).parents[3] / "examples"
HEAD = "schema: 1\nname: flights\n"
TASKS = "tasks:\n  a: {type: python, script: a.py}\n"
READING = (
    HEAD + "{}\nstart: data\nreads: {{d: {{}}}}\ntasks:\n  a: {{type: python, script: a.py, reads: [d]}}\n"
)
"""A definition that starts by data, with one more line, the third."""


def refusal(text: str) -> list[str]:
    with pytest.raises(InvalidDefinitionError) as refused:
        parse_definition(text.encode(), "pipeline.yaml")
    assert refused.value.exit_code == 2
    assert refused.value.code == "invalid_definition"
    return str(refused.value).splitlines()


def task(more: str) -> str:
    """A definition whose task `b` is written on line 5."""
    return HEAD + TASKS + f"  b: {{type: pyspark, script: b.py, {more}}}\n"


def schedules(one: str, other: str) -> str:
    """A definition with schedules on the lines 4 and 5."""
    return HEAD + f"schedules:\n  {one}\n  {other}\n" + TASKS


def fan(more: str) -> str:
    """A definition whose task `a` starts child runs, on line 4."""
    return HEAD + f"tasks:\n  a: {{type: pipeline, {more}}}\n"


def parameter(more: str) -> str:
    """A definition whose parameter `p` is written on line 4."""
    return HEAD + f"parameters:\n  p: {{{more}}}\n" + TASKS


def top(more: str) -> str:
    """A definition with another key, on line 3."""
    return HEAD + more + "\n" + TASKS


BAD: list[tuple[str, str, str]] = [
    # keys and types
    ("unknown key", top("priorty: high"), '3: priorty: unknown key (did you mean "priority"?)'),
    ("unknown key far from all", top("zebra: 1"), "3: zebra: unknown key; known here: schema, name, description"),
    ("unknown task key", task("retry: {}"), '5: tasks.b.retry: unknown key (did you mean "retries"?)'),
    ("unknown retry key", task("retries: {maxDelay: 1s}"), '5: tasks.b.retries.maxDelay: unknown key (did you mean "max_delay"?)'),
    ("unknown schedule key", top('schedule: {cron: "@daily", zone: UTC}'), "3: schedule.zone: unknown key"),
    ("key twice", top("name: other"), "3: name: this key is here twice (first on line 2); keep one"),
    ("task twice", HEAD + TASKS + "  a: {type: python, script: a.py}\n", "5: tasks.a: this key is here twice (first on line 4)"),
    ("not YAML", top("files: [a"), "is not closed"),
    ("no schema", "name: x\n" + TASKS, "schema: is missing"),
    ("another schema", "schema: 2\nname: x\n" + TASKS, "1: schema: must be 1, the only form that this version reads, not 2"),
    ("no name", "schema: 1\n" + TASKS, "name: is missing"),
    ("bad name", "schema: 1\nname: My Flights\n" + TASKS, '2: name: \'My Flights\' is not a name: 1 to 63 of a-z, 0-9, _ and -, starting with a letter (did you mean "my_flights"?)'),
    ("name is a number", "schema: 1\nname: 010\n" + TASKS, "2: name: '010' is not a name"),
    ("unknown parameter in a property", task("spark: {conf: {spark.driver.memory: '{{ params.mem }}'}}"), "5: tasks.b.spark.conf.spark.driver.memory: there is no parameter 'mem'"),
    ("unknown name in a default property", top("defaults: {spark: {conf: {spark.a: '{% if x %}{% endif %}'}}}"), "3: defaults.spark.conf.spark.a: there is no 'x'"),
    ("result in a default property", top("defaults: {spark: {conf: {spark.a: '{{ tasks.a.result.x }}'}}}"), "3: defaults.spark.conf.spark.a: takes the result of a task: write it into spark.conf of the tasks"),
    ("result of a task that comes later in a property", task("spark: {conf: {spark.a: '{{ tasks.a.result.x }}'}}"), "5: tasks.b.spark.conf.spark.a: takes the result of 'a', which may come later"),
    ("path of the release with a filter", task("args: ['{{ release_root | upper }}']"), "5: tasks.b.args[0]: only the host of a task knows this path: write {{ release_root }}, without more"),
    ("path of the release in a condition", task("when: \"{{ release_root == 'x' }}\""), "5: tasks.b.when: only the host of a task knows this path: write {{ release_root }}, without more"),
    ("path of the release in a question", HEAD + "tasks:\n  a: {type: approval, prompt: '{{ release_root }}'}\n", "4: tasks.a.prompt: only the host of a task knows this path: write {{ release_root }}, without more"),
    ("path of the release in a parameter of child runs", fan("pipeline: p, params: {x: '{{ release_root }}'}"), "4: tasks.a.params.x: only the host of a task knows this path: write {{ release_root }}, without more"),
    ("path of the release before the release is there", task("spark: {target: t, deploy: cluster, conf: {spark.driver.extraClassPath: '{{ release_root }}/a.jar'}}"), "5: tasks.b.spark: spark.driver.extraClassPath is read before the release is on the driver's host"),
    ("template in a default", parameter("type: string, default: '{{ ds }}'"), "4: parameters.p.default: a parameter takes no templates; write one in the argument of a task"),
    ("unclear default", parameter("type: string, default: 1.10"), "4: parameters.p.default: YAML reads 1.10 as 1.1; put it in quotes, or write 1.1"),
    ("unclear choice", parameter("type: string, default: a, choices: [a, 12:30]"), "4: parameters.p.choices[1]: YAML reads 12:30 as 750; put it in quotes, or write 750"),
    ("unclear value", fan("pipeline: p, params: {x: [1, 1_000]}"), "4: tasks.a.params.x[1]: YAML reads 1_000 as 1000; put it in quotes"),
    ("unclear item", HEAD + "tasks:\n  a:\n    type: pipeline\n    pipeline: p\n    for_each:\n      - a\n      - no\n", "9: tasks.a.for_each[1]: YAML reads no as false; put it in quotes, or write false"),
    ("unclear item of a name", fan("pipeline: p, for_each: {day: [2024-01-01]}"), "4: tasks.a.for_each.day[0]: YAML reads 2024-01-01 as a date; put it in quotes"),
    ("octal number", task("retries: {limit: 010}"), "5: tasks.b.retries.limit: must be a whole number, not '010'; YAML reads it as 8: write the number plainly"),
    ("bad task name", HEAD + TASKS + "  B.c: {type: python, script: a.py}\n", "5: tasks.B.c: 'B.c' is not a name"),
    ("no tasks", HEAD + "tasks: {}\n", "3: tasks: a pipeline needs at least one task"),
    ("tasks left empty", HEAD + "tasks:\n", "3: tasks: a pipeline needs at least one task"),
    ("no tasks at all", HEAD, "pipeline.yaml: tasks: is missing"),
    ("tasks as a list", HEAD + "tasks: [a]\n", "3: tasks: must be a mapping of keys to values, not a list"),
    ("unknown type", HEAD + "tasks:\n  a: {type: spark, script: a.py}\n", '4: tasks.a.type: must be one of pyspark, python, sql, shell, spark_submit, spark_pipeline, pipeline, approval, wait, not \'spark\' (did you mean "pyspark"?)'),
    ("unknown priority", top("priority: urgent"), "3: priority: must be one of highest, high, medium, low, lowest, not 'urgent'"),
    ("unknown strategy", top("failure_strategy: stop"), "3: failure_strategy: must be one of end, continue, not 'stop'"),
    ("unknown catchup", top('schedule: {cron: "@daily", catchup: newest}'), "3: schedule.catchup: must be one of none, latest, all"),
    ("needs is no list", task("needs: a"), "5: tasks.b.needs: must be a list, not 'a'; write [a]"),
    ("argument is a list", task("args: [[x]]"), "5: tasks.b.args[0]: an argument must be text, a number, true or false, not a list"),
    # durations and retries
    ("duration without unit", task("timeout: 30"), '5: tasks.b.timeout: 30 has no unit; say the unit, for example 10s (did you mean "30s"?)'),
    ("no time at all", top("timeout: 0s"), "3: timeout: must be longer than 0s"),
    ("negative delay", task("retries: {delay: -1s}"), "5: tasks.b.retries.delay: '-1s' is negative"),
    ("negative retries", task("retries: {limit: -1}"), "5: tasks.b.retries.limit: must be at least 0, not -1"),
    ("too many retries", task("retries: {limit: 101}"), "5: tasks.b.retries.limit: must be at most 100, not 101"),
    ("shrinking pauses", task("retries: {factor: 0.5}"), "5: tasks.b.retries.factor: must be at least 1, not 0.5"),
    ("factor is no number", task("retries: {factor: .nan}"), "5: tasks.b.retries.factor: must be a finite number"),
    ("unknown class of failure", task("retries: {on: [out_of_memroy]}"), '5: tasks.b.retries.on[0]: must be one of out_of_memory, executor_lost, analysis, missing_input, killed, timed_out, error, not \'out_of_memroy\' (did you mean "out_of_memory"?)'),
    ("class of what never ran", task("retries: {on: [error, fenced]}"), "5: tasks.b.retries.on[1]: a task is always tried again after 'fenced'; remove it"),
    ("class of what was lost", task("retries: {on: [lost]}"), "a task is always tried again after 'lost'; remove it"),
    ("no class of failure", task("retries: {on: []}"), "5: tasks.b.retries.on: must not be empty"),
    ("one class without a list", task("retries: {on: killed}"), "5: tasks.b.retries.on: must be a list, not 'killed'; write [killed]"),
    ("shrinking memory", task("retries: {memory_factor: 0.5}"), "5: tasks.b.retries.memory_factor: must be at least 1, not 0.5"),
    ("exploding memory", task("retries: {memory_factor: 10}"), "5: tasks.b.retries.memory_factor: must be at most 8, not 10"),
    ("delay above its maximum", task("retries: {delay: 1h}"), "5: tasks.b.retries: max_delay (10m) must not be below delay (1h)"),
    # limits
    ("memory without unit", task("limits: {memory: 2}"), '5: tasks.b.limits.memory: 2 has no unit; say the unit, for example 512MiB'),
    ("decimal unit", task("limits: {disk: 2GB}"), '5: tasks.b.limits.disk: \'GB\' is not a unit of size; use B, KiB, MiB, GiB or TiB (did you mean "2GiB"?)'),
    ("no size", task("limits: {disk: much}"), "5: tasks.b.limits.disk: 'much' is not a size; write for example 512MiB or 2GiB"),
    ("size of another type", task("limits: {disk: [1]}"), "5: tasks.b.limits.disk: must be a size such as 512MiB or 2GiB, not a list"),
    ("log too small", task("limits: {log: 1KiB}"), '5: tasks.b.limits.log: must be at least 64.0 KiB, not 1.0 KiB (did you mean "64KiB"?)'),
    ("few open files", top("defaults: {limits: {open_files: 3}}"), "3: defaults.limits.open_files: must be at least 64, not 3"),
    ("unknown limit", task("limits: {mem: 1GiB}"), '5: tasks.b.limits.mem: unknown key (did you mean "memory"?)'),
    # graph
    ("unknown outcome of a need", task("needs: {a: fail}"), '5: tasks.b.needs.a: must be one of succeeded, not_failed, failed, done, one_failed, none_failed_min_one_success, not \'fail\' (did you mean "failed"?)'),
    ("outcome of an unknown need", task("needs: {aa: done}"), '5: tasks.b.needs.aa: there is no task \'aa\' (did you mean "a"?)'),
    ("condition of text", task("when: never"), "5: tasks.b.when: must be true, false or a template such as {{ params.mode == 'full' }}, not 'never'"),
    ("condition with an unknown name", task("when: '{{ param.x }}'"), '5: tasks.b.when: there is no \'param\' (did you mean "params"?)'),
    ("no truth value", task("allow_failure: maybe"), "5: tasks.b.allow_failure: must be true or false, not 'maybe'"),
    ("unknown need", task("needs: [aa]"), '5: tasks.b.needs[0]: there is no task \'aa\' (did you mean "a"?)'),
    ("need of itself", task("needs: [b]"), "5: tasks.b.needs[0]: a task cannot need itself"),
    ("need twice", task("needs: [a, a]"), "5: tasks.b.needs[1]: 'a' is listed twice"),
    ("schedule without parameters", HEAD + "schedule: {cron: \"@daily\", timezone: UTC}\nparameters: {x: {type: string, required: true}}\ntasks:\n  a: {type: python, script: a.py}\n", "3: schedule: its runs get no value of x, which has no default: give it one, or write `parameters` here"),
    ("two schedules of one name", schedules("a: {cron: '@daily'}", "a: {cron: '@hourly'}"), "5: schedules.a: this key is here twice (first on line 4); keep one"),
    ("schedule and schedules", schedules("a: {cron: '@daily'}", "") + "schedule: {cron: '@daily'}\n", "3: schedules: cannot stand beside `schedule`: move that one here, under a name"),
    ("no schedules", HEAD + "schedules: {}\n" + TASKS, "3: schedules: must not be empty"),
    ("name of a schedule", schedules("A b: {cron: '@daily'}", ""), "4: schedules.A b: 'A b' is not a name"),
    ("zones of schedules", schedules("a: {cron: '@daily', timezone: Asia/Tokyo}", "b: {cron: '@daily'}"), "5: schedules.b: is not Asia/Tokyo: all schedules of a pipeline have one zone, that of its dates"),
    ("unknown parameter of a schedule", schedules("a: {cron: '@daily', parameters: {x: 1}}", ""), "4: schedules.a.parameters.x: the pipeline has no parameter x"),
    ("parameter of a schedule", schedules("a: {cron: '@daily', parameters: {x: many}}", "") + "parameters: {x: {type: integer, default: 1}}\n", "4: schedules.a.parameters.x: must be of type integer, not 'many'"),
    ("schedules with start", READING.format("schedules: {a: {cron: '@daily'}}"), "3: schedules: data start the runs: write one `schedule`, which ends intervals"),
    ("calendar with start", READING.format("schedule: {cron: '@daily', calendar: de}"), "3: schedule.calendar: has no effect with `start`: data start the runs; remove it"),
    ("holidays without a calendar", HEAD + "schedule: {cron: '@daily', on_holidays: after}\n" + TASKS, "3: schedule.on_holidays: needs a `calendar`, which says what days are worked"),
    ("on_holidays", HEAD + "schedule: {cron: '@daily', calendar: de, on_holidays: later}\n" + TASKS, "3: schedule.on_holidays: must be one of skip, before, after, not 'later'"),
    ("working day without a calendar", HEAD + "schedule: {cron: '@daily', working_day: -1}\n" + TASKS, "3: schedule.working_day: needs a `calendar`, which says what days are worked"),
    ("working day 0", HEAD + "schedule: {cron: '@daily', calendar: de, working_day: 0}\n" + TASKS, "3: schedule.working_day: must be 1 for the first of a month, -1 for the last, and so on, not 0"),
    ("working day and days", HEAD + "schedule: {cron: '0 0 1 * *', calendar: de, working_day: 1}\n" + TASKS, "3: schedule.cron: names days, and `working_day` does, too: write * for its days"),
    ("working day and holidays", HEAD + "schedule: {cron: '@daily', calendar: de, working_day: 1, on_holidays: after}\n" + TASKS, "3: schedule.on_holidays: has no effect with `working_day`; remove one of them"),
    ("moved minutes", HEAD + "schedule: {cron: '* 6 * * *', calendar: de, on_holidays: before}\n" + TASKS, "3: schedule.on_holidays: moves times of a day, and `cron` has * for minutes or hours: use skip"),
    ("circle", HEAD + "tasks:\n  x: {type: python, script: a.py, needs: [z]}\n  y: {type: python, script: a.py, needs: [x]}\n  z: {type: python, script: a.py, needs: [y]}\n", "4: tasks.x.needs: tasks need each other in a cycle: x needs z needs y needs x"),
    # scripts
    ("wrong suffix", HEAD + "tasks:\n  a: {type: sql, script: a.py}\n", "4: tasks.a.script: 'a.py' must end with .sql, as the task is of type sql"),
    ("absolute script", HEAD + "tasks:\n  a: {type: python, script: /a.py}\n", "4: tasks.a.script: '/a.py' must be relative to the pipeline's folder"),
    ("script outside", HEAD + "tasks:\n  a: {type: python, script: lib/../../a.py}\n", "4: tasks.a.script: 'lib/../../a.py' must be relative"),
    ("no script", HEAD + "tasks:\n  a: {type: python}\n", "4: tasks.a.script: is missing"),
    ("command of python", task("command: [a]"), "5: tasks.b.command: a pyspark task has no command; remove it"),
    ("shell without command", HEAD + "tasks:\n  a: {type: shell, script: a.sh}\n", "4: tasks.a.command: is missing; a shell task needs it"),
    ("text as command", HEAD + "tasks:\n  a: {type: shell, command: sort x | uniq}\n", "4: tasks.a.command: must be a list of a program and its arguments; for a text that a shell reads, write [sh, -ec, '...']"),
    ("no command", HEAD + "tasks:\n  a: {type: shell}\n", "4: tasks.a.command: is missing; a shell task needs it"),
    ("empty command", HEAD + "tasks:\n  a: {type: shell, command: []}\n", "4: tasks.a.command: must not be empty"),
    ("empty program", HEAD + "tasks:\n  a: {type: shell, command: ['']}\n", "4: tasks.a.command: must begin with the name or the path of a program, not ''"),
    ("template as program", HEAD + "tasks:\n  a: {type: shell, command: ['{{ ds }}']}\n", "4: tasks.a.command: must begin with the name or the path of a program, not '{{ ds }}'"),
    ("program outside", HEAD + "tasks:\n  a: {type: shell, command: [bin/../../x]}\n", "4: tasks.a.command: 'bin/../../x' must be relative to the pipeline's folder"),
    ("broken template in a command", HEAD + "tasks:\n  a: {type: shell, command: [echo, a, '{{ dss }}']}\n", '4: tasks.a.command[2]: there is no \'dss\' (did you mean "ds"?)'),
    ("args of shell", HEAD + "tasks:\n  a: {type: shell, command: [a], args: [x]}\n", "4: tasks.a.args: a shell task takes no args; its command has them"),
    ("Spark in shell", HEAD + "tasks:\n  a: {type: shell, command: [a], spark: {conf: {spark.x: 1}}}\n", "4: tasks.a.spark: a shell task has no Spark"),
    ("inputs of one variable", HEAD + "tasks:\n  x-y: {type: python, script: a.py}\n  x_y: {type: python, script: a.py}\n  a: {type: shell, command: [a], needs: [x-y, x_y]}\n", "6: tasks.a.needs[1]: 'x-y' and 'x_y' would both be NIMBUS_INPUT_x_y; rename one of them"),
    ("jar of another kind", HEAD + "tasks:\n  a: {type: spark_submit, jar: a.zip, main_class: a.B}\n", "4: tasks.a.jar: 'a.zip' must end with .jar, as the task is of type spark_submit"),
    ("no main class", HEAD + "tasks:\n  a: {type: spark_submit, jar: a.jar}\n", "4: tasks.a.main_class: is missing; a spark_submit task needs it"),
    ("bad main class", HEAD + "tasks:\n  a: {type: spark_submit, jar: a.jar, main_class: a/B}\n", "4: tasks.a.main_class: 'a/B' is not the name of a class, such as com.example.Job"),
    ("jar in cluster mode", HEAD + "tasks:\n  a: {type: spark_submit, jar: a.jar, main_class: a.B, spark: {target: big, deploy: cluster}}\n", "4: tasks.a.spark.deploy: the driver of a spark_submit task runs on its worker; write deploy: client"),
    ("event log on Connect", task("spark: {mode: connect, event_log: true}"), "5: tasks.b.spark.event_log: a Spark Connect server has one event log for all of its sessions; remove this, or use mode: classic"),
    ("no spec", HEAD + "tasks:\n  a: {type: spark_pipeline}\n", "4: tasks.a.spec: is missing; a spark_pipeline task needs it"),
    ("spec of another kind", HEAD + "tasks:\n  a: {type: spark_pipeline, spec: a.json}\n", "4: tasks.a.spec: 'a.json' must end with .yml or .yaml, as the task is of type spark_pipeline"),
    ("args of a declarative pipeline", HEAD + "tasks:\n  a: {type: spark_pipeline, spec: a.yml, args: [x]}\n", "4: tasks.a.args: a spark_pipeline task takes no args; it has refresh, full_refresh, full_refresh_all"),
    ("refresh in another kind", HEAD + "tasks:\n  a: {type: pyspark, script: a.py, refresh: [x]}\n", "4: tasks.a.refresh: a pyspark task has no refresh; remove it"),
    ("refresh of no dataset", HEAD + "tasks:\n  a: {type: spark_pipeline, spec: a.yml, refresh: ['a, b']}\n", "4: tasks.a.refresh[0]: 'a, b' is not the name of a dataset, such as daily or my_catalog.sales.daily"),
    ("refresh of all and some", HEAD + "tasks:\n  a: {type: spark_pipeline, spec: a.yml, full_refresh: [x], full_refresh_all: true}\n", "4: tasks.a.full_refresh: full_refresh_all takes all datasets already; remove one of them"),
    ("declarative pipeline on Connect", HEAD + "tasks:\n  a: {type: spark_pipeline, spec: a.yml, spark: {mode: connect}}\n", "4: tasks.a.spark.mode: a spark_pipeline task starts a Spark of its own; remove this"),
    ("declarative pipeline in cluster mode", HEAD + "tasks:\n  a: {type: spark_pipeline, spec: a.yml, spark: {target: big, deploy: cluster}}\n", "4: tasks.a.spark.deploy: the driver of a spark_pipeline task runs on its worker; write deploy: client"),
    ("args of sql", HEAD + "tasks:\n  a: {type: sql, script: a.sql, args: [x]}\n", "4: tasks.a.args: a sql task takes no args; its file can use {{ params.name }}"),
    ("Spark in python", HEAD + "tasks:\n  a: {type: python, script: a.py, spark: {conf: {spark.x: 1}}}\n", "4: tasks.a.spark: a python task has no Spark"),
    ("Connect in python", HEAD + "tasks:\n  a: {type: python, script: a.py, spark: {mode: connect}}\n", "4: tasks.a.spark: a python task has no Spark"),
    ("target in python", HEAD + "tasks:\n  a: {type: python, script: a.py, spark: {target: big}}\n", "4: tasks.a.spark: a python task has no Spark"),
    ("deploy in shell", HEAD + "tasks:\n  a: {type: shell, command: [a], spark: {deploy: client}}\n", "4: tasks.a.spark: a shell task has no Spark"),
    ("cluster without target", task("spark: {deploy: cluster}"), "5: tasks.b.spark.deploy: cluster needs a target: add target: NAME, one of spark.targets in the workers' configuration"),
    ("cluster of the defaults without target", HEAD + "defaults: {spark: {deploy: cluster}}\n" + "tasks:\n  a: {type: pyspark, script: a.py}\n", "5: tasks.a.spark.deploy: cluster needs a target"),
    ("Connect in cluster mode", task("spark: {mode: connect, target: big, deploy: cluster}"), "5: tasks.b.spark.deploy: mode: connect uses a running Spark and deploys no driver; write deploy: client"),
    ("master beside a target", task("spark: {target: big, conf: {spark.master: yarn}}"), "5: tasks.b.spark: spark.master is set by the target; remove it"),
    ("deploy mode as a property", task("spark: {target: big, conf: {spark.submit.deployMode: cluster}}"), "5: tasks.b.spark: spark.submit.deployMode is set by spark.deploy; remove it"),
    ("target is no name", task("spark: {target: Big One}"), "5: tasks.b.spark.target: 'Big One' is not a name: 1 to 63 of a-z, 0-9, _ and -, starting with a letter (did you mean \"big_one\"?)"),
    ("unknown deploy", task("spark: {target: big, deploy: clustr}"), "5: tasks.b.spark.deploy: must be one of client, cluster, not 'clustr' (did you mean \"cluster\"?)"),
    ("unknown mode", HEAD + "tasks:\n  a: {type: sql, script: a.sql, spark: {mode: conect}}\n", "4: tasks.a.spark.mode: must be one of classic, connect, not 'conect' (did you mean \"connect\"?)"),
    ("property of the start in connect", HEAD + "defaults: {spark: {conf: {spark.executor.memory: 4g}}}\ntasks:\n  a: {type: sql, script: a.sql, spark: {mode: connect}}\n", "5: tasks.a.spark: spark.executor.memory is set when Spark starts, but mode: connect uses a running Spark; there only spark.sql.* can be set."),
    ("files outside", top("files: [../x]"), "3: files[0]: '../x' must be relative"),
    ("no files", top("files: []"), "3: files: must not be empty"),
    ("jars without their ending", top("jars: [jars/*]"), "3: jars[0]: 'jars/*' must name jars: it must end with .jar"),
    ("jars of a task elsewhere", task("jars: [/srv/a.jar]"), "5: tasks.b.jars[0]: '/srv/a.jar' must be relative to the pipeline's folder"),
    ("secret in a property of code", task("secrets: {PW: db}, spark: {conf: {spark.sql.x.password: '{{ secrets.PW }}'}}"), "5: tasks.b.spark: spark.sql.x.password names a secret, which only a sql task can"),
    ("secret in a property that Spark shows", HEAD + "tasks:\n  a: {type: sql, script: a.sql, secrets: {PW: db}, spark: {conf: {spark.sql.x.url: '{{ secrets.PW }}'}}}\n", "4: tasks.a.spark: spark.sql.x.url cannot have a secret: only spark.sql.* with password"),
    ("secret in a property of the start", HEAD + "tasks:\n  a: {type: sql, script: a.sql, secrets: {PW: db}, spark: {conf: {spark.x.password: '{{ secrets.PW }}'}}}\n", "4: tasks.a.spark: spark.x.password cannot have a secret"),
    ("secret in a property on a server", HEAD + "tasks:\n  a: {type: sql, script: a.sql, secrets: {PW: db}, spark: {mode: connect, conf: {spark.sql.x.password: '{{ secrets.PW }}'}}}\n", "4: tasks.a.spark: spark.sql.x.password names a secret, which the event log of the Spark Connect server could show"),
    ("unknown secret in a property", HEAD + "tasks:\n  a: {type: sql, script: a.sql, secrets: {PW: db}, spark: {conf: {spark.sql.x.password: '{{ secrets.PWD }}'}}}\n", "4: tasks.a.spark: spark.sql.x.password names secrets.PWD, and the task has no secret PWD"),
    ("secret with a filter", HEAD + "tasks:\n  a: {type: sql, script: a.sql, secrets: {PW: db}, spark: {conf: {spark.sql.x.password: '{{ secrets.PW | upper }}'}}}\n", "4: tasks.a.spark.conf.spark.sql.x.password: there is no 'secrets'"),
    ("wheels of a program", HEAD + "tasks:\n  a: {type: shell, command: [sort], dependencies: [a.whl]}\n", "4: tasks.a.dependencies: a shell task imports no wheels; remove this"),
    ("wheels of an approval", HEAD + "tasks:\n  a: {type: approval, prompt: x, dependencies: [a.whl]}\n", "4: tasks.a.dependencies: no worker runs a task of type approval"),
    ("jars of child runs", fan("pipeline: p, jars: [a.jar]"), "4: tasks.a.jars: a pipeline task has no Spark"),
    ("jars without Spark", HEAD + "tasks:\n  a: {type: python, script: a.py, jars: [a.jar]}\n", "4: tasks.a.jars: a python task has no Spark; make it a pyspark task, or remove this"),
    ("relative path in a list of files", task("spark: {conf: {spark.jars: '/srv/a.jar,jars/b.jar'}}"), "5: tasks.b.spark: spark.jars has the relative path 'jars/b.jar', which Spark would search in a temporary folder: write {{ release_root }}/jars/b.jar, or name jars in `jars`"),
    ("dependency is no wheel", top("dependencies: [lib/*.egg]"), "3: dependencies[0]: 'lib/*.egg' must name wheels"),
    ("absolute python path", top("python_path: [/usr/lib]"), "3: python_path[0]: '/usr/lib' must be relative"),
    # Spark
    ("conf is a list", task("spark: {conf: {spark.x: [1]}}"), "5: tasks.b.spark.conf.spark.x: a Spark property must be text, a number, true or false, not a list"),
    ("conf is empty", task("spark: {conf: {spark.x: }}"), "5: tasks.b.spark.conf.spark.x: a Spark property must be text, a number, true or false, not nothing"),
    ("conf without spark", task("spark: {conf: {sql.x: 1}}"), '5: tasks.b.spark.conf.sql.x: \'sql.x\' is no Spark property: they begin with spark. (did you mean "spark.sql.x"?)'),
    # schedule
    ("window without catch-up", top('schedule: {cron: "@daily", catchup: none, catchup_window: 3d}'), "3: schedule.catchup_window: has no effect with catchup: none; remove one of them"),
    ("deadline is a number", top('schedule: {cron: "@daily"}\ndeadline: 7'), '4: deadline: must be a time of a day such as "07:00", not'),
    ("deadline of no day", top('schedule: {cron: "@daily"}\ndeadline: "24:00"'), '4: deadline: must be a time of a day such as "07:00", not'),
    ("deadline without schedule", top('deadline: "07:00"'), "3: deadline: needs a schedule, and there is none"),
    ("no data interval", top('schedule: {cron: "@daily", data_interval: 0s}'), "3: schedule.data_interval: must be"),
    ("function of dates misspelt", HEAD + "tasks:\n  a: {type: python, script: a.py, args: ['{{ day(ds, 1) }}']}\n", '(did you mean "days"?)'),
    ("cron of four", top('schedule: {cron: "0 6 * *"}'), "3: schedule.cron: '0 6 * *' has 4 fields; a schedule has five"),
    ("cron with seconds", top('schedule: {cron: "0 0 6 * * *"}'), "has 6 fields; a schedule has five"),
    ("cron out of range", top('schedule: {cron: "0 25 * * *"}'), "3: schedule.cron: '25' is not a valid hour: 0 to 23"),
    ("cron with a bad day", top('schedule: {cron: "0 0 * * FRY"}'), "'FRY' is not a valid day-of-week"),
    ("cron that never fires", top('schedule: {cron: "0 0 30 2 *"}'), "3: schedule.cron: '0 0 30 2 *' never fires"),
    ("unknown alias", top('schedule: {cron: "@dayly"}'), '(did you mean "@daily"?)'),
    ("unknown zone", top('schedule: {cron: "@daily", timezone: America/NewYork}'), '3: schedule.timezone: \'America/NewYork\' is not a time zone; use an IANA name such as Europe/Berlin or UTC (did you mean "America/New_York"?)'),
    ("zone outside its folder", top('schedule: {cron: "@daily", timezone: ../../etc/passwd}'), "3: schedule.timezone: '../../etc/passwd' is not a time zone"),
    ("schedule as text", top('schedule: "@daily"'), "3: schedule: must be a mapping of keys to values, not '@daily'"),
    # parameters
    ("unknown parameter type", parameter("type: int, default: 1"), '4: parameters.p.type: must be one of string, integer, number, boolean, list, not \'int\' (did you mean "integer"?)'),
    ("default of another type", parameter("type: integer, default: x"), "4: parameters.p.default: must be of type integer, not 'x'"),
    ("boolean for an integer", parameter("type: integer, default: true"), "4: parameters.p.default: must be of type integer, not True"),
    ("default below minimum", parameter("type: integer, default: 0, minimum: 1"), "4: parameters.p.default: must be at least 1, not 0"),
    ("default above maximum", parameter("type: number, default: 2.5, maximum: 2"), "4: parameters.p.default: must be at most 2, not 2.5"),
    ("default that is no choice", parameter("type: string, default: c, choices: [a, b]"), "4: parameters.p.default: must be one of 'a', 'b', not 'c'"),
    ("choice of another type", parameter("type: string, default: a, choices: [a, 1]"), "4: parameters.p.choices[1]: must be of type string, not 1"),
    ("no choices", parameter("type: string, default: a, choices: []"), "4: parameters.p.choices: must not be empty"),
    ("required with default", parameter("type: string, default: a, required: true"), "4: parameters.p.required: a required parameter has no default"),
    ("neither required nor default", parameter("type: string"), "4: parameters.p: needs a default, or `required: true`"),
    ("list without items", parameter("type: list, default: [a]"), "4: parameters.p: a list needs `items`, the type of its values"),
    ("items of a text", parameter("type: string, default: a, items: string"), "4: parameters.p.items: a string has no items"),
    ("lists of lists", parameter("type: list, items: list, default: []"), "4: parameters.p.items: must be"),
    ("bounds of a list of texts", parameter("type: list, items: string, default: [a], minimum: 1"), "4: parameters.p.minimum: a string has no minimum"),
    ("choice of another type than the items", parameter("type: list, items: string, default: [a], choices: [1]"), "4: parameters.p.choices[0]: must be of type string, not 1"),
    ("default with a bad value", parameter("type: list, items: integer, default: [1, x]"), "4: parameters.p.default: [1] must be of type integer, not 'x'"),
    ("default with a template", parameter("type: list, items: string, default: ['{{ ds }}']"), "4: parameters.p.default: a parameter takes no templates"),
    ("items of an unknown parameter", HEAD + "parameters: {regions: {type: list, items: string, default: [eu]}}\ntasks:\n  a: {type: pipeline, pipeline: p, for_each: '{{ params.region }}'}\n", '5: tasks.a.for_each: there is no parameter \'region\' (did you mean "regions"?)'),
    ("items of a parameter that is no list", HEAD + "parameters: {regions: {type: string, default: eu}}\ntasks:\n  a: {type: pipeline, pipeline: p, for_each: '{{ params.regions }}'}\n", "5: tasks.a.for_each: parameter 'regions' must be of type list, not string"),
    ("bounds of a text", parameter("type: string, default: a, minimum: 1"), "4: parameters.p.minimum: a string has no minimum"),
    ("bounds crossed", parameter("type: integer, default: 1, minimum: 3, maximum: 2"), "4: parameters.p.minimum: minimum (3) must not be above maximum (2)"),
    ("bad parameter name", HEAD + "parameters:\n  first-month: {type: integer, default: 1}\n" + TASKS, "4: parameters.first-month: 'first-month' is not a parameter's name"),
    ("parameter named like a method", HEAD + "parameters:\n  items: {type: integer, default: 1}\n" + TASKS, "4: parameters.items: 'items' means something else in templates"),
    # child runs
    ("child runs without a pipeline", fan(""), "4: tasks.a.pipeline: is missing; a pipeline task needs it"),
    ("child runs of itself", fan("pipeline: flights"), "4: tasks.a.pipeline: flights would start itself endlessly"),
    ("child runs with a slot", fan("pipeline: p, pool: {w: 1}"), "4: tasks.a.pool: a pipeline task has no driver and no slot, so no pool"),
    ("child runs with secrets", fan("pipeline: p, secrets: {X: a}"), "4: tasks.a.secrets: a pipeline task has no driver and no slot, so no secrets"),
    ("child runs with a script", fan("pipeline: p, script: a.py"), "4: tasks.a.script: a pipeline task has no script; remove it"),
    ("items of another type of task", task("for_each: [a]"), "5: tasks.b.for_each: a pyspark task starts no child runs; remove this"),
    ("too many items", fan("pipeline: p, for_each: {a: [1, 2], b: [1, 2]}, max_items: 3"), "4: tasks.a.for_each: has 4 items, and max_items is 3"),
    ("more items than any task may have", fan("pipeline: p, for_each: [1], max_items: 10001"), "4: tasks.a.max_items: must be at most 10000"),
    ("many items all at once", fan("pipeline: p, for_each: [1], max_items: 1001"), "4: tasks.a.max_items: above 1000 items need max_parallel"),
    ("no items", fan("pipeline: p, for_each: []"), "4: tasks.a.for_each: must have at least one value"),
    ("items that are lists", fan("pipeline: p, for_each: [[1]]"), "4: tasks.a.for_each: "),
    ("list that is computed", fan("pipeline: p, for_each: '{{ tasks.a.result.n[1:] }}'"), "4: tasks.a.for_each: must be a list of values, {{ params.NAME }}, {{ tasks.NAME.result.KEY }} or {{ tasks.NAME.output }}/FILE, not '{{ tasks.a.result.n[1:] }}'"),
    ("item that is a template", fan("pipeline: p, for_each: ['{{ ds }}']"), "4: tasks.a.for_each: a value is no template"),
    ("max_parallel without items", fan("pipeline: p, max_parallel: 2"), "4: tasks.a.max_parallel: without for_each there is only one child run"),
    ("item without for_each", fan("pipeline: p, params: {x: '{{ item.x }}'}"), "4: tasks.a.params.x: there is no 'item'"),
    ("unknown name of an item", fan("pipeline: p, params: {x: '{{ item.regoin }}'}, for_each: {region: [eu]}"), '4: tasks.a.params.x: there is no item.regoin (did you mean "item.region"?)'),
    ("parameter that is a list", fan("pipeline: p, params: {x: [1]}"), "4: tasks.a.params.x: must be a text, a number or a boolean"),
    # templates
    ("unknown parameter in a template", HEAD + "parameters: {month: {type: integer, default: 1}}\ntasks:\n  a: {type: python, script: a.py, args: [x, '{{ params.moth }}']}\n", '5: tasks.a.args[1]: there is no parameter \'moth\' (did you mean "params.month"?)'),
    ("parameter without params", HEAD + "parameters: {month: {type: integer, default: 1}}\ntasks:\n  a: {type: python, script: a.py, args: ['{{ month }}']}\n", '5: tasks.a.args[0]: there is no \'month\'; parameters are in `params` (did you mean "params.month"?)'),
    ("unknown name in a template", task("args: ['{{ dss }}']"), '5: tasks.b.args[0]: there is no \'dss\' (did you mean "ds"?)'),
    ("unknown field of run", task("args: ['{{ run.idd }}']"), '5: tasks.b.args[0]: there is no run.idd (did you mean "run.id"?)'),
    ("broken template", task("args: ['{{ params.x']"), "5: tasks.b.args[0]: is not a template: unexpected end of template"),
    ("loop in a template", task("args: ['{% for x in range(9) %}{{ x }}{% endfor %}']"), "5: tasks.b.args[0]: may use {{ ... }} and {% if %} only"),
    ("unknown filter", task("args: ['{{ ds | uper }}']"), '5: tasks.b.args[0]: there is no filter \'uper\' (did you mean "upper"?)'),
    ("deep template", task("args: ['{{ " + "(" * 1500 + "1" + ")" * 1500 + " }}']"), "5: tasks.b.args[0]: is not a template"),
    ("long template", task("args: ['" + "x" * 5000 + "']"), "5: tasks.b.args[0]: is longer than 4096 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_definition_is_refused_with_its_place_and_what_to_do(text: str, words: str) -> None:
    (line,) = refusal(text)

    assert line.startswith("pipeline.yaml:")
    assert words in line


WRITTEN = (
    "1.10",
    "010",
    "12:30:00",
    "0x10",
    "1_000",
    "yes",
    "True",
    "2024-01-01",
    "+10:30",
    ".inf",
    "=",
    "<<",
)


def test_text_without_quotes_stays_as_it_is_written() -> None:
    listed = ", ".join(WRITTEN)
    spec = parse_definition(
        f"""
        {{schema: 1, name: x, description: 0x10, defaults: {{spark: {{conf: {{spark.a: 1_000}}}}}}, tasks: {{
          a: {{type: shell, command: [echo, {listed}]}},
          b: {{type: pyspark, script: b.py, args: [{listed}], env: {{A: 1.10, B: +10:30}}, spark: {{conf: {{spark.b: on}}}}}}
        }}}}""".encode(),
        "x",
    )

    a, b = spec.tasks
    assert a.args == b.args == WRITTEN
    assert b.env == {"A": "1.10", "B": "+10:30"}
    assert b.spark_conf == {"spark.a": "1_000", "spark.b": "on"}
    assert spec.description == "0x10"


def test_placeholder_of_spark_is_no_template() -> None:
    text = task(
        "spark: {conf: {spark.executor.extraJavaOptions: '-Xlog:gc:/tmp/{{APP_ID}}-{{EXECUTOR_ID}}.log'}}"
    )

    spec = parse_definition(text.encode(), "x")

    assert list(spec.tasks[1].spark_conf.values()) == ["-Xlog:gc:/tmp/{{APP_ID}}-{{EXECUTOR_ID}}.log"]


def test_secret_in_a_property_is_kept_for_the_driver() -> None:
    text = (
        HEAD + "tasks:\n  a: {type: sql, script: a.sql, secrets: {PW: db}, "
        "spark: {conf: {spark.sql.catalog.pg.password: 'x-{{secrets.PW}}'}}}\n"
    )

    (found,) = parse_definition(text.encode(), "x").tasks

    assert found.spark_conf == {"spark.sql.catalog.pg.password": "x-{{secrets.PW}}"}
    assert with_secrets(found.spark_conf["spark.sql.catalog.pg.password"], {"PW": "hush"}) == "x-hush"


def test_number_with_a_fraction_and_a_boolean_may_be_written_in_other_ways() -> None:
    text = task("allow_failure: yes, when: True, retries: {limit: 1, factor: 1.50}")

    b = parse_definition(text.encode(), "x").tasks[1]
    assert (b.allow_failure, b.when, b.retries.factor) == (True, "true", 1.5)


def test_all_problems_of_a_definition_are_told_at_once() -> None:
    text = (
        "schema: 1\nname: flights\nparameters:\n  p: {type: integer, default: x}\n"
        "tasks:\n  a: {type: python, script: a.txt, needs: [c]}\n  b: {type: sql, script: b.sql, args: [x]}\n"
    )

    assert refusal(text) == [
        "pipeline.yaml:4: parameters.p.default: must be of type integer, not 'x'",
        "pipeline.yaml:6: tasks.a.needs[0]: there is no task 'c'",
        "pipeline.yaml:6: tasks.a.script: 'a.txt' must end with .py, as the task is of type python",
        "pipeline.yaml:7: tasks.b.args: a sql task takes no args; its file can use {{ params.name }}",
    ]


def test_every_circle_is_told_once() -> None:
    text = (
        HEAD
        + "tasks:\n"
        + "".join(
            f"  {name}: {{type: python, script: a.py, needs: [{need}]}}\n"
            for name, need in (("a", "b"), ("b", "a"), ("d", "c"), ("c", "d"), ("e", "a"))
        )
    )

    lines = refusal(text)

    assert [line.partition(": tasks need ")[2] for line in lines] == [
        "each other in a cycle: a needs b needs a",
        "each other in a cycle: c needs d needs c",
    ]


FULL = """\
schema: 1
name: flights
description: All of it.
schedule: {cron: "0 6 * * *", timezone: America/New_York, catchup: all}
failure_strategy: continue
priority: low
timeout: 30m
concurrency: {limit: 3, when_full: replace}
max_parallel_tasks: 8
parameters:
  month: {type: integer, default: 1, minimum: 1, maximum: 12, description: Which.}
  who: {type: string, default: a, choices: [a, b]}
files: ["lib/**/*.py", "*.py"]
dependencies: ["wheels/*.whl"]
jars: [jars/*.jar]
python_path: [lib/, .]
defaults:
  timeout: 10m
  retries: {limit: 1, delay: 2s, factor: 3, max_delay: 1m}
  priority: high
  spark: {conf: {spark.a: 1, spark.b: true, spark.c: 0.5}}
  limits: {memory: 2GiB, open_files: 1024, log: 1MiB}
tasks:
  load:
    type: pyspark
    script: tasks/load.py
    args: [--month, "{{ params.month }}", 3, true]
    retries: {limit: 2, on: [killed, error, killed], memory_factor: 1.5}
    timeout: 1h
    priority: highest
    spark: {conf: {spark.a: "2"}}
    jars: [jars/new/a.jar, jars/*.jar]
    dependencies: [new/*.whl]
    limits: {memory: 1.5GiB, disk: 100 MiB}
  show: {type: python, script: show.py, needs: [load]}
  sum: {type: sql, script: sum.sql, needs: [load, show]}
  pack: {type: shell, command: [bin/pack.sh, 1, "{{ ds }}"]}
  rank: {type: spark_submit, jar: lib/rank.jar, main_class: com.example.Rank, args: ["{{ ds }}"]}
"""


@pytest.mark.parametrize(("default", "own", "expected"), [
    ("{}", "{}", ("classic", "classic")),
    ("{mode: connect}", "{}", ("connect", "classic")),
    ("{mode: connect}", "{mode: classic}", ("classic", "classic")),
    ("{}", "{mode: connect, conf: {spark.sql.x: 1}}", ("connect", "classic")),
])  # fmt: skip
def test_task_takes_the_spark_mode_of_the_defaults_unless_it_says_its_own(
    default: str, own: str, expected: tuple[str, str]
) -> None:
    text = (
        f"{HEAD}defaults: {{spark: {default}}}\ntasks:\n"
        f"  a: {{type: sql, script: a.sql, spark: {own}}}\n  b: {{type: python, script: b.py}}\n"
    )

    tasks = parse_definition(text.encode(), "x").tasks

    assert tuple(task.spark_mode for task in tasks) == tuple(map(SparkMode, expected))


@pytest.mark.parametrize(("default", "own", "expected"), [
    ("{}", "{}", None),
    ("{}", "{target: big}", SparkPlace(target="big")),
    ("{target: big}", "{deploy: cluster}", SparkPlace(target="big", deploy=SparkDeploy.CLUSTER)),
    ("{target: big, deploy: cluster}", "{target: small}", SparkPlace(target="small", deploy=SparkDeploy.CLUSTER)),
    ("{target: big, deploy: cluster}", "{deploy: client}", SparkPlace(target="big")),
    ("{target: big}", "{target: null}", None),
])  # fmt: skip
def test_task_takes_the_target_of_the_defaults_unless_it_says_its_own(
    default: str, own: str, expected: SparkPlace | None
) -> None:
    text = (
        f"{HEAD}defaults: {{spark: {default}}}\ntasks:\n"
        f"  a: {{type: sql, script: a.sql, spark: {own}}}\n  b: {{type: python, script: b.py}}\n"
        f"  c: {{type: pyspark, script: c.py, spark: {own}}}\n"
    )
    a, b, c = parse_definition(text.encode(), "pipeline.yaml").tasks

    assert (a.spark_place, b.spark_place, c.spark_place) == (expected, None, expected)


def test_needs_can_say_how_they_must_have_ended() -> None:
    _, b = parse_definition(
        (
            HEAD + "tasks:\n  a: {type: python, script: a.py}\n"
            "  b: {type: python, script: b.py, needs: {a: not_failed}, allow_failure: true, "
            "when: \"{{ ds > '2026' }}\"}\n"
        ).encode(),
        "x",
    ).tasks

    assert (b.needs, b.requirements) == (("a",), {"a": TriggerRule.NOT_FAILED})
    assert (b.when, b.allow_failure) == ("{{ ds > '2026' }}", True)


def test_a_need_that_must_succeed_is_written_as_in_a_list() -> None:
    text = HEAD + "tasks:\n  a: {type: python, script: a.py}\n"
    listed, mapped = (
        parse_definition(
            (text + f"  b: {{type: python, script: b.py, needs: {needs}}}\n").encode(), "x", is_published=True
        )
        for needs in ("[a]", "{a: succeeded}")
    )

    assert listed == mapped


def test_definition_becomes_the_pipeline_that_it_describes() -> None:
    retries = Retries(limit=1, delay=timedelta(seconds=2), factor=3.0, max_delay=timedelta(minutes=1))
    ten_minutes = timedelta(minutes=10)
    limits = Limits(memory_bytes=2 << 30, open_files=1024, log_bytes=1 << 20)

    assert parse_definition(FULL.encode(), "x") == PipelineSpec(
        name="flights",  # type: ignore[arg-type]  # names are texts; the comparison is what counts
        description="All of it.",
        schedule=Schedule(cron="0 6 * * *", timezone="America/New_York", catchup=CatchUp.ALL),
        failure_strategy=FailureStrategy.CONTINUE,
        priority=Priority.LOW,
        timeout=timedelta(minutes=30),
        concurrency=Concurrency(limit=3, when_full=WhenFull.REPLACE),
        max_parallel_tasks=8,
        parameters={
            "month": ParameterSpec(type="integer", default=1, minimum=1, maximum=12, description="Which."),
            "who": ParameterSpec(type="string", default="a", choices=("a", "b")),
        },
        files=("lib/**/*.py", "*.py"),
        dependencies=("wheels/*.whl",),
        jars=("jars/*.jar",),
        python_path=("lib", "."),
        tasks=(
            TaskSpec(
                name="load",  # type: ignore[arg-type]
                kind=TaskKind.PYSPARK,
                script="tasks/load.py",
                args=("--month", "{{ params.month }}", "3", "true"),
                retries=Retries(
                    limit=2,
                    delay=timedelta(seconds=2),
                    factor=3.0,
                    max_delay=timedelta(minutes=1),
                    on=(FailureClass.ERROR, FailureClass.KILLED),
                    memory_factor=1.5,
                ),
                timeout=timedelta(hours=1),
                priority=Priority.HIGHEST,
                spark_conf={"spark.a": "2", "spark.b": "true", "spark.c": "0.5"},
                dependencies=("new/*.whl", "wheels/*.whl"),
                jars=("jars/new/a.jar", "jars/*.jar"),
                limits=Limits(memory_bytes=3 << 29, open_files=1024, disk_bytes=100 << 20, log_bytes=1 << 20),
            ),
            TaskSpec(
                name="show",  # type: ignore[arg-type]
                kind=TaskKind.PYTHON,
                dependencies=("wheels/*.whl",),
                script="show.py",
                needs=("load",),  # type: ignore[arg-type]
                retries=retries,
                timeout=ten_minutes,
                priority=Priority.HIGH,
                limits=limits,
            ),
            TaskSpec(
                name="sum",  # type: ignore[arg-type]
                kind=TaskKind.SQL,
                dependencies=("wheels/*.whl",),
                script="sum.sql",
                needs=("load", "show"),  # type: ignore[arg-type]
                retries=retries,
                timeout=ten_minutes,
                priority=Priority.HIGH,
                spark_conf={"spark.a": "1", "spark.b": "true", "spark.c": "0.5"},
                jars=("jars/*.jar",),
                limits=limits,
            ),
            TaskSpec(
                name="pack",  # type: ignore[arg-type]
                kind=TaskKind.SHELL,
                script="bin/pack.sh",
                args=("1", "{{ ds }}"),
                retries=retries,
                timeout=ten_minutes,
                priority=Priority.HIGH,
                limits=limits,
            ),
            TaskSpec(
                name="rank",  # type: ignore[arg-type]
                kind=TaskKind.SPARK_SUBMIT,
                script="lib/rank.jar",
                main_class="com.example.Rank",
                args=("{{ ds }}",),
                retries=retries,
                timeout=ten_minutes,
                priority=Priority.HIGH,
                spark_conf={"spark.a": "1", "spark.b": "true", "spark.c": "0.5"},
                jars=("jars/*.jar",),
                limits=limits,
            ),
        ),
    )


def test_smallest_definition_has_the_defaults_of_the_domain() -> None:
    spec = parse_definition((HEAD + TASKS).encode(), "x")

    assert spec == PipelineSpec(
        name=spec.name, tasks=(TaskSpec(name=spec.tasks[0].name, kind=TaskKind.PYTHON, script="a.py"),)
    )


@pytest.mark.parametrize("example", ["flights", "hello", "results"])
def test_example_pipeline_is_good(example: str) -> None:
    assert read_definition(EXAMPLES / example).name == example
    assert read_definition(EXAMPLES / example / "pipeline.yaml").tasks


@pytest.mark.parametrize(("keys", "args"), [
    ("", ("run",)),
    ("refresh: [a, c.d.b], full_refresh: [x]", ("run", "--refresh", "a,c.d.b", "--full-refresh", "x")),
    ("full_refresh_all: true", ("run", "--full-refresh-all")),
])  # fmt: skip
def test_declarative_pipeline_becomes_arguments_of_its_program(keys: str, args: tuple[str, ...]) -> None:
    text = f"{HEAD}defaults: {{spark: {{mode: connect}}}}\ntasks:\n  a: {{type: spark_pipeline, spec: etl/a.yml, {keys}}}\n"

    (found,) = parse_definition(text.encode(), "pipeline.yaml").tasks

    assert (found.kind, found.file, found.args) == (TaskKind.SPARK_PIPELINE, "etl/a.yml", args)
    assert found.spark_mode is SparkMode.CLASSIC


@pytest.mark.parametrize(("default", "own", "conf"), [
    ("{}", "{event_log: true}", {"spark.eventLog.enabled": "true"}),
    ("{event_log: true}", "{}", {"spark.eventLog.enabled": "true"}),
    ("{event_log: true}", "{event_log: false}", {"spark.eventLog.enabled": "false"}),
    ("{conf: {spark.eventLog.enabled: true}}", "{event_log: false}", {"spark.eventLog.enabled": "false"}),
    ("{event_log: true}", "{mode: connect}", {}),
    ("{}", "{}", {}),
])  # fmt: skip
def test_event_log_is_a_property_of_spark(default: str, own: str, conf: dict[str, str]) -> None:
    text = f"{HEAD}defaults: {{spark: {default}}}\ntasks:\n  a: {{type: sql, script: a.sql, spark: {own}}}\n"

    (found,) = parse_definition(text.encode(), "pipeline.yaml").tasks

    assert found.spark_conf == conf


def test_schedule_says_how_far_back_it_looks() -> None:
    text = top('schedule: {cron: "@daily", catchup: all, catchup_window: 30d, data_interval: 7d}')

    spec = parse_definition(text.encode(), "pipeline.yaml")

    assert spec.schedule is not None
    assert spec.schedule.catchup_window == timedelta(days=30)
    assert spec.schedule.data_interval == timedelta(days=7)


def test_environment_is_a_label_of_workers_and_a_default_is_for_tasks_that_can_have_one() -> None:
    text = f"""{HEAD}defaults: {{environment: spark35}}
tasks:
  a: {{type: python, script: a.py, runs_on: [gpu]}}
  b: {{type: sql, script: b.sql, environment: site}}
  c: {{type: shell, command: [ls]}}
  d: {{type: pyspark, script: d.py, spark: {{mode: connect}}}}
  e: {{type: pyspark, script: e.py, spark: {{target: t, deploy: cluster}}}}
"""

    a, b, *others = parse_definition(text.encode(), "pipeline.yaml").tasks

    assert (a.environment, a.labels) == ("spark35", ("gpu", "environment:spark35"))
    assert (b.environment, b.labels) == ("site", ("environment:site",))
    assert [task.environment for task in others] == ["", "", ""]


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("type: shell, command: [ls]", "a task of type shell has no interpreter"),
        ("type: pyspark, script: b.py, spark: {mode: connect}", "say mode: classic; or remove this"),
        ("type: sql, script: b.sql, spark: {target: t, deploy: cluster}", "such as spark.pyspark.python"),
        ("type: wait, waits_for: [{file: /x}]", "no worker runs a task of type wait"),
        ("type: pipeline, pipeline: other", "a pipeline task has no driver"),
    ],
)
def test_environment_of_a_task_that_cannot_have_one_is_refused(task: str, why: str) -> None:
    text = f"{HEAD}tasks:\n  a: {{{task}, environment: spark35}}\n"

    assert why in "\n".join(refusal(text))


def test_task_says_what_it_takes_of_pools_and_which_labels_its_worker_must_have() -> None:
    tasks = TASKS.replace(
        "script: a.py", "script: a.py, pool: {warehouse: 2}, runs_on: [gpu, eu, gpu], start_after: 10m"
    )

    (task,) = parse_definition((HEAD + tasks).encode(), "x").tasks

    assert (task.pools, task.runs_on) == ({"warehouse": 2}, ("eu", "gpu"))
    assert task.start_after == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("concurrency: {limit: 0}", "concurrency.limit: must be at least 1"),
        ("concurrency: {when_full: skip}", "concurrency.limit: is missing"),
        ("concurrency: {limit: 1, when_full: drop}", "concurrency.when_full: must be one of"),
        ("max_parallel_tasks: 0", "max_parallel_tasks: must be at least 1"),
    ],
)
def test_limit_that_cannot_be_is_refused(key: str, message: str) -> None:
    with pytest.raises(InvalidDefinitionError) as told:
        parse_definition(f"{HEAD}{key}\n{TASKS}".encode(), "x")

    assert message in str(told.value)


def test_items_are_read_as_a_list_or_as_a_mapping_of_lists() -> None:
    text = (
        "schema: 1\nname: flights\ndefaults: {timeout: 1m}\ntasks:\n"
        "  a: {type: pipeline, pipeline: p, for_each: [eu, us], params: {x: '{{ item }}', y: 3}}\n"
        "  b: {type: pipeline, pipeline: q, for_each: {r: [eu], s: [1, 2]}, max_parallel: 2, max_items: 5}\n"
        "  c: {type: pipeline, pipeline: q}\n"
    )

    spec = parse_definition(text.encode(), "pipeline.yaml")

    a, b, c = (task.children for task in spec.tasks)
    assert a is not None and b is not None and c is not None
    assert [a.item(index) for index in range(a.count)] == ["eu", "us"]
    assert a.parameters == {"x": "{{ item }}", "y": 3}
    assert [b.item(index) for index in range(b.count)] == [{"r": "eu", "s": 1}, {"r": "eu", "s": 2}]
    assert (b.max_parallel, b.max_items, a.max_parallel, a.max_items) == (2, 5, None, 200)
    assert (c.count, spec.children) == (1, ("p", "q"))
    assert spec.tasks[0].timeout is None


def test_tags_and_runbook_are_read() -> None:
    spec = parse_definition(
        top("tags: [nightly, finance, nightly]\nrunbook: https://wiki.example.com/flights#1").encode(),
        "p",
    )

    assert spec.tags == ("finance", "nightly")
    assert spec.runbook == "https://wiki.example.com/flights#1"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tags: [Finance]", 'did you mean "finance"'),
        (f"tags: [{', '.join(f't{n}' for n in range(17))}]", "tags: "),
        ("runbook: https://ann:secret@wiki.example.com/", "credentials"),
        ("runbook: 'javascript://x'", "http(s)://"),
        (f"runbook: {'x' * 501}", "500 bytes"),
    ],
)
def test_tags_and_a_runbook_that_cannot_be_are_refused(line: str, words: str) -> None:
    (said,) = refusal(top(line))

    assert words in said
    assert "secret" not in said


def test_notify_is_read_and_an_empty_one_is_not_none() -> None:
    told = parse_definition(top("notify: [{on: [recovered, failed, failed], to: oncall}]").encode(), "p")
    silent = parse_definition(top("notify: []").encode(), "p")

    assert told.notify == (NotifyRule(on=(AlertEvent.FAILED, AlertEvent.RECOVERED), to="oncall"),)
    assert (silent.notify, parse_definition(top("").encode(), "p").notify) == ((), None)
    assert 'did you mean "failed"' in refusal(top("notify: [{on: [faild], to: oncall}]"))[0]


def test_task_reads_the_results_that_its_templates_take() -> None:
    text = HEAD + (
        "tasks:\n"
        "  a-b: {type: python, script: a.py}\n"
        "  c: {type: python, script: c.py, needs: [a-b]}\n"
        '  d: {type: python, script: d.py, needs: [c], when: "{{ tasks.c.result.rows > 0 }}", '
        "args: [\"{{ tasks['a-b'].result.since }}\", \"{{ tasks.c.result['x'] }}\"]}\n"
    )
    *_, c, d = parse_definition(text.encode(), "x").tasks

    assert (c.reads, d.reads) == ((), ("a-b", "c"))


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("{{ tasks.d.result.x }}", "there is no task 'd'"),
        ("{{ tasks.c.result.x }}", "takes the result of 'c', which may come later: add c to the task's needs"),
        ("{{ tasks.b.result.x }}", "takes the result of 'b', which may come later: add b to the task's needs"),
        ("{{ tasks.q.result.x }}", "takes the result of 'q', and a sql task gives none"),
        ("{{ tasks.a }}", "write tasks.NAME.result.KEY"),
        ("{{ tasks.a.output }}", "write tasks.NAME.result.KEY"),
        ("{{ tasks[params.x].result.x }}", "write tasks.NAME.result.KEY"),
        ("{{ (tasks).result }}", "write tasks.NAME.result.KEY"),
        ("{{ (tasks).a.result.x }}", "write tasks.NAME.result.KEY"),
        ("{{ '}}' ~ tasks.a.result.x }}", "write tasks.NAME.result.KEY"),
        ("{{ task.result.x }}", "there is no task.result"),
    ],
)  # fmt: skip
def test_result_that_cannot_be_had_is_refused_with_its_place(argument: str, words: str) -> None:
    found = refusal(
        HEAD + "parameters: {x: {type: string, default: a}}\ntasks:\n"
        "  a: {type: python, script: a.py}\n"
        "  q: {type: sql, script: q.sql, needs: [a]}\n"
        f'  b: {{type: python, script: b.py, needs: [q], args: ["{argument}"]}}\n'
        "  c: {type: python, script: c.py}\n"
    )

    (line,) = found
    assert line.startswith("pipeline.yaml:7: tasks.b.args[0]: ")
    assert words in line


def test_definition_knows_the_variables_that_its_templates_name() -> None:
    text = HEAD + (
        "tasks:\n  a: {type: python, script: a.py, when: \"{{ vars.on == 'x' }}\", "
        "args: [\"{{ vars['dwh'] }}{{ vars.b }}\", vars.c]}\n"
    )

    assert parse_definition(text.encode(), "x").variables == ("b", "dwh", "on")


@pytest.mark.parametrize(
    "argument", ["{{ vars }}", "{{ vars[params.x] }}", "{{ vars.get('a') ~ vars }}", "{{ (vars).a }}"]
)
def test_variable_that_is_not_named_is_refused(argument: str) -> None:
    found = refusal(HEAD + f'tasks:\n  a: {{type: python, script: a.py, args: ["{argument}"]}}\n')

    assert "write vars.NAME" in "".join(found)


def test_child_runs_may_be_given_results_of_tasks_that_are_needed() -> None:
    fan = "  f: {type: pipeline, pipeline: p, params: {x: '{{ tasks.a.result.x }}'}, needs: [%s]}\n"
    plan = HEAD + "tasks:\n  a: {type: python, script: a.py}\n"

    assert parse_definition((plan + fan % "a").encode(), "x").tasks[1].reads == ("a",)
    (line,) = refusal(plan + fan % "")
    assert "tasks.f.params.x: takes the result of 'a', which may come later" in line


@pytest.mark.parametrize(
    "text",
    [
        "{{ tasks.a.result.shards }}",
        "{{ tasks['a'].result.shards }}",
        "{{ tasks.a.output }}/shards.jsonl",
        "{{ tasks['a'].output }}/lists/shards.jsonl",
    ],
)
def test_items_may_come_from_the_result_of_a_task_that_is_needed(text: str) -> None:
    head = HEAD + "tasks:\n  a: {type: python, script: a.py}\n"
    fan = f'  f: {{type: pipeline, pipeline: p, for_each: {{n: "{text}"}}, params: {{x: "{{{{ item.n }}}}"}}'

    spec = parse_definition((head + fan + ", needs: [a]}\n").encode(), "x")
    (line,) = refusal(head + fan + "}\n")

    assert spec.tasks[1].reads == ("a",)
    assert spec.tasks[1].children is not None
    assert spec.tasks[1].children.templates == {"n": text}
    assert "tasks.f.for_each: takes the result of 'a', which may come later" in line


def test_items_of_a_file_may_have_any_fields_and_those_of_a_result_none() -> None:
    text = (
        "tasks:\n  a: {type: python, script: a.py}\n"
        "  f: {type: pipeline, pipeline: p, for_each: '{{ tasks.a.%s', needs: [a], params: {x: '{{ item.x }}'}}\n"
    )

    assert parse_definition((HEAD + text % "output }}/x.jsonl").encode(), "x")
    assert "there is no item.x" in refusal(HEAD + text % "result.x }}")[0]


def test_secrets_are_names_by_variable() -> None:
    (_, b) = parse_definition(task("secrets: {DB_PASSWORD: warehouse.prod-1}").encode(), "x").tasks

    assert b.secrets == {"DB_PASSWORD": "warehouse.prod-1"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("secrets: {NIMBUS_X: a}", "NIMBUS_X means something to Nimbus"),
        ("secrets: {1X: a}", "not a name of an environment variable"),
        ("secrets: {X: ../a}", "not the name of a secret"),
    ],
)
def test_secret_that_cannot_be_is_refused(more: str, words: str) -> None:
    assert words in "".join(refusal(task(more)))


def test_env_of_a_task_has_texts() -> None:
    (_, b) = parse_definition(task("env: {REGION: eu, LEVEL: 3, ON: true}").encode(), "x").tasks

    assert b.env == {"REGION": "eu", "LEVEL": "3", "ON": "true"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("env: {NIMBUS_RUN_ID: a}", "NIMBUS_RUN_ID means something to Nimbus"),
        ("env: {TMPDIR: /x}", "TMPDIR means something to Nimbus"),
        ("env: {1X: a}", "not a name of an environment variable"),
        ("env: {X: [a]}", "a variable must be text"),
        ("env: {X: '{{ ds }}'}", "env takes no templates"),
        (f"env: {{X: {'x' * 1025}}}", "a variable has 1024 bytes at most"),
        (f"env: {{{'X' * 129}: a}}", "has 128 characters at most"),
        (r'env: {X: "\x01"}', "a variable has no control characters"),
        ("env: {X: a}, secrets: {X: b}", "tasks.b.env.X: is the variable of a secret, too"),
    ],
)
def test_env_that_cannot_be_is_refused(more: str, words: str) -> None:
    assert words in "".join(refusal(task(more)))
