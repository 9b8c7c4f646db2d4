"""Reads a table of the shop, as it was at the end of the day."""

import json
import sys
import time

from nimbus.task import context

RETURNS_FROM = "2026-11-30"
"""From this day on, the stock counts what customers sent back."""
ROWS = {"orders": 5_120, "customers": 801, "stock": 340}


def main() -> None:
    table, took_s, day = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    print(f"INFO  read {table} of {day}", flush=True)
    time.sleep(took_s)
    less = 3 if table == "stock" and day >= RETURNS_FROM else 0
    if less:
        print("WARNING  returns are booked before they are counted", flush=True)
    rows = [
        {"id": f"{table[0].upper()}-{number:05d}", "day": day, "amount": number % 113 + 1 - less}
        for number in range(ROWS[table])
    ]
    folder = context().output
    (folder / f"{table}.json").write_text(json.dumps(rows[:200]))
    (folder / f"{table}.csv").write_text(
        "id,day,amount\n" + "".join(f"{row['id']},{day},{row['amount']}\n" for row in rows)
    )
    print(f"INFO  {len(rows)} rows", flush=True)
    context().result(rows=len(rows))


if __name__ == "__main__":
    main()
