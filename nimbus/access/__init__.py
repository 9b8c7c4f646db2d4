"""Who may do what over HTTP: tokens, rules, sessions of browsers, limits. No I/O; time is handed in."""
