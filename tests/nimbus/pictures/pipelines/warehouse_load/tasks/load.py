"""Loads a table."""

import sys
import time

print("INFO  load", flush=True)
time.sleep(float(sys.argv[1]))
