"""`banyan eval` on small data of every format."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.commands import Banyan
from tests.fakes.openai_server import FakeOpenAIServer

TOPICS = (
    "harbour",
    "violin",
    "garden",
    "tunnel",
    "bakery",
    "glacier",
    "printer",
    "bicycle",
    "lantern",
    "orchard",
    "falcon",
    "quarry",
)


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as running:
        yield running


def write(folder: Path, name: str, rows: Sequence[object]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def passages(banyan: Banyan) -> str:
    """Twelve passages; each question is about two of them."""
    folder = banyan.folder / "passages"
    texts = [{"doc_id": f"d{n}", "title": f"The {t}", "text": f"Everything about the {t} in town."} for n, t in enumerate(TOPICS)]
    write(folder, "corpus.jsonl", texts)
    asked = [{"qid": n, "query": f"What of the {TOPICS[n]}?", "relevant": [f"d{n}"], "answer": f"town {n}"} for n in range(4)]
    write(folder, "queries.jsonl", asked)
    return "passages"


@pytest.fixture
def locomo(banyan: Banyan) -> str:
    """Two conversations of two sessions; one question finds its turn, one asks for a turn that is not there."""
    folder = banyan.folder / "locomo"
    conversations = []
    for sample in ("a", "b"):
        sessions = [
            {
                "session": session,
                "date_iso": f"2025-0{session}-02T10:00:00",
                "turns": [
                    {"dia_id": f"D{session}:{n}", "speaker": "Ana", "text": f"{sample} says {topic} twice: {topic}."}
                    for n, topic in enumerate(TOPICS[6 * session - 6 : 6 * session], 1)
                ],
            }
            for session in (1, 2)
        ]
        conversations.append({"sample_id": sample, "sessions": sessions})
    asked = [
        {"sample_id": "a", "question": "falcon?", "evidence": ["D2:5"], "category_name": "single_hop", "answer": 7},
        {"sample_id": "b", "question": "violin?", "evidence": ["D1:2", "D9:9"], "category_name": "multi_hop"},
        {"sample_id": "b", "question": "nothing?", "evidence": [], "category_name": "adversarial"},
    ]
    write(folder, "conversations.jsonl", conversations)
    write(folder, "qa.jsonl", asked)
    return "locomo"


def test_passages_are_measured_with_every_strategy(banyan: Banyan, passages: str) -> None:
    ran = banyan("eval", "passages", passages, "--json")
    assert ran.code == 0
    value = ran.value
    assert (value["format"], value["questions"]) == ("passages", 4)
    assert list(value["strategies"]) == ["hybrid", "collapsed", "traversal", "dense", "bm25", "dense+bm25"]
    for name in ("hybrid", "bm25"):
        for level in ("turn", "session"):
            assert value["strategies"][name][level] == {"recall@3": 1, "recall@5": 1, "recall@10": 1, "ndcg@10": 1}
    tree = value["tree"]
    assert (tree["leaves"], tree["nodes"]) == (12, 12 + tree["summaries"])
    assert sum(tree["nodes_by_depth"].values()) == tree["nodes"]
    assert tree["contributions_per_item"] >= 0
    assert 0 < value["latency_ms"]["p50"] <= value["latency_ms"]["p99"]
    assert value["latency_ms"]["p50_without_embedding"] <= value["latency_ms"]["p50"]
    assert value["ingestion"]["items"] == 12


def test_conversations_are_measured_by_turn_session_and_category(banyan: Banyan, locomo: str) -> None:
    value = banyan("eval", "locomo", locomo, "--strategy", "hybrid", "--strategy", "bm25", "--json").value
    assert (value["questions"], value["questions_left_out"], value["tree"]["trees"]) == (2, 1, 2)
    assert list(value["strategies"]) == ["hybrid", "bm25"]
    for measured in value["strategies"].values():
        # Half of the second question's evidence is in no turn, and one of its two sessions is none.
        assert measured["turn"]["recall@10"] == measured["session"]["recall@10"] == pytest.approx(0.75)
        assert measured["by_category"]["single_hop"]["turn"]["recall@3"] == 1
        assert measured["by_category"]["multi_hop"]["turn"]["recall@3"] == 0.5


def test_a_pair_that_does_not_work_is_refused_before_anything_is_done(banyan: Banyan, passages: str) -> None:
    ran = banyan("eval", "passages", passages, "--structure", "hat", "--strategy", "hybrid", "--strategy", "router", "--json")
    assert ran.code == 2
    assert "'router' does not work on a hat tree" in ran.err
    assert "memgas" in ran.err
    assert "agent" in ran.err


def test_the_table_of_all_structures_goes_on_where_it_was_stopped(banyan: Banyan, passages: str, locomo: str) -> None:
    command = ("eval", "all", ".", "--structure", "memtree", "--structure", "hat", "--results", "kept.json", "--json")
    first = banyan(*command, "--strategy", "bm25", "--strategy", "agent").value["sets"]
    assert {name: list(each) for name, each in first.items()} == {passages: ["memtree", "hat"], locomo: ["memtree", "hat"]}
    assert [list(each["strategies"]) for each in first[passages].values()] == [["bm25"], ["agent", "bm25"]]
    cost = first[passages]["hat"]["ingestion"]
    assert cost["summaries_asked_per_item"] > 0
    assert cost["summary_tokens_in_per_item"] > cost["summary_tokens_out_per_item"] > 0
    assert cost["cpu_ms_per_item"] > 0
    assert first[passages]["hat"]["size"]["store_bytes_per_item"] > 0

    again = banyan(*command, "--strategy", "all")
    both = again.value["sets"][passages]["hat"]
    assert {"hybrid", "agent", "dense+bm25"} <= set(both["strategies"])
    assert both["strategies"]["agent"] == first[passages]["hat"]["strategies"]["agent"]
    assert both["latency_ms"]["strategies"]["agent"] == first[passages]["hat"]["latency_ms"]["strategies"]["agent"]
    assert both["ingestion"] == cost, "of the run that put everything in"

    third = banyan(*command, "--strategy", "all")
    assert third.value == again.value, "times too: nothing was measured again"


def test_the_table_is_shown(banyan: Banyan, passages: str) -> None:
    ran = banyan("eval", "passages", passages, "--structure", "all", "--strategy", "bm25")
    assert ran.code == 0
    assert [structure for structure in ("memtree", "hat", "hmem", "memgas") if structure in ran.out] == [
        "memtree",
        "hat",
        "hmem",
        "memgas",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("passages", "--structure", "tall"), "'tall' is not known"),
        (("passages", "--structure", "hat", "--structure", "memtree", "--strategy", "router"), "reads memgas"),
        (("passages", "--structure", "all", "--judge", "m"), "--judge"),
        (("passages", "--results", "other.json"), "no results"),
    ],
)
def test_a_table_that_cannot_be_made_is_refused(banyan: Banyan, passages: str, arguments: tuple[str, ...], said: str) -> None:
    (banyan.folder / "other.json").write_text("{}")
    ran = banyan("eval", arguments[0], passages, *arguments[1:])
    assert ran.code == 2
    assert said in ran.err


def test_facts_are_measured_and_null_queries_left_out(banyan: Banyan) -> None:
    facts = [
        {"fact_id": f"f{n}", "fact": f"The {topic} is old.", "title": topic, "url": f"u{n // 2}"} for n, topic in enumerate(TOPICS)
    ]
    write(banyan.folder / "facts", "facts.jsonl", facts)
    asked = [
        {"query": "the violin, the falcon?", "question_type": "x", "evidence_list": [facts[1], facts[10]]},
        {"query": "anything?", "question_type": "null_query", "evidence_list": []},
    ]
    write(banyan.folder / "facts", "queries.jsonl", asked)
    value = banyan("eval", "multihoprag", "facts", "--strategy", "bm25", "--json").value
    assert (value["questions"], value["questions_left_out"]) == (1, 1)
    assert value["strategies"]["bm25"]["turn"]["recall@3"] == value["strategies"]["bm25"]["session"]["recall@3"] == 1


def test_people_get_tables(banyan: Banyan, locomo: str) -> None:
    ran = banyan("eval", "locomo", locomo)
    assert ran.code == 0
    for expected in ("2 questions", "hybrid", "traversal", "NDCG@10", "single_hop", "branching", "committed and searchable"):
        assert expected in ran.out


def test_a_kept_memory_is_used_again(banyan: Banyan, passages: str) -> None:
    command = ("eval", "passages", passages, "--strategy", "hybrid", "--data", "kept", "--json")
    first, second = banyan(*command).value, banyan(*command).value
    assert (first["ingestion"]["items"], first["ingestion"]["there_already"]) == (12, 0)
    assert (second["ingestion"]["items"], second["ingestion"]["there_already"]) == (0, 12)
    assert second["strategies"] == first["strategies"]
    assert second["ingestion"]["items_per_s_fresh"] is None


def test_nothing_is_left_behind(banyan: Banyan, passages: str) -> None:
    banyan("eval", "passages", passages, "--strategy", "hybrid")
    assert [each.name for each in banyan.folder.iterdir()] == ["passages"]


def test_a_wrong_folder_is_named_with_what_it_lacks(banyan: Banyan, passages: str) -> None:
    ran = banyan("eval", "locomo", passages)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "conversations.jsonl" in ran.err
    assert "looks like passages" in ran.err
    assert banyan("eval", "passages", "nowhere").code == 2
    assert banyan("eval", "trivia", passages).code == 2


def test_answers_are_judged_and_kept(
    banyan: Banyan, passages: str, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    judging = ("--judge", "m", "--yes", "--answers", "kept", "--concurrency", "1")
    command = ("eval", "passages", passages, "--strategy", "hybrid", *judging, "--json")
    for verdict in "1101":
        server.fail_next("content", message="an answer")
        server.fail_next("content", message=verdict)
    ran = banyan(*command)
    assert ran.code == 0
    assert "at most 8 calls" in ran.err
    judged = ran.value["judged"]
    assert judged["strategies"]["hybrid"]["accuracy"] == 0.75
    assert judged["strategies"]["hybrid"]["likeness"].keys() >= {"f1", "bleu_4", "rouge_l", "distinct_2"}
    assert (judged["calls"], judged["known"], judged["incomplete"]) == (8, 0, None)
    again = banyan(*command).value["judged"]
    assert (again["calls"], again["known"], len(server.requests)) == (0, 8, 8)
    assert again["strategies"] == judged["strategies"]


def test_measures_that_make_no_context_are_not_judged(
    banyan: Banyan, passages: str, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    ran = banyan("eval", "passages", passages, "--strategy", "dense", "--judge", "m", "--yes", "--json")
    assert ran.code == 0
    assert "judged" not in ran.value
    assert "nothing to judge" in ran.err
    assert server.requests == []


def test_nobody_is_charged_without_agreeing(
    banyan: Banyan, passages: str, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    ran = banyan("eval", "passages", passages, "--strategy", "hybrid", "--judge", "m", "--answers", "kept", "--json")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert server.requests == []


def test_a_judge_that_is_away_leaves_the_figures_and_says_so(
    banyan: Banyan, passages: str, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    server.fail_next("status", times=100, status=401, message="bad key")
    ran = banyan("eval", "passages", passages, "--strategy", "hybrid", "--judge", "m", "--yes", "--answers", "kept", "--json")
    assert ran.code == 4
    assert ran.value["strategies"]["hybrid"]["turn"]["recall@10"] == 1
    assert "401" in ran.value["judged"]["incomplete"]


@pytest.mark.slow
def test_an_interrupted_run_ends_cleanly(banyan: Banyan, passages: str) -> None:
    many = [{"doc_id": f"d{n}", "text": f"{TOPICS[n % 12]} {n} of {TOPICS[n % 7]}"} for n in range(20_000)]
    write(banyan.folder / passages, "corpus.jsonl", many)
    process = banyan.start("eval", "passages", passages, "--data", "kept")
    assert process.stderr is not None
    assert b"20,000 items" in process.stderr.readline()
    for line in process.stderr:
        if line.startswith(b"ingesting"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert out == b""
