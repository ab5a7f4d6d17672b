"""The `yake` keywords: by the library of that name, from one text's statistics, in some thirty languages."""

from memory.adapters.yake.keywords import LANGUAGES, YakeKeywords

__all__ = ["LANGUAGES", "YakeKeywords"]
