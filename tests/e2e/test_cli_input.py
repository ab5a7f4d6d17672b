"""Whatever a file holds: good lines go in, each bad one is one line on standard error, and there is never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import sqlite3
import subprocess
import time

import pytest

from tests.e2e.commands import Banyan, turn

GOOD = [turn(1), turn(2, "the ferry stops at noon")]

BAD_LINES: dict[str, tuple[bytes | dict[str, object], str]] = {
    "not JSON": (b"hello", "record: is not JSON"),
    "a list": (b"[1, 2]", "record: expected a JSON object"),
    "a number": (b"3", "record: expected a JSON object"),
    "no tree": ({"id": "x", "text": "x"}, "tree: is missing; --tree names one for records without"),
    "no id": ({"tree": "t", "text": "x"}, "id: is missing"),
    "no text": ({"tree": "t", "id": "x"}, "text: is missing"),
    "empty tree": (turn(3, tree=""), "tree: "),
    "empty id": (turn(3, id=""), "id: "),
    "empty text": ({"tree": "t", "id": "x", "text": ""}, "text: is empty"),
    "blank text": (turn(3, " \n\t"), "text: is empty"),
    "text of another type": ({"tree": "t", "id": "x", "text": 3}, "text: expected a string"),
    "id of another type": (turn(3, id=7), "id: expected a string"),
    "slash in the tree's name": (turn(3, tree="a/b"), "tree: 'a/b' is not"),
    "200 characters in the tree's name": (turn(3, tree="x" * 200), "tree: "),
    "no date": (turn(3, at="yesterday"), "at: 'yesterday' is not an ISO 8601 time"),
    "impossible date": (turn(3, at="2026-02-30"), "at: "),
    "5 MB text": (turn(3, "x" * 5_000_000), "text: has 5,000,000 characters"),
    "NUL": (turn(3, "a\x00b"), "text: contains the NUL character"),
    "lone surrogate": (turn(3, "a\ud800b"), "text: contains half of a surrogate pair"),
    "NaN": (b'{"tree":"t","id":"x","text":"x","score":NaN}', "metadata.score: nan is no JSON number"),
    "no UTF-8": (b'{"tree":"t","id":"x","text":"\xff"}', "record: is not UTF-8: byte 0xff"),
    "9 MB line": (b'{"tree":"t","id":"x","text":"' + b"x" * 9_000_000 + b'"}', "record: has 9,000,031 bytes"),
    "deep nesting": (b"[" * 50_000, "record: is nested too deeply"),
    "metadata of another type": (turn(3, metadata="x"), "metadata: expected an object"),
}

GOOD_LINES: dict[str, dict[str, object]] = {
    "zone-less date": turn(3, at="2026-05-08T13:56:00"),
    "a day": turn(3, at="2026-05-08"),
    "unknown field": turn(3, mood="good"),
    "right-to-left": turn(3, "המנהרה מתחת לנמל"),
    "emoji": turn(3, "👩‍👩‍👧 🚢"),
    "control characters": turn(3, "a\x1b[31mb\x07"),
    "1 MB line": turn(3, metadata={"blob": "x" * 60_000}, text="y" * 30_000),
    "document": {"tree": "t", "id": "d", "title": "News", "text": "word " * 3_000, "published_at": "2026-05-08"},
}


@pytest.mark.parametrize(("line", "said"), BAD_LINES.values(), ids=list(BAD_LINES))
def test_a_bad_line_is_reported_and_the_rest_goes_in(banyan: Banyan, line: bytes | dict[str, object], said: str) -> None:
    file = banyan.write("a.jsonl", [GOOD[0], line, GOOD[1]])
    ran = banyan("ingest", file, "--json")
    assert ran.code == 3
    assert {name: ran.value[name] for name in ("accepted", "duplicates", "rejected")} == {
        "accepted": 2,
        "duplicates": 0,
        "rejected": 1,
    }
    [reported] = [each for each in ran.err.splitlines() if each.startswith("a.jsonl:")]
    assert reported.startswith(f"a.jsonl:2: {said}")
    assert len(reported) < 400
    assert "Traceback" not in ran.err
    assert banyan("stats", "t", "--json").value["leaves"] == 2


@pytest.mark.parametrize("line", GOOD_LINES.values(), ids=list(GOOD_LINES))
def test_an_unusual_line_goes_in(banyan: Banyan, line: dict[str, object]) -> None:
    ran = banyan("ingest", banyan.write("a.jsonl", [line]), "--json")
    assert (ran.code, ran.value["accepted"]) == (0, 1), ran.err
    text = str(line["text"])
    drawn = banyan("tree", "t", "--json").value
    leaf = drawn["children"][0]
    while leaf["children"]:
        leaf = leaf["children"][0]
    assert text[:20] in leaf["text"]
    shown = banyan("tree", "t")
    assert "\x1b" not in shown.out


def test_a_last_line_without_its_end_goes_in_and_a_cut_one_is_reported(banyan: Banyan) -> None:
    whole = json.dumps(turn(1)).encode()
    assert banyan("ingest", banyan.write("whole.jsonl", whole)).code == 0
    ran = banyan("ingest", banyan.write("cut.jsonl", whole + b"\n" + json.dumps(turn(2)).encode()[:-9]), "--json")
    assert ran.code == 3
    assert "cut.jsonl:2: record: is not JSON: ends in the middle" in ran.err
    assert ran.value["duplicates"] == 1


def test_gzip_whatever_its_name_and_a_cut_one(banyan: Banyan) -> None:
    many = b"".join(json.dumps(turn(number, os.urandom(30).hex())).encode() + b"\n" for number in range(300))
    packed = gzip.compress(many)
    assert banyan("ingest", banyan.write("a.jsonl", packed), "--json", "--no-wait").value["accepted"] == 300
    ran = banyan("ingest", banyan.write("b.gz", packed[: len(packed) // 2]), "--json", "--no-wait")
    assert ran.code == 3
    assert ran.value["duplicates"] > 50
    assert "the compressed data ends early" in ran.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.jsonl", None, "missing.jsonl: there is no such file"),
        (".", None, ". is a folder; name the files in it"),
        ("a.zip", b"PK\x03\x04", "a.zip is no JSON lines file: it is a zip archive"),
        ("a.bin", b"\x7fELF\x00\x01", "it is binary data"),
        ("a.jsonl", '{"tree":"t"}'.encode("utf-16"), "it is UTF-16; convert it"),
    ],
)
def test_a_file_that_is_none_is_refused_before_anything_goes_in(
    banyan: Banyan, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        banyan.write(name, content)
    ran = banyan("ingest", banyan.write("good.jsonl", GOOD), name)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (banyan.folder / "memory").exists()


def test_an_empty_file_is_said_and_is_no_error(banyan: Banyan) -> None:
    ran = banyan("ingest", banyan.write("empty.jsonl", b""), banyan.write("blank.jsonl", b"\n\n"), "--json")
    assert (ran.code, ran.value["accepted"]) == (0, 0)
    assert "empty.jsonl is empty" in ran.err
    assert "blank.jsonl is empty" in ran.err


def test_the_same_id_with_another_text_is_a_conflict_and_the_first_stands(banyan: Banyan) -> None:
    ran = banyan("ingest", banyan.write("a.jsonl", [turn(1, "the first"), turn(1, "the second"), turn(1, "the first")]), "--json")
    assert ran.code == 3
    assert {name: ran.value[name] for name in ("accepted", "duplicates", "rejected", "conflicts")} == {
        "accepted": 1,
        "duplicates": 1,
        "rejected": 0,
        "conflicts": 1,
    }
    assert "a.jsonl:2: id: " in ran.err
    assert banyan("tree", "t", "--json").value["children"][0]["text"] == "the first"


def test_records_of_many_trees_in_one_file_are_told_apart(banyan: Banyan) -> None:
    lines = [turn(number, tree=f"tree-{number % 3}") for number in range(30)]
    lines.insert(20, turn(4, "another text", tree="tree-1"))
    ran = banyan("ingest", banyan.write("a.jsonl", lines), "--json")
    assert (ran.code, ran.value["accepted"]) == (3, 30)
    assert set(ran.value["trees"]) == {"tree-0", "tree-1", "tree-2"}
    assert [each.split(": ")[0] for each in ran.err.splitlines() if each.startswith("a.jsonl")] == ["a.jsonl:21"]


def test_a_tree_can_be_given_and_another_is_refused(banyan: Banyan) -> None:
    ran = banyan("ingest", banyan.write("a.jsonl", [{"id": "1", "text": "mine"}, turn(2)]), "--tree", "mine", "--json")
    assert ran.code == 3
    assert ran.value["trees"].keys() == {"mine"}
    assert "a.jsonl:2: tree: is 't', but the records go into 'mine'" in ran.err
    assert banyan("ingest", "a.jsonl", "--tree", "a/b").code == 2


class TestStandardInput:
    """`-`, in a process of its own."""

    def test_it_is_read(self, banyan: Banyan) -> None:
        ran = banyan.shell("ingest", "-", "--json", given=json.dumps(turn(1)).encode() + b"\nbad\n")
        assert (ran.code, ran.value["accepted"]) == (3, 1)
        assert "stdin:2: record: is not JSON" in ran.err

    def test_nothing_is_said(self, banyan: Banyan) -> None:
        ran = banyan.shell("ingest", "-")
        assert ran.code == 0
        assert "stdin is empty" in ran.err

    def test_no_text_is_refused(self, banyan: Banyan) -> None:
        ran = banyan.shell("ingest", "-", given=b"\x7fELF\x00")
        assert ran.code == 2
        assert "stdin is no JSON lines file" in ran.err

    def test_what_a_slow_pipe_has_sent_is_committed_and_kept_on_ctrl_c(self, banyan: Banyan) -> None:
        process = banyan.start("ingest", "-", "--json")
        assert process.stdin is not None
        process.stdin.write(b"".join(json.dumps(turn(number)).encode() + b"\n" for number in range(3)))
        process.stdin.flush()
        until_leaves(banyan, 3)
        process.send_signal(signal.SIGINT)
        out, err = process.stdout, process.stderr
        assert process.wait(180) == 130
        assert out is not None
        assert err is not None
        value = json.loads(out.read().splitlines()[-1])
        assert (value["accepted"], value["interrupted"]) == (3, True)
        assert b"Traceback" not in err.read()
        close(process)


def test_ctrl_c_twice_ends_at_once_and_loses_nothing(banyan: Banyan) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = banyan.write("a.jsonl", [turn(number) for number in range(10)])
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        process = banyan.start("ingest", file, BANYAN_EMBEDDER="openai:text-embedding-3-small", OPENAI_BASE_URL=address)
        silent.settimeout(180)
        asked, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"stopping after the batch in hand" in process.stderr.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 130
        assert b"Traceback" not in process.stderr.read()
        asked.close()
        close(process)
    # Another process is not held up, and everything goes in.
    assert banyan("ingest", "a.jsonl", "--tree", "t", "--json").code in (0, 2)


class TestTheStore:
    """What may be wrong with it."""

    def test_a_damaged_one(self, banyan: Banyan) -> None:
        (banyan.folder / "memory").mkdir()
        (banyan.folder / "memory" / "store.db").write_bytes(b"SQLite format 3\x00" + b"rubbish" * 1_000)
        for command in (["ingest", banyan.write("a.jsonl", GOOD)], ["tree", "t"], ["search", "t", "x"], ["check", "t"]):
            ran = banyan(*command)
            assert ran.code == 4, command
            assert ran.err.splitlines()[-1].startswith("error: ")
            assert "store.db" in ran.err

    def test_one_that_others_hold(self, banyan: Banyan) -> None:
        file = banyan.write("a.jsonl", GOOD)
        banyan("ingest", file)
        holder = sqlite3.connect(banyan.folder / "memory" / "store.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            assert banyan("tree", "t", "--json").code == 0
            assert banyan("stats", "t", "--json").value["leaves"] == 2
        finally:
            holder.close()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_read_only_folder(self, banyan: Banyan) -> None:
        file = banyan.write("a.jsonl", GOOD)
        banyan("ingest", file)
        folder = banyan.folder / "memory"
        folder.chmod(0o500)
        try:
            assert banyan("search", "t", "harbour", "--json").value["hits"]
            ran = banyan("ingest", banyan.write("b.jsonl", [turn(9)]))
            assert ran.code == 4
        finally:
            folder.chmod(0o700)

    def test_a_tree_of_another_model(self, banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
        banyan("ingest", banyan.write("a.jsonl", GOOD))
        monkeypatch.setenv("BANYAN_EMBEDDER", "openai:text-embedding-3-small")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        ran = banyan("ingest", banyan.write("b.jsonl", [turn(9)]))
        assert ran.code == 2
        assert "hashing" in ran.err

    @pytest.mark.real_time
    def test_an_embedding_model_that_is_away_is_waited_for_and_said(self, banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BANYAN_EMBEDDER", "openai:text-embedding-3-small")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        monkeypatch.setenv("BANYAN_INGEST_EMBEDDER_PATIENCE", "3s")
        ran = banyan("ingest", banyan.write("a.jsonl", [turn(1)]))
        assert ran.code == 4
        assert ran.err.count("waiting for the embedding model") == 1
        assert "cannot be reached" in ran.err


def until_leaves(banyan: Banyan, leaves: int) -> None:
    for _ in range(600):
        ran = banyan("stats", "t", "--json")
        if ran.code == 0 and ran.value["leaves"] == leaves:
            return
        time.sleep(0.05)
    raise AssertionError(f"{leaves} leaves never came")


def close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
