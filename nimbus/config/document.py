"""Reads a YAML document into plain data and remembers the line of every key. The input is not trusted.

Anybody may have published the release that contains a definition. So size, depth, and the number of values
after expansion of aliases are limited before memory or time is spent on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nimbus.config.problems import InvalidDocumentError, KeyPath, Problem, spelled
from nimbus.config.values import Unclear
from nimbus.domain.wording import Suggestion, suggested

MAX_BYTES = 4 << 20
MAX_DEPTH = 32
"""libyaml's composer recurses on the C stack: tens of thousands of brackets would end the process."""
MAX_VALUES = 400_000
"""Counted after expansion of aliases: a few lines of them can expand to more values than fit in memory."""

_WORDS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:bool")
"""Tags that a key may have: as keys, `on`, `yes` and similar words are text."""
_TEXTS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:value", "tag:yaml.org,2002:merge"})
"""Tags of texts; as values, `=` and `<<` are texts, too."""
_PLAIN_WORDS = {
    "found character that cannot start any token": "there is a character here that no YAML value begins with;"
    " put the text in quotes",
    "found a tab character that violates indentation": "a tab is used for indentation; use spaces",
    "mapping values are not allowed in this context": "a colon is not expected here; check the indentation,"
    " or put the text in quotes",
    "found unexpected end of stream": "a quote is opened and not closed",
    "did not find expected key": "a key is expected here; check the indentation",
    "could not find expected ':'": "a key without a colon; write `key: value`",
    "found undefined alias": "an alias (`*name`) that nothing before it defines; put the text in quotes if it"
    " is none",
    "but found another document": "a second document begins here; a file holds one",
    "did not find expected ',' or '}'": "a `{` is not closed, or a comma is missing",
    "did not find expected ',' or ']'": "a `[` is not closed, or a comma is missing",
}


@dataclass(frozen=True, slots=True)
class Document:
    """A document's data, with the place of each of its keys."""

    name: str
    """For messages: the path, or the origin of the text."""
    data: Mapping[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def line_of(self, path: KeyPath) -> int | None:
        """Line of a key, or of its nearest existing parent."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def problem(self, path: KeyPath, message: str, suggestion: Suggestion = None) -> Problem:
        """A problem at a key."""
        return Problem(
            file=self.name,
            line=self.line_of(path),
            key=spelled(path),
            message=message,
            suggestion=suggested(suggestion),
        )


def read_document(path: Path) -> Document:
    """Read a YAML file whose top is a mapping.

    Raises InvalidDocumentError: it cannot be read, is not such a document, or repeats keys.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        raise _whole(str(path), "there is no such file") from exc
    except IsADirectoryError as exc:
        raise _whole(str(path), "this is a folder, not a file") from exc
    except (OSError, ValueError) as exc:  # ValueError: a null character in the name
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise _whole(str(path), f"the file cannot be read: {reason}") from exc
    return parse_document(text, str(path))


def parse_document(text: bytes, name: str) -> Document:
    """Parse YAML whose top is a mapping.

    Raises InvalidDocumentError: it is not such a document, is too large or too deep, or repeats keys.
    """
    if len(text) > MAX_BYTES:
        raise _whole(name, f"the document is larger than {MAX_BYTES >> 20} MiB")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = text.count(b"\n", 0, exc.start) + 1
        raise InvalidDocumentError(
            [Problem(file=name, line=line, message="this is not UTF-8; save the file in that encoding")]
        ) from exc
    try:
        _check_depth(decoded, name)
        node = yaml.CSafeLoader(decoded).get_single_node()
    except yaml.YAMLError as exc:
        raise InvalidDocumentError([_syntax_problem(exc, decoded, name)]) from exc
    if node is None:
        raise _whole(name, "the document is empty")
    if not isinstance(node, yaml.MappingNode):
        raise _whole(name, "the document must be a mapping: lines of `key: value`")
    reader = _Reader(name)
    data = reader.mapping(node, ())
    if reader.problems:
        raise InvalidDocumentError(reader.problems)
    return Document(name, data, reader.lines)


def parse_value(text: str, name: str) -> Any:
    """Parse YAML that is one value, by the rules of documents: `on` is text if it is a key.

    Raises InvalidDocumentError: it is not YAML, is too deep, or repeats keys.
    """
    try:
        _check_depth(text, name)
        node = yaml.CSafeLoader(text).get_single_node()
    except (yaml.YAMLError, ValueError) as exc:  # ValueError: a character that UTF-8 does not have
        raise _whole(name, "this is not YAML") from exc
    if node is None:
        return None
    reader = _Reader(name)
    value = reader.value(node)
    if reader.problems:
        raise InvalidDocumentError(reader.problems)
    return value


class _Reader:
    """Turns YAML nodes into data; records lines and collects problems."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._values = 0
        self._scalars = yaml.CSafeLoader("")

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            place, line = (*path, key), key_node.start_mark.line + 1
            if key in data:
                first = self.lines[place]
                self._refuse(key_node, place, f"this key is here twice (first on line {first}); keep one")
                continue
            self.lines[place] = line
            data[key] = self._value(value_node, place)
        return data

    def value(self, node: yaml.Node) -> Any:
        return self._value(node, ())

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if isinstance(node, yaml.ScalarNode):
            if node.tag in _WORDS:
                return str(node.value)
            if node.tag == "tag:yaml.org,2002:merge":
                self._refuse(node, (*path, "<<"), "merge keys are not supported; write the keys out")
                return None
            self._refuse(
                node, (*path, str(node.value)), "YAML does not read this key as text; put it in quotes"
            )
            return None
        self._refuse(node, path, "a key must be text, not a list or mapping")
        return None

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or len(path) > MAX_DEPTH:
            message = f"with its aliases the document is too large: {MAX_VALUES} values, {MAX_DEPTH} levels"
            raise InvalidDocumentError([*self.problems, _at(self.name, node, path, message)])
        if isinstance(node, yaml.MappingNode):
            if node.tag != "tag:yaml.org,2002:map":
                self._refuse(node, path, f"the tag {node.tag} is not supported; remove it")
                return {}
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != "tag:yaml.org,2002:seq":
                self._refuse(node, path, f"the tag {node.tag} is not supported; remove it")
                return []
            return [self._item(item, (*path, number)) for number, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self._value(node, path)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        if node.tag in _TEXTS:
            return node.value
        try:
            value = self._scalars.construct_object(node)
            return None if value is None else Unclear.if_changed(node.value, value)
        except yaml.YAMLError:
            self._refuse(node, path, f"the tag {node.tag} is not supported; remove it")
        except (ValueError, ArithmeticError, LookupError, AttributeError):  # 2013-02-31, !!int x, ...
            self._refuse(node, path, "YAML cannot read this value; put it in quotes")
        return None

    def _refuse(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.problems.append(_at(self.name, node, path, message))


def _check_depth(text: str, name: str) -> None:
    """Check the depth by the parser's events, which need no stack, before a recursive reader is used."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                message = f"the document is nested more than {MAX_DEPTH} deep"
                mark = event.start_mark
                line = None if mark is None else mark.line + 1
                raise InvalidDocumentError([Problem(file=name, line=line, message=message)])
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _syntax_problem(error: yaml.YAMLError, text: str, name: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        where = error.context_mark if "end of stream" in str(error.problem) else mark
        problem = str(error.problem)
        message = _PLAIN_WORDS.get(problem, f"this is not YAML: {problem}")
        lines = text.splitlines()
        if mark is not None and mark.line < len(lines) and lines[mark.line].lstrip(" ").startswith("\t"):
            message, where = "a tab is used for indentation; use spaces", mark
        return Problem(file=name, line=None if where is None else where.line + 1, message=message)
    position = getattr(error, "position", None)
    line = text.count("\n", 0, position) + 1 if isinstance(position, int) else None
    return Problem(file=name, line=line, message="there is a control character here that YAML does not allow")


def _whole(name: str, message: str) -> InvalidDocumentError:
    return InvalidDocumentError([Problem(file=name, message=message)])


def _at(name: str, node: yaml.Node, path: KeyPath, message: str) -> Problem:
    return Problem(file=name, line=node.start_mark.line + 1, key=spelled(path), message=message)
