"""The command line: a client of the schedulers' HTTP API; also starts the daemons and the local stack.

Modules import only Click at the top. Each command imports heavy modules itself, so that
`nimbus version` and `--help` print at once.
"""
