"""Everything that uses kazoo: a session, requests over it, fenced transactions, access lists."""
