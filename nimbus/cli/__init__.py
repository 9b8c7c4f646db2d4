"""The command line. It speaks to any scheduler over HTTP; the daemons and the local stack start from it too.

Every module imports only Click at its top: what is heavy is imported by the command that needs it, so that
`nimbus version` and `--help` answer at once.
"""
