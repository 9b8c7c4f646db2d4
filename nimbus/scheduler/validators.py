"""Operators' own checks of definitions: functions that are called before a release is accepted.

A validator is `function(spec: PipelineSpec) -> None`, and refuses by raising ValueError, whose text the
publisher sees. It runs on one of the leader's `nimbus-prepare` threads, one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from operator import attrgetter

import structlog

from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.pipeline import PipelineSpec

Validator = Callable[[PipelineSpec], object]

_log = structlog.get_logger(__name__)


class ValidatorNotFoundError(NimbusError):
    """A function named in `scheduler.validators` does not exist. Raised before the scheduler starts."""

    code = "validator_not_found"
    exit_code = 2


class Validators:
    """All validators of the configuration, in its order."""

    def __init__(self, places: Iterable[str] = ()) -> None:
        """Load them from `package.module:function`.

        Raises:
            ValidatorNotFoundError: one does not exist, or is not a function.
        """
        self._known = {place: _loaded(place) for place in places}

    def check(self, spec: PipelineSpec) -> None:
        """Call each validator with a definition.

        Raises:
            RefusedError: a validator refuses it, or fails; with the text of the first one.
        """
        for place, validator in self._known.items():
            try:
                validator(spec)
            except ValueError as exc:
                raise RefusedError("refused_by_validator", f"{place} refuses {spec.name}: {exc}") from exc
            except Exception as exc:  # it is an operator's code, which must not end the leader
                _log.exception("validator_failed", validator=place, pipeline=spec.name)
                message = f"{place} failed on {spec.name}, so it is not taken in: {exc!r}"
                raise RefusedError("validator_failed", message) from exc


def _loaded(place: str) -> Validator:
    module, _, name = place.partition(":")
    try:
        found: object = attrgetter(name)(import_module(module))
    except Exception as exc:  # an import runs an operator's code
        message = f"scheduler.validators: {place} cannot be loaded ({type(exc).__name__}: {exc})"
        raise ValidatorNotFoundError(f"{message}; check the spelling, and PYTHONPATH") from exc
    if not callable(found):
        raise ValidatorNotFoundError(f"scheduler.validators: {place} is no function")
    return found
