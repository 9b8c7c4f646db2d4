"""What speaks kazoo: a session, requests answered over it, fenced transactions, access lists."""
