"""
How much a memory counts (H-MEM, section 3.3): approval multiplies, rebuttal reduces, silence decays by Ebbinghaus' curve.

What is kept of a leaf are counts and times, out of which its weight follows:

    weight = approval^approvals · rebuttal^rebuttals · exp(-t / (strength · (1 + approvals)))

where t are the days since it was said, or last approved, whichever is later. The exponential is the form in which MemoryBank gives
Ebbinghaus' curve to H-MEM: each repetition begins it anew, and makes it flatter. Counts and the latest of some times do not depend
on the order in which feedback comes, so neither do weights; and the time until which silence is counted is that of the latest
event, not a clock's, so that the same events give the same weights whenever they are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memory.model import Attributes
from memory.records import Verdict
from memory.structures.parameters import HMemParameters
from memory.tree.view import AT

APPROVALS = "approvals"
REBUTTALS = "rebuttals"
APPROVED_AT = "approved_at"
"""Names of a leaf's attributes: how often each verdict was given, and when the last approval was, in seconds since 1970."""
WEIGHT_MIN, WEIGHT_MAX = 0.01, 100.0
"""However often it is approved or rebutted, and however long nobody speaks of it."""
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Opinion:
    """One verdict on a leaf."""

    verdict: Verdict
    at: datetime
    """When it was given, with a zone."""


def heard(attributes: Attributes, opinions: Sequence[Opinion]) -> dict[str, str | float]:
    """
    The attributes that verdicts change, with their new values; the order of verdicts does not matter.

    Args:
        attributes: of the leaf, before.
        opinions: one at least.
    """
    approved = [each.at.timestamp() for each in opinions if each.verdict == "approval"]
    rebutted = len(opinions) - len(approved)
    changed: dict[str, str | float] = {}
    if approved:
        before = number(attributes, APPROVED_AT)
        changed[APPROVALS] = (number(attributes, APPROVALS) or 0.0) + len(approved)
        changed[APPROVED_AT] = max(approved) if before is None else max(before, *approved)
    if rebutted:
        changed[REBUTTALS] = (number(attributes, REBUTTALS) or 0.0) + rebutted
    return changed


def weight(attributes: Attributes, now: float, parameters: HMemParameters) -> float:
    """
    The weight of a leaf, between `WEIGHT_MIN` and `WEIGHT_MAX`; 1 for one that was said just now and that nobody spoke of.

    Args:
        attributes: of the leaf. Where they say no time, silence does not count.
        now: seconds since 1970 until which silence is counted; what was said later than that is as fresh as if said then.
        parameters: the tree's.
    """
    approvals = number(attributes, APPROVALS) or 0.0
    rebuttals = number(attributes, REBUTTALS) or 0.0
    exponent = approvals * math.log(parameters.approval) + rebuttals * math.log(parameters.rebuttal)
    times = [time for name in (AT, APPROVED_AT) if (time := number(attributes, name)) is not None]
    if times:
        exponent -= max(0.0, now - max(times)) / (_DAY * parameters.strength_days * (1.0 + approvals))
    return math.exp(min(max(exponent, math.log(WEIGHT_MIN)), math.log(WEIGHT_MAX)))


def number(attributes: Attributes, name: str) -> float | None:
    """An attribute that is a number; None where there is none of that name."""
    value = attributes.get(name)
    return None if value is None or isinstance(value, str) else float(value)
