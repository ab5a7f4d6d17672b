"""MemTree as pure functions and values: no await, no clock, no randomness, no I/O (MemTree, section 3.1 and appendix A.1)."""
