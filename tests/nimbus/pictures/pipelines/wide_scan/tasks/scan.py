"""Scans one shelf."""

import sys
import time

shelf, held = map(int, sys.argv[1:3])
print(f"INFO  scan shelf {shelf}", flush=True)
time.sleep(900 if shelf >= held else 0.2)
