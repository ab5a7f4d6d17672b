"""Everything on one machine, without servers: SQLite, in-process queues and leases."""
