"""Settings from a file and the environment, which overrides the file. Each value keeps its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from nimbus.config.checking import Strict, check
from nimbus.config.document import Document, parse_value, read_document
from nimbus.config.problems import InvalidConfigurationError, InvalidDocumentError, Problem
from nimbus.config.relations import relation_faults
from nimbus.config.sections import StorageSection
from nimbus.config.settings import DERIVED, Settings, settings_keys, with_derived
from nimbus.config.values import is_secret
from nimbus.domain.wording import closest

PREFIX = "NIMBUS__"
"""Prefix of our variables: `NIMBUS__SECTION__KEY`."""
FILE_SUFFIX = "_FILE"
"""`NIMBUS__STORAGE__SECRET_ACCESS_KEY_FILE` names a file that contains the secret."""
ENVIRONMENT = "environment"


def load_settings(path: Path, environ: Mapping[str, str]) -> Settings:
    """Read a daemon's settings.

    Args:
        path: A YAML file; `configs/nimbus.example.yaml` describes its keys.
        environ: The process's environment; variables of the form `NIMBUS__SECTION__KEY` override the file.

    Raises:
        InvalidConfigurationError: with all problems, each with its place.
    """
    try:
        document = read_document(path)
    except InvalidDocumentError as exc:
        raise InvalidConfigurationError(exc.problems) from exc
    overrides = _Overrides(environ)
    given = overrides.over(document.data)
    merged = Document(document.name, with_derived(given), document.lines)
    settings, problems = check(Settings, merged)
    problems = _without_echoes(problems, given)
    if settings is not None:
        problems += [merged.problem(key, message) for key, message in relation_faults(settings)]
    faults = [*overrides.problems, *(overrides.placed(problem) for problem in problems)]
    if settings is None or faults:
        raise InvalidConfigurationError(faults)
    return settings.with_origins(_origins(merged, given, overrides))


class _StorageAlone(Strict):
    storage: StorageSection


def load_storage(path: Path | None, environ: Mapping[str, str]) -> StorageSection:
    """Read the section `storage` alone, for a host that only publishes. Other sections are not looked at.

    `path`: as for `load_settings`; None: the environment has all of it. Raises InvalidConfigurationError:
    with all problems of the section, each with its place.
    """
    try:
        document = Document(ENVIRONMENT, {}, {}) if path is None else read_document(path)
    except InvalidDocumentError as exc:
        raise InvalidConfigurationError(exc.problems) from exc
    overrides = _Overrides({name: environ[name] for name in environ if name.startswith(f"{PREFIX}STORAGE__")})
    section = overrides.over(document.data).get("storage")
    alone = Document(document.name, {"storage": {} if section is None else section}, document.lines)
    settings, problems = check(_StorageAlone, alone)
    faults = [*overrides.problems, *(overrides.placed(problem) for problem in problems)]
    if settings is None or faults:
        raise InvalidConfigurationError(faults)
    return settings.storage


def secret_files(settings: Settings, environ: Mapping[str, str]) -> set[Path]:
    """The files from which these settings read secrets, and the secret files that they name: TLS key, tokens.

    Without the token for Kubernetes, which drivers in client mode read themselves.
    """
    files = {
        Path(environ[name]) for name, (_, _, is_file) in _variables().items() if is_file and name in environ
    }
    for (section, key), leaf in settings_keys().items():
        if is_secret(leaf) and getattr(getattr(settings, section), key) is not None:
            origin = settings.origins[f"{section}.{key}"]
            if not origin.startswith(f"{ENVIRONMENT} "):
                files.add(Path(origin.rpartition(":")[0]))
    targets = (target for target in settings.spark.targets.values() if target.kind != "kubernetes")
    named = (settings.zookeeper.tls_key_file, *(target.token_file for target in targets))
    of_alerts = (target.secret_file for target in settings.alerts.targets.values())
    telemetry = (settings.telemetry.traces, settings.telemetry.lineage)
    of_telemetry = (section.headers_file for section in telemetry if section is not None)
    return files | {file for file in (*named, *of_alerts, *of_telemetry) if file is not None}


class _Overrides:
    """Values from the environment by key, and problems with some of them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.values: dict[tuple[str, str], Any] = {}
        self.variables: dict[tuple[str, str], str] = {}
        self.problems: list[Problem] = []
        self._known = _variables()
        for variable in sorted(environ):
            if variable.startswith(PREFIX):
                self._take(variable, environ[variable])

    def over(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The file's data, overridden by the environment's values."""
        merged = {name: dict(part) if isinstance(part, Mapping) else part for name, part in data.items()}
        for (section, key), value in self.values.items():
            part = merged.get(section)
            if part is None:
                part = merged[section] = {}
            if isinstance(part, dict):
                part[key] = value
        return merged

    def placed(self, problem: Problem) -> Problem:
        """The problem, placed at the variable if the value came from one."""
        for (section, key), variable in self.variables.items():
            rest = problem.key.removeprefix(f"{section}.{key}")
            if rest != problem.key and rest[:1] in ("", ".", "["):
                return replace(problem, file=ENVIRONMENT, line=None, key=variable + rest)
        return problem

    def _take(self, variable: str, text: str) -> None:
        if variable not in self._known:
            suggestion = closest(variable, self._known)
            self._refuse(variable, "no setting has this variable", suggestion)
            return
        place, annotation, is_file = self._known[variable]
        if place in self.values:
            self._refuse(variable, f"{self.variables[place]} is set as well; set one of them")
            return
        value = self._file_content(variable, text) if is_file else self._parsed(variable, text, annotation)
        if value is not _BROKEN:
            self.values[place], self.variables[place] = value, variable

    def _parsed(self, variable: str, text: str, annotation: Any) -> Any:
        if any(map(_is_in_yaml, (annotation, *get_args(annotation)))):
            try:
                return parse_value(text, variable)
            except InvalidDocumentError:
                self._refuse(variable, "cannot be read as YAML or JSON")  # its text may hold a secret
                return _BROKEN
        return None if text == "" and type(None) in get_args(annotation) else text

    def _file_content(self, variable: str, name: str) -> Any:
        try:
            return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it is not UTF-8 text"
            self._refuse(variable, f"the file {name!r} cannot be read: {reason}")
            return _BROKEN

    def _refuse(self, variable: str, message: str, suggestion: str | None = None) -> None:
        self.problems.append(Problem(file=ENVIRONMENT, key=variable, message=message, suggestion=suggestion))


def _is_in_yaml(annotation: Any) -> bool:
    """True for types whose variable contains YAML; for other types the text is the value."""
    kind = get_origin(annotation) or annotation
    return kind in (int, float, bool, dict, list) or (isinstance(kind, type) and issubclass(kind, BaseModel))


_BROKEN = object()
"""Replaces a value that could not be read; its problem is recorded."""


def _variables() -> dict[str, tuple[tuple[str, str], Any, bool]]:
    """Every variable, with its key, the type of its value, and whether it names a file."""
    known = {}
    for (section, key), annotation in settings_keys().items():
        name = f"{PREFIX}{section}__{key}".upper()
        known[name] = ((section, key), annotation, False)
        if is_secret(annotation):
            known[name + FILE_SUFFIX] = ((section, key), annotation, True)
    return known


def _without_echoes(problems: list[Problem], given: Mapping[str, Any]) -> list[Problem]:
    """Drop problems of derived values: they repeat the problem of the value from which they are derived."""

    def is_echo(problem: Problem) -> bool:
        section, _, key = problem.key.partition(".")
        part = given.get(section)
        return problem.key in DERIVED and not (isinstance(part, Mapping) and part.get(key) is not None)

    return [problem for problem in problems if not is_echo(problem)] or problems[:1]


def _origins(document: Document, given: Mapping[str, Any], overrides: _Overrides) -> dict[str, str]:
    origins = {}
    for section, key in settings_keys():
        part = given.get(section)
        if (section, key) in overrides.variables:
            origin = f"{ENVIRONMENT} {overrides.variables[section, key]}"
        elif isinstance(part, Mapping) and key in part:
            origin = f"{document.name}:{document.line_of((section, key))}"
        else:
            origin = "default"
        origins[f"{section}.{key}"] = origin
    return origins
