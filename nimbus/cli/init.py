"""`nimbus init` and `nimbus config`: shipped files to begin with; the values that a daemon takes."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
from click.shell_completion import get_completion_class

import nimbus
from nimbus.cli.exits import Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import config_option, examples
from nimbus.cli.output import Output, output_option
from nimbus.domain.ids import InvalidNameError, pipeline_name

_NOT_OURS = shutil.ignore_patterns("__pycache__", "wheels", ".pytest_cache", "README.md")


def shipped(name: str) -> Path:
    """A folder of the project: `examples`, `configs` or `deploy`. It is in the wheel, too."""
    package = Path(nimbus.__file__).parent
    inside = package / "shipped" / name
    return inside if inside.exists() else package.parent / name


@click.command(
    epilog=examples(
        "nimbus init orders",
        "nimbus init hello --minimal",
        "nimbus init rates --from datasets/rates",
    )
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--minimal", is_flag=True, help="Two Python tasks, without Spark and schedule.")
@click.option("--from", "example", metavar="EXAMPLE", help="Begin with an example; a wrong name lists them.")
def init(folder: Path, example: str | None, *, minimal: bool) -> int:
    """Make a folder with a first pipeline: a Python task, a Spark task, a test, a schedule. Needs no cluster.

    The pipeline has the folder's name.
    """
    if minimal and example:
        raise click.UsageError("--minimal and --from exclude each other.")
    source = _example(example or ("hello" if minimal else "first"))
    name = folder.absolute().name
    try:
        pipeline_name(name)
    except InvalidNameError as exc:
        raise click.UsageError(f"{exc} The pipeline gets the folder's name.") from exc
    _refuse_filled(folder)
    shutil.copytree(source, folder, ignore=_NOT_OURS, dirs_exist_ok=True)
    file = folder / "pipeline.yaml"
    text = file.read_text(encoding="utf-8").replace(f"\nname: {source.name}\n", f"\nname: {name}\n")
    file.write_text(text.replace(f"run start {source.name} ", f"run start {name} "), encoding="utf-8")
    out = Output()
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        out.line(str(path))
    out.note(f"made {folder}; next: nimbus pipeline validate {folder}")
    return Exit.OK


def _refuse_filled(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty: name a new folder, nothing was written")


def _example(name: str) -> Path:
    folder = shipped("examples")
    folders = [file.parent for file in folder.rglob("pipeline.yaml")]
    # One that is written in Python has its name in its code.
    known = sorted(
        str(place.relative_to(folder)) for place in folders if not (place / "pipeline.py").exists()
    )
    if name not in known:
        raise click.UsageError(f"there is no example {name}; there are: {', '.join(known)}")
    return folder / name


@click.group(cls=LazyGroup)
def config() -> None:
    """Begin a configuration; see the value of each key, and its origin."""


@config.command(
    "init",
    epilog=examples(
        "nimbus config init single > nimbus.yaml", "nimbus config init ha > /etc/nimbus/nimbus.yaml"
    ),
)
@click.argument("kind", type=click.Choice(["single", "ha", "worker", "publish", "full"]))
def config_init(kind: str) -> None:
    """Print a commented configuration to begin with. What you must change is marked in it.

    single: one scheduler without ZooKeeper. ha: several schedulers with workers. worker: a host with a worker
    alone. publish: a machine that only publishes. full: every key, with its unit and default.
    """
    name = "nimbus.example" if kind == "full" else kind
    click.echo((shipped("configs") / f"{name}.yaml").read_text(encoding="utf-8"), nl=False)


@config.command("files", epilog=examples("nimbus config files nimbus-files"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def config_files(folder: Path) -> None:
    """Write what goes around a cluster into a new folder, as it is in the repository.

    configs: configurations, Prometheus' alert rules, the Grafana board. deploy: systemd's units,
    the container file, the Helm chart. completion: what bash, fish and zsh source to complete commands.
    """
    _refuse_filled(folder)
    for name in ("configs", "deploy"):
        shutil.copytree(shipped(name), folder / name)
    for shell in ("bash", "fish", "zsh"):
        file = folder / "completion" / f"nimbus.{shell}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(get_completion_class(shell)(config, {}, "nimbus", "_NIMBUS_COMPLETE").source())


@config.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from nimbus.config import Settings

    schema, said = Settings.model_json_schema(), key_texts()
    for section, part in schema["properties"].items():
        for key, shown in schema["$defs"][part["$ref"].rpartition("/")[2]]["properties"].items():
            shown["description"] = said[f"{section}.{key}"]
    Output("json").data(schema)


def key_texts() -> dict[str, str]:
    """What each key of the configuration is for, such as `storage.bucket`: its comment in the example.

    A key without a comment belongs to the one above it.
    """
    texts: dict[str, str] = {}
    section, comment = "", list[str]()
    for line in (shipped("configs") / "nimbus.example.yaml").read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("#"):
            comment.append(text.removeprefix("#").removeprefix(" "))
            continue
        name, colon, _ = text.partition(":")
        if colon and not line.startswith(" "):
            section = name
        elif colon:
            texts[f"{section}.{name}"] = "\n".join(comment) or next(reversed(texts.values()))
        comment = []
    return texts


@config.command(
    epilog=examples(
        "nimbus config show --config /etc/nimbus.yaml",
        "nimbus config show --config /etc/nimbus.yaml --origins",
        "nimbus config show --changed -o json",
    )
)
@click.option("--origins", is_flag=True, help="Show the origin of each value.")
@click.option("--changed", is_flag=True, help="Omit keys that have their default.")
@config_option
@output_option
def show(config: Path | None, output: str, origins: bool, changed: bool) -> None:
    """Show every key with the value that a daemon started now would use. Secrets are masked.

    Needs no cluster. A running daemon keeps the values that it read when it started.
    """
    from nimbus.cli.options import settings_of
    from nimbus.config.settings import shown

    out = Output(output)
    settings = [setting for setting in shown(settings_of(config)) if not (changed and setting.is_default)]
    names = ("key", "value", "origin") if origins else ("key", "value")
    data = [{name: getattr(setting, name) for name in names} for setting in settings]
    if out.printed_json({"settings": data}):
        return
    columns = ("key", "value", "from") if origins else ("key", "value")
    rows = [(setting.key, setting.text, setting.origin)[: len(columns)] for setting in settings]
    out.table(columns, rows, empty="every key has its default")
