"""The tests and places that the documents name exist."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import nimbus
from nimbus.config import load_settings
from tests.deploy.page import sections
from tests.nimbus import reference

PROJECT = Path(__file__).parents[3]
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("examples/*/*.md")])

_NAMED = re.compile(
    r"\b((?:\w+/)?(?:unit|property|contract|integration|chaos)/test_\w+\.py)(?:::(test_[\w*]+))?"
)
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def _missing(text: str) -> Iterator[str]:
    for file, test in _NAMED.findall(text):
        path = PROJECT / "tests" / file
        if not path.is_file():
            yield file
        elif test and not fnmatch.filter(_TEST.findall(path.read_text()), test):
            yield f"{file}::{test}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    assert list(_missing(document.read_text())) == []


def test_a_test_that_is_not_there_is_missed() -> None:
    here = f"nimbus/unit/{Path(__file__).name}"
    text = f"`{here}`, `{here}::test_every_*`, `{here}::test_nothing`, `unit/test_docs.py`"

    assert list(_missing(text)) == [f"{here}::test_nothing", "unit/test_docs.py"]


def test_each_section_of_the_guarantees_has_its_tests() -> None:
    promised, shown = (
        re.findall(r"^## (.+)$", (PROJECT / "docs" / page).read_text(), re.MULTILINE)
        for page in ("guarantees.md", "guarantees-tests.md")
    )

    assert len(promised) > 7
    assert shown == promised


_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s:]+)\)")


def _anchors(text: str) -> set[str]:
    """The names that GitHub gives to the headings: lower case, without punctuation, a dash for each space."""
    headings = _HEADING.findall(_FENCED.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _broken_links(document: Path, text: str) -> Iterator[str]:
    for link in _LINK.findall(_FENCED.sub("", text)):
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            yield link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_link_from_a_document_to_another_leads_somewhere(document: Path) -> None:
    assert list(_broken_links(document, document.read_text())) == []


def test_a_link_that_leads_nowhere_is_missed() -> None:
    text = "[a](README.md#try-it) [b](nothing.md) [c](README.md#nothing) [d](https://example.com) [e](docs)"

    assert list(_broken_links(PROJECT / "README.md", text)) == ["nothing.md", "README.md#nothing"]


def test_configuration_of_three_hosts_is_one_that_daemons_accept(tmp_path: Path) -> None:
    blocks = sections(PROJECT / "docs/systemd.md")["Write the configuration"]
    (tmp_path / "nimbus.yaml").write_text(next(one.text for one in blocks if one.file == "nimbus.yaml"))
    variables = next(one for one in blocks if one.file == "environment")
    names = [line.partition("=")[0] for line in variables.lines]
    (tmp_path / "secret").write_text("secret")

    settings = load_settings(tmp_path / "nimbus.yaml", dict.fromkeys(names, str(tmp_path / "secret")))

    assert settings.worker.run_as == "etl"


def test_zookeepers_configuration_in_the_text_is_the_one_that_is_installed() -> None:
    shown = _FENCED.search((PROJECT / "docs/production.md").read_text())
    _, _, installed = (PROJECT / "deploy/systemd/zoo.cfg").read_text().partition("\n")

    assert shown and shown[0] == f"```\n{installed}```"


def test_definition_in_the_tutorial_is_that_of_the_first_pipeline() -> None:
    (shown,) = re.findall(
        r"^```yaml\n(.*?)^```$", (PROJECT / "docs/tutorial.md").read_text(), re.DOTALL | re.MULTILINE
    )

    assert (PROJECT / "examples/first/pipeline.yaml").read_text().endswith(shown)


_COMMANDS_OF_DOLPHINSCHEDULER = (
    "START_PROCESS",
    "START_CURRENT_TASK_PROCESS",
    "RECOVER_TOLERANCE_FAULT_PROCESS",
    "RECOVER_SUSPENDED_PROCESS",
    "START_FAILURE_TASK_PROCESS",
    "COMPLEMENT_DATA",
    "SCHEDULER",
    "REPEAT_RUNNING",
    "PAUSE",
    "STOP",
    "RECOVER_WAITING_THREAD",
    "RECOVER_SERIAL_WAIT",
    "EXECUTE_TASK",
    "DYNAMIC_GENERATION",
)
"""Names of `CommandType`."""


@pytest.mark.parametrize("command", _COMMANDS_OF_DOLPHINSCHEDULER)
def test_each_command_of_dolphinscheduler_has_a_row_that_names_a_test(command: str) -> None:
    lines = (PROJECT / "docs/coming-from-dolphinscheduler.md").read_text().splitlines()

    (row,) = (line for line in lines if line.startswith(f"| {command} |"))
    assert _NAMED.search(row)


def test_every_log_event_that_the_documents_name_is_written_somewhere() -> None:
    text = (PROJECT / "docs" / "metrics.md").read_text()
    rows = text.partition("\n## Log events\n")[2].partition("\n## ")[0].splitlines()
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    sources = [path for room in ("nimbus", "leader", "blobsync") for path in (PROJECT / room).rglob("*.py")]
    written = set(re.findall(r'"(\w+)"', "\n".join(path.read_text() for path in sources)))

    assert len(named) > 50
    assert sorted(named - written) == []


_VERSION = re.compile(
    r"(?:nimbus[_-](?:scheduler|worker)[-:]|/opt/nimbus-|^version: |^appVersion: \"|Status:\*\* )"
    r"(\d+\.\d+\.\d+)",
    re.MULTILINE,
)


def test_documents_and_deployments_name_the_version_of_this_release() -> None:
    places = [
        "README.md",
        *(f"docs/{name}.md" for name in ("client", "containers", "kubernetes", "operations", "tutorial")),
    ]
    places += ["deploy/container/Dockerfile", "deploy/helm/nimbus/Chart.yaml"]
    named = {place: set(_VERSION.findall((PROJECT / place).read_text())) for place in places}

    assert all(len(found) == 1 for found in named.values()), named
    assert len(set.union(*named.values())) == 1, named
    # Between two releases they name the last one, which users can install.
    assert ".dev" in nimbus.__version__ or named["README.md"] == {nimbus.__version__}


def test_reference_is_what_the_declarations_say() -> None:
    for name, text in reference.pages().items():
        written = (reference.FOLDER / name).read_text(encoding="utf-8")

        assert written == text, "run python -m tests.nimbus.reference"
