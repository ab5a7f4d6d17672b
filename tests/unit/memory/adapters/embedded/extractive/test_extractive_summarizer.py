from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from memory.adapters.embedded.extractive.headline import HEADLINE_CHARACTERS_MAX, PHRASES_MAX
from memory.adapters.embedded.extractive.summarizer import INPUT_CHARACTERS_MAX, _read, budget, summarize
from memory.ports.summarizer import SummaryRequest
from memory.tree.provisional import PHRASES

CELLO = [
    "Ana (2025-09-14): Hey Ben! Good to see you! I signed up for cello lessons with Graciela on the Biltstraat.",
    "Ben (2025-09-14): Wow, that's great! How are you?",
    "Ana (2025-10-02): My second cello lesson was on 2 October, and I can play a D major scale now.",
    "Ben (2025-10-02): Haha, awesome. Thanks for telling me!",
    "Ana (2025-12-20): Graciela says I may play at the Christmas concert in Utrecht, 40 people are coming.",
]


def once(new: Sequence[str], *, existing: str = "", covered: int = 0, descendants: int | None = None) -> str:
    leaves = covered + len(new) if descendants is None else descendants
    return summarize(SummaryRequest(existing=existing, new=tuple(new), descendants=leaves, covered=covered))


def streamed(texts: Sequence[str], *, batch: int = 1) -> str:
    text = ""
    for start in range(0, len(texts), batch):
        text = once(texts[start : start + batch], existing=text, covered=start)
    return text


def body(summary: str) -> str:
    first, _, rest = summary.partition("\n")
    return rest if PHRASES in first else summary


def test_content_is_kept_and_small_talk_is_not() -> None:
    summary = once(CELLO)
    for fact in ("Graciela", "Biltstraat", "D major", "2 October", "Christmas concert", "40 people"):
        assert fact in summary
    for chatter in ("Good to see you", "How are you", "Haha", "Thanks"):
        assert chatter not in summary


def test_the_first_line_tells_the_topic() -> None:
    phrases = once(CELLO).split("\n")[0].split(PHRASES)
    assert any("cello" in phrase for phrase in phrases[:2])
    assert "Graciela" in phrases
    assert 2 <= len(phrases) <= PHRASES_MAX
    assert not {"Ana", "Ben"} & set(phrases)
    assert len(PHRASES.join(phrases)) <= HEADLINE_CHARACTERS_MAX + 3


def test_it_says_who_said_it_and_when_in_time_order() -> None:
    lines = body(once(CELLO)).split("\n")
    days = [line[line.index("(") + 1 : line.index(")")] for line in lines]
    assert all(line.startswith("Ana (") for line in lines)
    assert days == sorted(days)
    assert len(set(days)) == len(days)


def test_an_older_text_that_comes_late_is_put_in_its_place() -> None:
    existing = once(CELLO[2:])
    lines = body(once(CELLO[:1], existing=existing, covered=3)).split("\n")
    assert "2025-09-14" in lines[0]


def test_nothing_is_said_twice() -> None:
    repeated = body(once([*CELLO, *CELLO, CELLO[0].replace("signed up", "have signed up")]))
    assert repeated.count("Biltstraat") == repeated.count("Utrecht") == 1
    same = "The boiler was repaired by Marta in March."
    assert once([f"Ana: {same}", f"Ben: {same}", f"Ana: {same} {same}"]).count("Marta in March") == 1
    again = body(once(CELLO, existing=once(CELLO), covered=5))
    assert again.count("Biltstraat") == again.count("Christmas concert") == 1


def test_a_summary_of_itself_is_stable() -> None:
    summary = once(CELLO)
    assert body(once(["Ben: Ok."], existing=summary, covered=5, descendants=6)) == body(summary)


def test_the_budget_shrinks_as_descendants_grow() -> None:
    tokens = [budget(count) for count in (1, 2, 8, 64, 512, 1_000, 10**6)]
    assert tokens == sorted(tokens, reverse=True)
    assert (tokens[1], tokens[-1]) == (120, 60)
    texts = [f"Ana: The {noun} in room {k} was repaired by Marta in {2000 + k}." for k, noun in enumerate(NOUNS)]
    few, many = (once(texts, descendants=count) for count in (len(texts), 1_000))
    assert len(many) < len(few) <= 4 * 120 + 40
    assert len(many) <= 4 * 60 + 40


NOUNS = ("boiler", "window", "carpet", "elevator", "antenna", "chimney", "balcony", "cellar", "staircase", "skylight")


TUNNEL = [f"Ana: The harbour tunnel needs a new {noun} from Dravik, says engineer Moe." for noun in NOUNS]
ELECTION = [f"Ben: The election in Tesselmark gave the {noun} party of Saarela {k} seats." for k, noun in enumerate(NOUNS)]


def test_unlike_sentences_are_preferred_to_like_ones() -> None:
    summary = body(once([*TUNNEL, "Mei: Goats and a greyhound live behind the harbour tunnel."], descendants=1_000))
    assert "Goats" in summary


def test_the_latest_texts_do_not_wash_out_an_old_topic() -> None:
    chatter = [
        "Ben: My lasagne with spinach was burnt.",
        "Mei: Kirsten wants a greyhound.",
        "Ben: The stamps were stolen in Porto.",
    ]
    summary = streamed([*TUNNEL * 3, *chatter])
    phrases = summary.split("\n")[0].split(PHRASES)
    assert any("tunnel" in phrase or "Dravik" in phrase for phrase in phrases[:2])
    assert "tunnel" in body(summary)


def test_an_old_summary_is_not_frozen() -> None:
    summary = streamed([*TUNNEL, *ELECTION * 3])
    assert "Tesselmark" in body(summary)
    assert "Tesselmark" in summary.split("\n")[0]


def test_who_is_spoken_to_is_no_topic() -> None:
    texts = [
        "Ana: Hey Mel! The cello is here.",
        "Ana: Sounds great, Mel!",
        "Ana: Thanks Mel! I play the cello at nine.",
        "Mel: Cello!",
    ]
    assert "Mel" not in once(texts).split("\n")[0]


def test_summaries_of_children_can_be_folded() -> None:
    children = [once(CELLO), once([f"Ben: The kitchen got {noun} number {k} from Holm." for k, noun in enumerate(NOUNS)])]
    summary = once(children, descendants=15)
    phrases = summary.split("\n")[0].split(PHRASES)
    assert all(PHRASES not in line for line in summary.split("\n")[1:])
    assert {"Graciela", "Holm"} <= set(phrases)
    assert "Ana (2025" in summary
    assert "Ben: " in summary


def test_a_title_is_a_topic_and_not_a_speaker() -> None:
    summary = once(["Council approves tunnel: what now (2025-10-02): It will cost 1.84 billion crowns and open in 2030."])
    assert summary.endswith("(2025-10-02): Council approves tunnel: what now. It will cost 1.84 billion crowns and open in 2030.")
    assert "tunnel" in summary.split("\n")[0]


def test_a_text_by_another_summarizer_is_taken_over() -> None:
    existing = "Ana learns the cello with Graciela. She will play in Utrecht at Christmas."
    summary = once(["Ana: The concert in Utrecht was a success."], existing=existing, covered=12)
    assert "Graciela" in summary


def test_one_giant_sentence_is_cut_at_a_word() -> None:
    summary = once(["the boiler and the window and the carpet " * 1_000])
    assert summary.endswith("…")
    assert summary.rstrip("…").split()[-1] in {"the", "boiler", "and", "window", "carpet"}


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "...",
        " ",
        "\n\t\n",
        "Hi!",
        "the of and",
        "😀🎉🔥",
        "NUL \x00 inside",
        "a lone surrogate \ud83d here",
        "مرحبا بالعالم",
        "我昨天在北京的书店买了三本书。",
        "https://a.example/" + "x" * 3_000,
        "for (i = 0; i < n; i++) { a[i] = b[i]; }",
        "Ana: ",
        "Ana (2025-01-01): ",
        " · \n · ",
        "a · b\n",
        "A. " * 1_000,
    ],
)
def test_any_text_gives_a_text(text: str) -> None:
    for existing in ("", text):
        assert once([text], existing=existing, covered=1).strip()
        assert once([text, text, "Ana: The cello is here."], existing=existing, covered=1).strip()


def test_no_more_is_read_than_fits_the_input() -> None:
    text = "Ana carried the boat home. " * 40_000
    sentences, _ = _read(SummaryRequest(existing=text, new=(text,) * 9, descendants=40, covered=31))
    assert sum(len(sentence.text) for sentence in sentences) <= INPUT_CHARACTERS_MAX


@pytest.mark.parametrize(
    "unit", ["word ", "x", ". ", "Hello there Bob. ", "\n ", "会议", "(((", "A. ", " ", "- ", "x'", "1.", "a, "]
)
def test_a_megabyte_gives_a_short_text(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert len(once([text, text], existing=text, covered=30)) <= 600


def test_the_same_request_gives_the_same_text_in_every_process() -> None:
    code = (
        "import json, sys; from memory.adapters.embedded.extractive.summarizer import summarize;"
        "from memory.ports.summarizer import SummaryRequest;"
        "print(json.dumps(summarize(SummaryRequest(existing='', new=tuple(json.load(sys.stdin)), descendants=5, covered=0))))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(CELLO),
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert answers == {json.dumps(once(CELLO))}
