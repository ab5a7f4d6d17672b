"""The query service: a memory over HTTP (design section 10)."""
