"""The use cases: each drives pure decisions through the ports. They return outcomes; they neither log nor know an adapter."""
