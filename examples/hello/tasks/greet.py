"""Greet the one named on the command line."""

import sys

from nimbus.task import context


def main() -> None:
    greeting = f"Hello, {sys.argv[1]}!"
    (context().output / "greeting.txt").write_text(greeting, encoding="utf-8")
    sys.stdout.write(greeting + "\n")


if __name__ == "__main__":
    main()
