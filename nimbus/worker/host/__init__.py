"""What the processes of a worker need of their host: clocks, a loop, files, locks, other processes."""
