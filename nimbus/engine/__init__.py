"""The leader's engine: it turns facts into decisions, one at a time, and writes them in fenced transactions.

`state` is what the leader knows, `rules` are pure functions from facts and time to the next decision,
`leader_term` is one epoch of leadership, `loop` is the one thread that reads, decides, writes and starts
effects. A takeover has no separate code: a new leader loads the same facts and applies the same rules.
"""
