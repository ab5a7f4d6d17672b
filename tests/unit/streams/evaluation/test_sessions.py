"""Multi-Session Chat: what is put in, what is compared, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory.local import open_local
from streams.evaluation.dataset import DatasetError
from streams.evaluation.sessions import FILE, METRICS, load, outcome, score, statements_of, summary_of
from tests.fakes.embedder import FakeEmbedder

ROW = {
    "id": "dialogue/1",
    "personas": [["I own a boat.", "I sing."], ["I bake bread."]],
    "init_personas": [[], []],
    "sessions": [
        {"time_num": 1, "time_unit": "days", "turns": ["I own a boat.", "Nice! I bake bread every day."]},
        {"turns": ["I sing in a choir.", " ", "Do you sing loud?"]},
        {"turns": ["this is what would be answered"]},
    ],
}


def written(folder: Path, *rows: object) -> Path:
    (folder / FILE).write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return folder


def test_a_conversation_goes_up_to_the_session_before_the_last(tmp_path: Path) -> None:
    [conversation] = load(written(tmp_path, ROW, ""))
    assert conversation.tree == "msc-1-dialogue-1"
    assert [(record.id, record.speaker, record.conversation) for record in conversation.records] == [
        ("s1-t1", "Speaker 1", "s1"),
        ("s1-t2", "Speaker 2", "s1"),
        ("s2-t1", "Speaker 1", "s2"),
        ("s2-t3", "Speaker 1", "s2"),
    ]
    assert (conversation.session, conversation.gold) == (2, "I own a boat. I sing. I bake bread.")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no conversation"),
        (["{"], ":1:"),
        ([ROW, {"personas": 3}], ":2:"),
        ([{**ROW, "sessions": ROW["sessions"][:1]}], "two sessions"),
        ([{**ROW, "personas": [[], []]}], "personas"),
    ],
)
def test_what_cannot_be_used_is_told_by_its_line(tmp_path: Path, rows: list[object], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load(written(tmp_path, *rows))


def test_a_folder_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=FILE):
        load(tmp_path)


async def test_the_summary_of_a_tree_is_what_its_root_says_without_names(tmp_path: Path) -> None:
    [conversation] = load(written(tmp_path, ROW))
    async with await open_local(embedder=FakeEmbedder(), structure="hat", parameters={"memory_length": 2.0}) as memory:
        await memory.ingest(conversation.records)
        assert await memory.fresh()
        said = await summary_of(memory, conversation.tree)
        stated = await statements_of(memory, conversation.tree)
    assert "Speaker" not in said
    assert "bread" in said
    assert sorted(stated.splitlines()) == ["I bake bread every day.", "I sing in a choir."], "the boat is too short to count"


def test_the_outcome_has_every_metric_as_a_mean() -> None:
    perfect, nothing = score("I bake bread.", "I bake bread."), score("", "I bake bread.")
    result = outcome([perfect, nothing], [perfect, perfect], session=2, structure="hat", summarizer="extractive", calls=0)
    assert [result[name] for name in METRICS] == [50.0, 50.0, 50.0, 0.5, 0.5]
    assert (result["conversations"], result["words"], result["gold_words"]) == (2, 1.5, 3.0)
    assert (result["profiles"]["f1"], result["profiles"]["words"]) == (100.0, 3.0)
