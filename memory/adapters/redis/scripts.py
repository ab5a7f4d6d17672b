"""The Lua scripts beside this module: read once, sent by their SHA, and in full to a server that does not know them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as it is sent."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """
    The script of that name, with what it includes put in front.

    The first line says to Redis what the script may do, so it stays the first.
    """
    shebang, _, body = _read(name).partition("\n")
    text = "\n".join([shebang, *(_read(library) for library in INCLUDE.findall(body)), body])
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return resources.files("memory.adapters.redis").joinpath("scripts", f"{name}.lua").read_text("utf-8")
