"""Targets of alerts: a webhook, a mail server."""
