"""Authentication and permissions over HTTP: tokens, rules, sessions, limits. No I/O; time is an argument."""
