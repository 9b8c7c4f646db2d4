"""The graph of a definition's needs, in one walk: its time grows with the number of needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


class NeedGraph:
    """What must end before each task. Needs of unknown tasks, and of a task itself, do not count."""

    def __init__(self, needs: Mapping[str, Collection[str]]) -> None:
        """`needs`: for each task the tasks that it needs."""
        self._needs = {
            name: [need for need in needed if need in needs and need != name]
            for name, needed in needs.items()
        }
        self._bits = {name: 1 << number for number, name in enumerate(needs)}
        self._upstream: dict[str, int] = {}
        """For each finished task the tasks before it, as a set of bits."""
        self._circular: set[str] = set()
        """Tasks that are in a cycle, or after one."""
        self.cycles: list[list[str]] = []
        """Cycles without common tasks, at least one of those that need each other; each needs the next."""
        for name in self._needs:
            if name not in self._upstream:
                self._walk(_Path(name, self._needs[name]))

    def may_come_later(self, name: str, other: str) -> bool:
        """True if task `name` may begin before `other` has ended. False if a cycle hides the answer."""
        return name not in self._circular and not self._upstream[name] & self._bits[other]

    def _walk(self, path: _Path) -> None:
        while path.names:
            name = path.names[-1]
            for need in path.left[-1]:
                if need in path.places:
                    self._circular.add(name)
                    if (cycle := path.cycle(need)) is not None:
                        self.cycles.append(cycle)
                elif need not in self._upstream:
                    path.push(need, self._needs[need])
                    break
            else:
                path.pop()
                self._finish(name)

    def _finish(self, name: str) -> None:
        before = 0
        for need in self._needs[name]:
            before |= self._bits[need] | self._upstream.get(need, 0)
            if need in self._circular:
                self._circular.add(name)
        self._upstream[name] = before


class _Path:
    """The way from a first task to the current one; each needs the next."""

    def __init__(self, name: str, needs: list[str]) -> None:
        self.names: list[str] = []
        self.left: list[Iterator[str]] = []
        """The needs of each task that are not visited yet."""
        self.places: dict[str, int] = {}
        self._told: list[int] = []
        """For each place the last place, up to it, whose task is in a cycle that was returned; -1: none."""
        self.push(name, needs)

    def push(self, name: str, needs: list[str]) -> None:
        self._told.append(self._told[-1] if self._told else -1)
        self.places[name] = len(self.names)
        self.names.append(name)
        self.left.append(iter(needs))

    def pop(self) -> None:
        self.left.pop()
        self._told.pop()
        del self.places[self.names.pop()]

    def cycle(self, first: str) -> list[str] | None:
        """The cycle from `first` to the current task; None if a task of it is in another one."""
        start = self.places[first]
        if self._told[-1] >= start:
            return None
        self._told[start:] = range(start, len(self.names))
        return self.names[start:]
