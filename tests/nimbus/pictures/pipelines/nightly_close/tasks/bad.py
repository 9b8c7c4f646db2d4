"""Posts sums to the ledger."""


def post(sums: dict[str, int]) -> None:
    off = sum(sums.values())
    if off:
        raise ValueError(f"the ledger is off by {off / 100:.2f}: account 4400 has no counterpart")
