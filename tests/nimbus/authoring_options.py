"""Writes `nimbus/authoring/options.py` from the models of `pipeline.yaml`: run it after a change of a key."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nimbus.definition.json_schema import definition_schema
from nimbus.domain.pipelines.pipeline import Priority, TaskKind, TriggerRule

PLACE = Path(__file__).parents[2] / "nimbus/authoring/options.py"
_HEAD = '''"""The keys of `pipeline.yaml` for a pipeline and its tasks, as types: see `docs/pipelines.md`.

Written by `python -m tests.nimbus.authoring_options` from `nimbus.definition.models`. Standard library only:
the code of a task imports it. Durations are `timedelta` or text such as `90s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, Union

Duration = Union[str, timedelta]
'''
_ALIASES = {
    "TriggerRule": [one.value for one in TriggerRule],
    "Priority": [one.name.lower() for one in Priority],
    "Kind": [one.value for one in TaskKind],
}
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_ABOUT = {
    "TaskKeys": "Keys of a task, except `type`, `needs`, and the keys for what it runs.",
    "PipelineKeys": "Keys of a pipeline, except `schema`, `name` and `tasks`.",
}
_NOT_OPTIONS = {"TaskKeys": ("type", "needs"), "PipelineKeys": ("schema", "name", "tasks")}
_NULL_SAYS_SOMETHING = (("SparkKeys", "target"),)
"""Keys whose null is not their default."""


def options() -> str:
    """The text of the module."""
    schema = definition_schema()
    models: dict[str, Any] = {**schema["$defs"], "PipelineKeys": schema}
    task = models.pop("TaskKeys")
    keys = list(task["properties"])
    of_program = keys[keys.index("script") : keys.index("waits_for") + 1]
    found = [_HEAD, *(f"{name} = Literal{words!r}\n" for name, words in _ALIASES.items())]
    for name, model in models.items():
        found += _class(name, model, list(model["properties"]))
    found += _class("TaskKeys", task, [key for key in keys if key not in of_program])
    found += ["\n\nclass ProgramOptions(TaskOptions, total=False):\n"]
    found += [
        '    """Keys of a task that is no Python function, with what it runs, starts or waits for."""\n\n'
    ]
    found += [_field("TaskKeys", key, task["properties"][key]) for key in of_program]
    return _formatted("".join(found))


def _class(name: str, model: Mapping[str, Any], keys: list[str]) -> Iterator[str]:
    keys = [key for key in keys if key not in _NOT_OPTIONS.get(name, ())]
    required = [key for key in model.get("required", ()) if key in keys]
    total = "" if required == keys else ", total=False"
    said = f" Required: {', '.join(f'`{key}`' for key in required)}." if required and total else ""
    yield f"\n\nclass {_named(name)}(TypedDict{total}):\n"
    about = _ABOUT.get(name) or model["description"].splitlines()[0]
    yield f'    """{about}{said}"""\n\n'
    yield from (_field(name, key, model["properties"][key]) for key in keys)


def _field(model: str, key: str, said: Mapping[str, Any]) -> str:
    types = [one for one in _types(said) if one != "None" or (model, key) in _NULL_SAYS_SOMETHING]
    return f"    {key}: {' | '.join(dict.fromkeys(types))}\n"


def _types(said: Mapping[str, Any]) -> Iterator[str]:
    """The types of a value; several are alternatives."""
    words = said.get("enum", [said["const"]] if "const" in said else None)
    if "$ref" in said:
        yield _named(said["$ref"].rpartition("/")[2])
    elif "anyOf" in said:
        for one in said["anyOf"]:
            yield from _types(one)
    elif words is not None:
        yield next((name for name, known in _ALIASES.items() if known == words), f"Literal{words!r}")
    elif said.get("type") == "array":
        yield f"Sequence[{' | '.join(_types(said['items']))}]"
    elif said.get("type") == "object":
        inner = next(iter(said.get("patternProperties", {}).values()), said.get("additionalProperties"))
        yield f"Mapping[str, {' | '.join(_types(inner)) if isinstance(inner, dict) else 'Any'}]"
    elif said.get("type") == "null":
        yield "None"
    elif "(ms|s|m|h|d)" in said.get("pattern", ""):
        yield "Duration"
    else:
        yield _SIMPLE.get(said.get("type", ""), "Any")


def _named(model: str) -> str:
    return f"{model.removesuffix('Keys')}Options"


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PLACE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout


if __name__ == "__main__":
    PLACE.write_text(options())
