"""Data sets as they come: with gaps, repeated ids, and evidence that is nowhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.records import Document, Turn
from streams.evaluation.dataset import DatasetError
from streams.evaluation.formats import FILES, load


def write(folder: Path, name: str, rows: Sequence[object]) -> None:
    (folder / name).write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")


def locomo(folder: Path, turns: Sequence[object], questions: Sequence[object], **session: object) -> None:
    write(folder, "conversations.jsonl", [{"sample_id": "c 1", "sessions": [{"session": 1, "turns": turns, **session}]}])
    write(folder, "qa.jsonl", questions)


def question(evidence: object = ("D1:1",), **fields: object) -> dict[str, object]:
    return {"qid": "q", "sample_id": "c 1", "question": "Who?", "evidence": evidence, "category_name": "single_hop", **fields}


def test_a_caption_is_part_of_what_was_said(tmp_path: Path) -> None:
    turns = [
        {"dia_id": "D1:1", "speaker": "Ana", "text": "Look!", "blip_caption": "a red boat"},
        {"dia_id": "D1:2", "speaker": "Ben", "text": "Nice."},
        {"dia_id": "D1:3", "speaker": "Ana", "text": "", "blip_caption": "a harbour"},
    ]
    locomo(tmp_path, turns, [question()], date_iso="2025-03-01T10:00:00")
    dataset = load("locomo", tmp_path)
    assert [record.text for record in dataset.records] == ["Look!\n[a red boat]", "Nice.", "[a harbour]"]
    first = dataset.records[0]
    assert isinstance(first, Turn)
    assert (first.speaker, first.conversation, first.at) == ("Ana", "1", datetime(2025, 3, 1, 10, tzinfo=UTC))


def test_a_session_is_the_number_before_the_colon(tmp_path: Path) -> None:
    locomo(tmp_path, [{"dia_id": "D12:3", "text": "hello"}], [question(["D12:3", "D7:1"])])
    dataset = load("locomo", tmp_path)
    assert dataset.places["locomo-c-1", "D12:3"].session == "12"
    assert dataset.cases[0].sessions == {"12", "7"}


def test_evidence_that_is_no_turn_stays_and_repeated_evidence_counts_once(tmp_path: Path) -> None:
    locomo(tmp_path, [{"dia_id": "D1:1", "text": "hello"}], [question(["D1:1", "D1:1", "D9:99"])])
    assert load("locomo", tmp_path).cases[0].turns == {"D1:1", "D9:99"}


def test_questions_without_evidence_are_left_out_and_counted(tmp_path: Path) -> None:
    locomo(tmp_path, [{"dia_id": "D1:1", "text": "hello"}], [question(), question([]), question(None)])
    dataset = load("locomo", tmp_path)
    assert (len(dataset.cases), dataset.left_out) == (1, 2)


def test_optional_fields_may_be_missing_or_of_another_type(tmp_path: Path) -> None:
    turns = [{"dia_id": "D1:1", "text": "hello", "speaker": None, "blip_caption": None}]
    bare = {"sample_id": "c 1", "question": "When?", "evidence": "D1:1", "answer": 2022}
    locomo(tmp_path, turns, [bare, question(answer=None)], date_time="1:56 pm on 8 May, 2023")
    dataset = load("locomo", tmp_path)
    assert [case.answer for case in dataset.cases] == ["2022", None]
    assert dataset.cases[0].category == "all"
    assert isinstance(dataset.records[0], Turn)
    assert dataset.records[0].at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def test_a_repeated_or_empty_turn_is_counted_and_left_out(tmp_path: Path) -> None:
    turns = [{"dia_id": "D1:1", "text": "one"}, {"dia_id": "D1:1", "text": "two"}, {"dia_id": "D1:2", "text": " "}]
    locomo(tmp_path, turns, [question()])
    dataset = load("locomo", tmp_path)
    assert ([record.text for record in dataset.records], dataset.skipped) == (["one"], 2)


def test_a_question_about_a_conversation_that_is_not_there_is_kept(tmp_path: Path) -> None:
    locomo(tmp_path, [{"dia_id": "D1:1", "text": "one"}], [question(sample_id="another")])
    assert load("locomo", tmp_path).marked().cases[0].tree == ""


def test_facts_are_joined_by_their_text(tmp_path: Path) -> None:
    facts = [
        {"fact_id": "f0", "fact": "The mill  burnt down.", "title": "Fire", "url": "u1", "author": "Ana", "published_at": "?"},
        {"fact_id": "f1", "fact": "Nobody was hurt.", "title": "Fire", "url": "u1"},
        {"fact_id": "f2", "fact": "The mill burnt down.", "title": "Again", "url": "u2"},
    ]
    asked = [
        {"qid": 1, "query": "What?", "question_type": "x", "evidence_list": [{"fact": "The mill burnt down. "}, {"fact": "Gone."}]},
        {"qid": 2, "query": "None?", "question_type": "null_query", "evidence_list": []},
    ]
    write(tmp_path, "facts.jsonl", facts)
    write(tmp_path, "queries.jsonl", asked)
    dataset = load("multihoprag", tmp_path)
    tree = dataset.trees[0]
    assert (len(dataset.cases), dataset.left_out) == (1, 1)
    assert "f0" in dataset.cases[0].turns
    assert len(dataset.cases[0].turns) == 2
    # The same fact twice: finding either is finding it.
    assert dataset.places[tree, "f2"].turn == "f0"
    assert dataset.places[tree, "f1"].session == dataset.places[tree, "f0"].session == "u1"
    first = dataset.records[0]
    assert isinstance(first, Document)
    assert (first.title, first.published_at, first.metadata) == ("Fire", None, {"author": "Ana"})


def test_passages_without_text_are_their_title(tmp_path: Path) -> None:
    write(tmp_path, "corpus.jsonl", [{"doc_id": 1, "title": "Porto", "text": ""}, {"doc_id": 2}, {"doc_id": 3, "text": "x"}])
    write(tmp_path, "queries.jsonl", ["", {"query": "Where?", "relevant": [1]}])
    dataset = load("passages", tmp_path)
    assert [(record.id, record.text) for record in dataset.records] == [("1", "Porto"), ("3", "x")]
    assert dataset.skipped == 1
    assert dataset.cases[0].turns == dataset.cases[0].sessions == {"1"}


def test_tree_names_change_with_the_data_and_the_conditions(tmp_path: Path) -> None:
    write(tmp_path, "queries.jsonl", [{"query": "Where?", "relevant": ["1"]}])
    names = set()
    for text, conditions in (("one", "a"), ("two", "a"), ("two", "b"), ("two", "b")):
        write(tmp_path, "corpus.jsonl", [{"doc_id": "1", "text": text}])
        marked = load("passages", tmp_path).marked(conditions)
        assert marked.cases[0].tree == marked.records[0].tree == marked.trees[0]
        assert (marked.trees[0], "1") in marked.places
        names.add(marked.trees[0])
    assert len(names) == 3


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    items, _ = FILES[name]
    write(tmp_path, items, [])
    with pytest.raises(DatasetError, match=FILES[name][1]):
        load(name, tmp_path)
    with pytest.raises(DatasetError, match="no folder"):
        load(name, tmp_path / "nowhere")


def test_a_folder_of_another_format_is_recognised(tmp_path: Path) -> None:
    for file in FILES["passages"]:
        write(tmp_path, file, [])
    with pytest.raises(DatasetError, match="it looks like passages"):
        load("locomo", tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", r"corpus\.jsonl:1: record: is not JSON"),
        ("[]", r"corpus\.jsonl:1: record: expected a JSON object"),
        ('{"text": "x"}', r"corpus\.jsonl:1: doc_id: is missing"),
        ('{"doc_id": "1", "text": "a\\u0000b"}', r"corpus\.jsonl:1: text: "),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    write(tmp_path, "corpus.jsonl", [line])
    write(tmp_path, "queries.jsonl", [{"query": "Where?", "relevant": ["1"]}])
    with pytest.raises(DatasetError, match=reason):
        load("passages", tmp_path)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "corpus.jsonl", [{"doc_id": "1", "text": "x"}])
    write(tmp_path, "queries.jsonl", [{"query": "Where?", "relevant": []}])
    with pytest.raises(DatasetError, match="no question with evidence"):
        load("passages", tmp_path)


def test_a_passage_of_quality_is_evidence_by_the_words_of_the_right_option(tmp_path: Path) -> None:
    paragraphs = [f"{word} " * 100 + "and the village." for word in ("Harbour", "Violin", "Garden")]
    write(tmp_path, "articles.jsonl", [{"doc_id": "a", "text": "\n\n".join(paragraphs)}])
    asked = {"doc_id": "a", "question": "What?", "options": {"A": "a boat in the harbour", "B": "the village violin"}}
    rows = [{**asked, "answer_label": "B"}, {**asked, "answer_label": "C"}, {**asked, "doc_id": "other", "answer_label": "A"}]
    write(tmp_path, "questions.jsonl", rows)
    dataset = load("quality", tmp_path)
    assert (len(dataset.cases), dataset.left_out) == (1, 2)
    [case] = dataset.cases
    assert [record.id for record in dataset.records if "Violin" in record.text] == sorted(case.turns)
    assert case.sessions == {"a"}
    assert case.answer == "the village violin"


def test_any_passage_with_the_answer_word_for_word_answers_a_question_on_a_page(tmp_path: Path) -> None:
    rest = "Nothing of note is said here . " * 25
    table = f'<Tr> <Th_colspan="2"> 13 </Th> {rest} </Tr>'
    page = f"<H1> Ships </H1> <P> There are 113 ships . {rest} </P> <P> {rest} 13 crews </P> {table}"
    write(tmp_path, "docs.jsonl", [{"doc_id": "d", "text": page}])
    asked = {"doc_id": "d", "query": "how many?", "answer_in_doc": True}
    rows = [
        {**asked, "answer": "13"},
        {**asked, "answer": "14"},
        {**asked, "answer": "none", "answer_in_doc": False},
        {**asked, "answer": "NOTE  is   said"},
    ]
    write(tmp_path, "queries.jsonl", rows)
    dataset = load("nq", tmp_path)
    assert (len(dataset.cases), dataset.left_out) == (3, 1)
    texts = {record.id: record.text for record in dataset.records}
    assert not any("<" in text for text in texts.values())
    first, second, _ = dataset.cases
    assert first.one_suffices
    assert first.turns == {key for key, text in texts.items() if " 13 " in f" {text} ".replace("\n", " ")}
    assert len(first.turns) == 2
    assert not second.turns & set(texts)
