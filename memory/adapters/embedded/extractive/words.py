"""
Words of a text and how much each says about its topic, without a corpus to count in.

Lexical on purpose: a summary is wanted in less time than one embedding takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Scripts written without spaces between words: Thai, Lao, Khmer, kana, Han."""

_WORD = re.compile(rf"https?://\S+|[{_UNSPACED}]+|\d+(?:[.,:/-]\d+)*(?:%|[a-z]{{1,3}}\b)?|[^\W\d_{_UNSPACED}](?:[\w'’-]*\w)?")
_UNSPACED_RUN = re.compile(rf"[{_UNSPACED}]{{2,}}")

_FUNCTION_WORDS = """
a about above across after again against ago all almost along already also although always am among an and another any anybody
anymore anyone anything anyway anywhere are aren't around as at away back be became because become been before behind being
below beside besides between beyond both but by can can't cannot could couldn't did didn't do does doesn't doing don't done down
during each either else enough especially etc even ever every everybody everyone everything everywhere except few for from
further gonna gotta had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers herself him himself his
how how's however i i'd i'll i'm i've if in indeed inside instead into is isn't it it'd it'll it's its itself just least less
let let's like likely lot lots many may maybe me might mine more most mostly much must my myself near nearly neither never no
nobody none nor not nothing now nowhere of off often on once one ones only onto or other others otherwise ought our ours
ourselves out outside over own per perhaps please quite rather really same shall she she'd she'll she's should shouldn't since
so some somebody somehow someone something sometimes somewhere soon still such than that that'd that'll that's the their theirs
them themselves then there there's these they they'd they'll they're they've thing things this those though through throughout
thus till to together too toward towards under until up upon us usually very via was wasn't we we'd we'll we're we've well were
weren't what what's whatever when where where's wherever whether which while who who'd who's whoever whole whom whose why will
with within without won't would wouldn't yes yet you you'd you'll you're you've your yours yourself yourselves oh ah aww aw haha
hahaha lol wow hey hi hello bye goodbye yeah yep yup nope okay ok hmm huh ooh yay woohoo woo yea yum whoa gosh omg thanks thank
congrats congratulations cheers sorry welcome sure absolutely definitely totally exactly actually basically literally honestly
seriously obviously certainly probably

der die das den dem des ein eine einen einem einer und oder aber nicht ist sind war waren mit von zu zum zur auf für im in ich
du er sie es wir ihr mich dich sich auch noch nur wie was wenn dass als an aus bei nach um über so da le la les un une de et ou
mais ne pas est sont était avec pour dans sur je tu il elle nous vous ils elles ce cette ces qui que se sa son ses mon ma mes au
aux en y plus très el los las una unos o pero no era fue con por para del al yo tú ella nosotros ellos su sus mi mis lo muy más
ya os uma e mas não foi com eu ele ela nós eles seu sua meu minha na nos nas ao dos pelo pela gli uno ed non è sono per di nel
nella io lui lei noi che si suo mio più het een van of maar niet zijn met voor op ik jij hij zij wij dat deze dit ook nog naar и
в не на я что он она с как это по но мы вы они у из за от же бы к так
""".split()  # noqa: SIM905  # a list of 600 quoted words would be unreadable
"""Words without a topic, of English first, then of German, French, Spanish, Portuguese, Italian, Dutch and Russian."""

_COMMON_WORDS = """
able add added age agree amazing answer appreciate area ask asked asking awesome bad based beautiful began begin beginning
believe best better big bit break bring bringing brings brought call called came care catch caught cause chance change changed
check chat clear clearly close come comes coming complete completely consider continue cool couple course crazy cute day days
deal decide decided deep different difficult easy effort end enjoy enjoyed enjoying entire excited exciting expect experience
explain fact fall fantastic far feel feeling feelings feels fell felt fill finally find finding fine first five follow forward
found four front full fun future gave general get gets getting give given gives giving glad go goes going gone good got gotten
grateful great group grow guess guy guys half hand handle happen happened happening happens happy hard hear heard hello help
helped helpful helping helps high hold hope hoping hour hours huge idea ideas imagine important incredible inspiring interested
interesting issue job join keep keeping keeps kept kind kinda knew know knowing known knows large last late lately later learn
learned least leave left lets level life line list listen little live lives living long look looked looking looks lost love
loved lovely loves loving low made main make makes making man matter mean meaningful means meant meet met mind minute minutes
miss moment moments month months morning move moved moving name need needed needs new next nice night note number off old open
opened order part parts past people perfect person pick picked picture place places plan planning plans point possible pretty
problem proud put puts quick question ready real realize realized reason recent recently relax remember reminded reminds result
right said saw say saying says second see seeing seem seemed seems seen sees send sense sent set share shared sharing short show
showed showing shown shows side simple single situation six small someday sort sound sounded sounds special spend spending spent
spot stand start started starting starts stay stayed step stop story strong struggle stuff super support sure take taken takes
taking talk talked talking tell telling ten tends thank thanks thing think thinking third thought thoughts three time times
today told tomorrow tonight took top total touch tough tried true truly try trying turn turned two type understand unique use
used useful using value visit wait waiting want wanted wants watch way ways week weekend weeks went wish wonder wonderful
wonderfully word words work worked working works world worry worth wow wrong year years yesterday young write writes wrote
written typed named seven eight nine cost costs opens eat ate according announced billion company including million percent
reported report reports statement tuesday monday wednesday thursday friday saturday sunday photo photos image shares yummy suits
suit kids
""".split()  # noqa: SIM905
"""English words that say little about a topic, however often they are used."""

_DATES = """
january february march april june july august september october november december
monday tuesday wednesday thursday friday saturday sunday tomorrow yesterday tonight
""".split()  # noqa: SIM905
"""Words that date a sentence ("may" is left out: it is a verb more often)."""

_SUFFIXES = (
    ("'s", ""),
    ("’s", ""),
    ("ies", "y"),
    ("sses", "ss"),
    ("ings", ""),
    ("ing", ""),
    ("edly", ""),
    ("ed", ""),
    ("ss", "ss"),
    ("us", "us"),
    ("es", ""),
    ("s", ""),
    ("ly", ""),
    ("e", ""),
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word in its place."""

    surface: str
    key: str
    """What counts as the same word: lower case, without its ending."""
    weight: float
    """How much it says about a topic: 0 for function words, 1 for an ordinary noun, more for names and numbers."""
    start: int
    end: int
    named: bool
    """Capitalised inside a sentence: likely a name."""
    fact: bool
    """A name, a number or a date: what a summary should not lose."""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """
    Key of a word: lower case, without a common English ending, as far as at least three letters stay.

    Cruder than Snowball and without its dictionary state, so that it can run in any thread; words of other languages lose little.
    """
    lowered = word.lower().replace("’", "'")
    for suffix, ending in _SUFFIXES:
        if lowered.endswith(suffix) and len(lowered) - len(suffix) >= 3:
            lowered = lowered[: len(lowered) - len(suffix)] + ending
            break
    if len(lowered) > 3 and lowered[-1] == lowered[-2] and lowered[-1] not in "aeiouls":
        lowered = lowered[:-1]  # planned, plan
    return lowered[:-1] + "i" if len(lowered) > 3 and lowered[-1] == "y" else lowered


_FUNCTION = frozenset(_FUNCTION_WORDS)
_COMMON = frozenset(_COMMON_WORDS)
_DATING = frozenset(_DATES)


@lru_cache(maxsize=65_536)
def _plain_weight(word: str) -> float:
    """Weight of a word that is neither name nor number; function words 0, common ones little."""
    lowered = word.lower().replace("’", "'")
    bare = lowered.split("'")[0]
    if lowered in _FUNCTION or bare in _FUNCTION:
        return 0.0
    if bare in _COMMON or bare in _DATING:
        return 0.2
    return 1.0 if len(lowered) > 3 else 0.7


def words(sentence: str) -> list[Word]:
    """Words of one sentence, in order. Runs of scripts without spaces become overlapping pairs of characters."""
    found = []
    shouting = sentence.isupper()
    for match in _WORD.finditer(sentence):
        surface = match.group()
        start, end = match.span()
        if surface.startswith("http"):
            found.append(Word(surface, surface[:64].lower(), 0.3, start, end, False, False))
        elif _UNSPACED_RUN.fullmatch(surface):
            pairs = range(min(len(surface), 400) - 1)
            found.extend(Word(surface[i : i + 2], surface[i : i + 2], 0.6, start + i, start + i + 2, False, False) for i in pairs)
        elif surface[0].isdigit():
            found.append(Word(surface, surface, 0.8, start, end, False, True))
        else:
            found.append(_letters(surface[:64], start, end, first=not found, shouting=shouting))
    return found


def _letters(surface: str, start: int, end: int, *, first: bool, shouting: bool) -> Word:
    weight = _plain_weight(surface)
    dated = surface.lower() in _DATING
    named = not first and not shouting and surface[0].isupper() and weight > 0 and not dated
    if named:
        weight = 1.3 if weight >= 0.7 else 0.7
    return Word(surface, stem(surface), weight, start, end, named, named or dated or any(c.isdigit() for c in surface))
