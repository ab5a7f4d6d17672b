"""Banyan where other libraries look for a memory; each module needs the library it is named after, and none is imported here."""
