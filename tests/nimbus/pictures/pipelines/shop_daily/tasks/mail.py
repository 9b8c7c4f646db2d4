"""Sends the report. The mail of a held day waits for its receiver."""

import sys
import time

held_day, day = sys.argv[1:3]
print(f"INFO  mail the report of {day}", flush=True)
time.sleep(900 if held_day == day else 0.5)
