"""Writes `docs/reference/` from the declarations of keys, commands and metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from nimbus.cli.init import key_texts, shipped
from nimbus.cli.main import cli
from nimbus.definition.json_schema import definition_schema
from tests.nimbus.exported_metrics import SECTIONS, exported

FOLDER = Path(__file__).parents[2] / "docs/reference"
_WRITTEN = "Written by `python -m tests.nimbus.reference` from the declarations; do not edit it.\n"
_OF_MANY = ("-h,", "--help", "--server", "-o, --output")
_SIMPLE = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}


def pages() -> dict[str, str]:
    """The text of each page, by file name."""
    found = {
        "pipeline.md": _pipeline(),
        "configuration.md": _configuration(),
        "commands.md": _commands(),
        "metrics.md": _metrics(),
    }
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in found.items()}


def _pipeline() -> Iterator[str]:
    schema = definition_schema()
    yield from ("# Keys of `pipeline.yaml`", "", _WRITTEN)
    yield "What they do together: [pipelines](../pipelines.md), [code of tasks](../tasks.md),"
    yield "[schedules and runs](../schedules.md), [datasets](../data.md)."
    yield "A duration has a unit: `500ms`, `10s`, `2h`, `1d`."
    order = {"Pipeline": schema, **{_named(name): part for name, part in schema["$defs"].items()}}
    for name, model in order.items():
        yield from ("", f"## {name}", "", model["description"].partition("\n")[0], "")
        yield from ("| key | value | default | meaning |", "| --- | --- | --- | --- |")
        for key, said in model["properties"].items():
            required = key in model.get("required", ())
            default = said.get("default")
            shown = (
                "required" if required else "" if default in (None, {}, []) else f"`{json.dumps(default)}`"
            )
            yield f"| `{key}` | {_cell(_value(said))} | {shown} | {_cell(said['description'])} |"


def _value(said: Mapping[str, Any]) -> str:
    """The kind of a value, with its bounds."""
    if "$ref" in said:
        name = _named(said["$ref"].rpartition("/")[2])
        return f"[{name}](#{name.lower().replace(' ', '-')})"
    if "anyOf" in said:
        kinds = [_value(one) for one in said["anyOf"] if one.get("type") != "null"]
        simple = [kind for kind in kinds if kind in _SIMPLE.values()]
        return "text, number, `true` or `false`" if len(simple) == len(_SIMPLE) else " or ".join(kinds)
    if "enum" in said or "const" in said:
        return ", ".join(f"`{word}`" for word in said.get("enum", [said.get("const")]))
    if said.get("type") == "array":
        return f"list of {_value(said['items']) or 'values'}{_most(said, 'maxItems')}"
    if said.get("type") == "object":
        inner = next(iter(said.get("patternProperties", {}).values()), said.get("additionalProperties"))
        kind = _value(inner) if isinstance(inner, dict) else "values"
        return f"mapping to {kind}{_most(said, 'maxProperties')}"
    pattern = said.get("pattern", "")
    if "(ms|s|m|h|d)" in pattern:
        return "duration"
    bounds = [said[key] for key in ("minimum", "maximum") if key in said]
    between = f", {bounds[0]} to {bounds[1]}" if len(bounds) == 2 else ""
    kind = (
        "size" if "iB" in pattern else "name" if pattern else _SIMPLE.get(said.get("type", ""), "any value")
    )
    return f"{kind}{between}"


def _most(said: Mapping[str, Any], key: str) -> str:
    return f", at most {said[key]}" if key in said else ""


def _named(model: str) -> str:
    """`ReadKeys` as `Read`, `WaitForKeys` as `Wait for`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r" \1", model.removesuffix("Keys")).capitalize()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _configuration() -> Iterator[str]:
    yield from ("# Keys of the configuration", "", _WRITTEN)
    yield "`nimbus config init full` prints the same as a file. A variable `NIMBUS__SECTION__KEY` of the"
    yield "environment overrides a key. `nimbus config schema` prints a JSON Schema for editors."
    texts = key_texts()
    example = yaml.safe_load((shipped("configs") / "nimbus.example.yaml").read_text(encoding="utf-8"))
    for section, keys in example.items():
        yield from ("", f"## {section}", "", "| key | default | meaning |", "| --- | --- | --- |")
        for key, value in keys.items():
            text = texts[f"{section}.{key}"]
            shown = "" if text.startswith("Required.") or value is None else f"`{_plain(value)}`"
            yield f"| `{key}` | {shown} | {_cell(text)} |"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _commands() -> Iterator[str]:
    yield from ("# Commands", "", _WRITTEN)
    yield "[The command line](../cli.md) says how a command finds the cluster, and what its exit code means."
    yield "Those that read have `-o json` for scripts; those that ask a scheduler have `--server URL`."
    context = click.Context(cli, info_name="nimbus")
    yield from _of_command("nimbus", cli, context)


def _of_command(path: str, command: click.Command, context: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _of_command(
                    f"{path} {name}", inner, click.Context(inner, parent=context, info_name=name)
                )
        return
    usage = " ".join(command.collect_usage_pieces(context)).replace("[OPTIONS]", "").split()
    yield from ("", f"## {path}", "", f"`{' '.join((path, *usage))}`", "", _cell(command.help or ""))
    rows = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    rows = [(names, text) for names, text in rows if text and not names.startswith(_OF_MANY)]
    if rows:
        yield from ("", "| option | meaning |", "| --- | --- |")
        yield from (f"| `{_cell(names)}` | {_cell(text)} |" for names, text in rows)


def _metrics() -> Iterator[str]:
    yield from ("# Metrics", "", _WRITTEN)
    yield "How to scrape them, and what to alert on: [metrics and log events](../metrics.md)."
    for section in SECTIONS:
        yield from ("", f"## {section}", "", "| metric | type, labels | meaning |", "| --- | --- | --- |")
        for metric in exported(section):
            kind = ", ".join((metric.kind, *(f"`{label}`" for label in metric.labels)))
            yield f"| `{metric.name}` | {kind} | {_cell(metric.meaning)} |"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
