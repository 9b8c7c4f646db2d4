"""One step of the close."""

import sys
import time

from bad import post


def main() -> None:
    name = sys.argv[1]
    print(f"INFO  {name}", flush=True)
    time.sleep(0.4)
    if name == "post_ledger":
        post({"1200": 40_110, "4400": -40_101})


if __name__ == "__main__":
    main()
