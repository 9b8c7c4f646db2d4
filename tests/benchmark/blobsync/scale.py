"""The sizes of all cases: full ones, and small ones that test the benchmark itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Files:
    """Files of one size, in folders.

    Args:
        is_text: Content similar to program text, which zstd compresses; otherwise random bytes.
    """

    count: int
    size_bytes: int
    folders: int
    is_text: bool

    @property
    def total_bytes(self) -> int:
        return self.count * self.size_bytes

    @property
    def words(self) -> str:
        unit = 1 << 20 if self.size_bytes >= 1 << 20 else 1 << 10
        size = f"{self.size_bytes / unit:g} {'MiB' if unit == 1 << 20 else 'KiB'}"
        return f"{self.count:,} x {size} of {'text' if self.is_text else 'random bytes'}"


@dataclass(frozen=True)
class Scale:
    """Sizes of the cases. `many` is for the store that is opened; `changed` files of `small` change."""

    small: Files
    medium: Files
    large: Files
    many: Files
    changed: int
    readiness_calls: int


_MIB = 1 << 20

SCALES = {
    "full": Scale(
        small=Files(10_000, 8 << 10, 100, True),
        medium=Files(200, _MIB, 4, False),
        large=Files(3, 512 * _MIB, 1, False),
        many=Files(100_000, 64, 200, True),
        changed=100,
        readiness_calls=10_000,
    ),
    "small": Scale(
        small=Files(200, 2 << 10, 5, True),
        medium=Files(6, _MIB, 2, False),
        large=Files(2, 20 * _MIB, 1, False),
        many=Files(500, 64, 5, True),
        changed=2,
        readiness_calls=100,
    ),
}
