"""The command `banyan` (design section 9)."""

from streams.cli.app import main

__all__ = ["main"]
