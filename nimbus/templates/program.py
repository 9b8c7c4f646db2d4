"""The template helper's answers, without its process and limits. Only the program imports this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never, cast

from nimbus.templates.answers import Fault, TemplateError
from nimbus.templates.checking import Names, argument_faults, file_faults
from nimbus.templates.client import Question
from nimbus.templates.rendering import Renderer, render_arguments


class Program:
    """Answers questions, and keeps compiled templates between them."""

    def __init__(self, at: Callable[[int], object]) -> None:
        """`at` is called with the number of each text, before the work on it begins."""
        self._at = at
        self.number: int | None = None
        """Index of the current text, or of the last one."""
        self._renderer = Renderer()

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """`{"results": [...]}`, one for each text; or `{"error": ..., "at": ...}`, with the text's number."""
        try:
            return {"results": self._results(cast("Question", question["question"]), question)}
        except TemplateError as exc:
            return {"error": str(exc), "at": exc.at}

    def _results(self, kind: Question, question: Mapping[str, Any]) -> list[Any]:
        texts = question["texts"]
        self.number = None
        match kind:
            case "render":
                return list(render_arguments(self._renderer, texts, question, self._begin))
            case "arguments" | "file":
                names = Names(frozenset(question["parameters"]))
                items = question.get("items") or [None] * len(texts)
                results: list[list[Fault]] = []
                for number, (text, item) in enumerate(zip(texts, items, strict=True)):
                    self._begin(number)
                    faults = (
                        file_faults(text, names) if kind == "file" else argument_faults(text, names, item)
                    )
                    results.append(faults)
                return results
            case _:
                assert_never(kind)

    def _begin(self, number: int) -> None:
        self.number = number
        self._at(number)
