"""The cut of a reason is the longest start that fits into its bytes of JSON."""

from __future__ import annotations

import json
import random

from nimbus.domain.wording import REASON_BYTES, shortened

LETTERS = 'a"\\\n\x00é€😀'


def _size(text: str) -> int:
    return len(json.dumps(text)) - 2


def test_a_reason_is_cut_to_the_longest_start_that_fits() -> None:
    draw, most = random.Random(7), REASON_BYTES - len(json.dumps("…"))
    for length in (*range(0, 30, 7), *range(40, 130, 5), *range(most - 6, most + 12), 5000):
        letters = draw.choice(["a", LETTERS])
        reason = "".join(draw.choice(letters) for _ in range(length))

        cut = shortened(reason)

        if _size(reason) <= most:
            assert cut == reason
        else:
            kept = cut.removesuffix("…")
            assert reason.startswith(kept)
            assert _size(kept) <= most < _size(reason[: len(kept) + 1])
