from __future__ import annotations

from memory.adapters.embedded.extractive.ranking import addressed, centroid, choose, score
from memory.adapters.embedded.extractive.sentences import Sentence


def sentences(*texts: str, who: str = "Ana") -> list[Sentence]:
    return [Sentence(text=text, who=who, when="", leaves=1.0, source=index, position=index) for index, text in enumerate(texts)]


def chosen(*texts: str, characters: int) -> list[str]:
    scored = score(sentences(*texts), speakers=frozenset())
    return [sentence.text for sentence in choose(scored, centroid(scored, []), characters=characters)]


def test_the_second_sentence_is_unlike_the_first() -> None:
    texts = ("The harbour tunnel needs pumps.", "The harbour tunnel needs cables.", "Goats guard the harbour.")
    assert set(chosen(*texts, characters=76)) == {texts[0], texts[2]}


def test_the_budget_is_kept_and_smaller_sentences_fill_it() -> None:
    long, short = "The harbour tunnel gets new pumps and cables from Dravik every single year.", "Goats guard gates in Porto."
    found = chosen("The harbour tunnel is closed by Dravik.", long, short, characters=80)
    assert short in found
    assert sum(len(text) + len("Ana: ") + 1 for text in found) <= 80


def test_the_first_is_taken_even_when_it_does_not_fit() -> None:
    assert chosen("The harbour tunnel needs pumps.", characters=5) == ["The harbour tunnel needs pumps."]


def test_names_of_those_who_talk_weigh_little() -> None:
    found = sentences(
        "Hey Mel! Ana and Mel like Porto.", "Sounds great, Mel!", "We moved from Utrecht to a small house in Porto, Portugal."
    )
    speakers = addressed(found)
    weights = score(found, speakers=speakers)[0].weights
    assert weights["mel"] == weights["ana"] < weights["porto"]
    assert "portugal" not in speakers
