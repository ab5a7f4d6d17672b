"""The node index of one machine: exact int8 vector search, own BM25 postings, and a SQLite file that keeps both."""
