"""Implementations of the ports, one family a package. Families do not know one another."""
