"""The pieces of code on the pages for users."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "deploy").glob("*.md"))]
SHELL = frozenset({"sh", "console"})
_BLOCK = re.compile(r"^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """One block."""

    page: str
    """Relative to the repository."""
    line: int
    """Of its first line, from 1."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Of a block for a shell: what is typed, without prompts, remarks and what is answered."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [typed for line in lines if (typed := re.sub(r"(^|\s+)#.*", "", line).strip())]


def snippets(page: str | None = None, language: str | None = None) -> list[Snippet]:
    """Those of all pages, or of one, in their order; of all languages, or of one."""
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(ROOT))
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 2
            found.append(Snippet(name, line, block["language"], block["text"]))
    return [each for each in found if page in (None, each.page) and language in (None, each.language)]
