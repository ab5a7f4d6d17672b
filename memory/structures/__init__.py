"""How each kind of memory grows: from items to the steps of a commit. Pure; one module a structure (docs/structures.md)."""
