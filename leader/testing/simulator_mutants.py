"""x"""

from collections.abc import Callable
from contextlib import AbstractContextManager

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
