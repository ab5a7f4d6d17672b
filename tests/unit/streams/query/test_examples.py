"""Every answer of the OpenAPI document has an example, and each is what its schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from memory.adapters.embedded.clock import SystemClock
from memory.settings import IngestSettings
from streams.query.app import create_app
from streams.query.guard import Guard
from streams.query.problems import KINDS
from streams.query.service import Service
from streams.query.shown import LEAF, OTHER_LEAF, SUMMARY, TURNS, Answer
from streams.settings import Settings

README = (Path(__file__).parents[4] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Made of the routes alone: the service is not asked."""
    guard = Guard.of(Settings(auth="off"), SystemClock())
    app = create_app(cast("Service", None), guard, limits=IngestSettings())
    value: dict[str, Any] = json.loads(json.dumps(app.openapi()))
    return value


def resolved(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        found: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def examples(document: dict[str, Any], media: dict[str, Any]) -> list[Any]:
    """Those of the answer itself, or else those of its model."""
    if "example" in media:
        return [media["example"]]
    if "examples" in media:
        return [resolved(document, each)["value"] for each in media["examples"].values()]
    found: list[Any] = resolved(document, media["schema"]).get("examples", [])
    return found


def answers(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                for kind, media in answer.get("content", {}).items():
                    yield f"{method} {path} {status} {kind}", media


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]}, format_checker=FormatChecker())


def test_every_answer_has_an_example_that_its_schema_allows(document: dict[str, Any]) -> None:
    wrong: list[str] = []
    seen = 0
    for name, media in answers(document):
        found = examples(document, media)
        seen += 1
        if not found:
            wrong.append(f"{name}: no example")
        check = validator(document, media["schema"])
        wrong += [f"{name}: {error.json_path}: {error.message}" for each in found for error in check.iter_errors(each)]
    assert wrong == []
    assert seen > 250


def test_every_example_of_a_model_and_of_its_members_is_one(document: dict[str, Any]) -> None:
    wrong: list[str] = []
    for name, model in document["components"]["schemas"].items():
        for place, schema in ((name, model), *((f"{name}.{key}", value) for key, value in model.get("properties", {}).items())):
            check = validator(document, schema)
            wrong += [f"{place}: {error.message}" for each in schema.get("examples", ()) for error in check.iter_errors(each)]
    assert wrong == []


def test_every_member_of_an_answer_is_shown(document: dict[str, Any]) -> None:
    """But for what is there only when it was asked for."""
    for name, model in document["components"]["schemas"].items():
        if name.endswith("In") or "examples" not in model:
            continue
        (shown,) = model["examples"]
        assert set(model.get("required", ())) <= shown.keys(), name
        assert not model["properties"].keys() - shown.keys() - {"parts", "trace", "errors", "missing"}, name


def test_every_answer_of_an_operation_is_an_answer_of_ours(document: dict[str, Any]) -> None:
    """So that a new one is given an example where its shape is defined."""
    ours = {each.__name__ for each in Answer.all()}
    for name, media in answers(document):
        if "$ref" in media["schema"]:
            assert media["schema"]["$ref"].rpartition("/")[2] in ours, name


def test_every_kind_of_problem_is_shown_where_its_status_is(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                media = answer.get("content", {}).get("application/problem+json")
                if media is not None:
                    shown = {resolved(document, each)["value"]["type"] for each in media["examples"].values()}
                    assert shown == {f"urn:banyan:problem:{kind.name}" for kind in KINDS.values() if kind.status == int(status)}, (
                        path
                    )


def test_the_examples_are_of_one_tree(document: dict[str, Any]) -> None:
    """Whose first turn is the one that the README shows."""
    turn = next(json.loads(line) for line in README.splitlines() if line.startswith('{"tree":"user-42"'))
    assert document["components"]["schemas"]["TurnIn"]["examples"] == [{key: turn[key] for key in turn if key != "tree"}]
    known = {"root", LEAF, OTHER_LEAF, SUMMARY}
    said = {turn["id"]: turn["text"]}
    for _, media in answers(document):
        for value in (part for each in examples(document, media) for part in _parts(each)):
            if "tree" in value:
                assert value["tree"] == turn["tree"]
            if "depth" in value and "id" in value:
                assert value["id"] in known
            if value.get("event_id") is not None:
                assert value["event_id"] in TURNS
                if "text" in value:
                    assert said.setdefault(value["event_id"], value["text"]) == value["text"]


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(part)
