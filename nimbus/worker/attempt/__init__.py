"""One attempt, in the process that runs it: its folder, log, limits, board and end."""
