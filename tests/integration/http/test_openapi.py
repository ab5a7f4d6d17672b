"""The OpenAPI document is complete, and the running service is as it says (schemathesis, stateless and stateful)."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

from streams.query.problems import KINDS
from tests.integration.http.served import listening, serving

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
EXAMPLES = settings(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


@schemathesis.serializer("application/x-ndjson", "application/jsonl")
def lines(_context: Any, value: Any) -> bytes:
    """Whatever is generated, as it is: the service must take any bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a few records, on a loop of its own."""
    folder = tmp_path_factory.mktemp("openapi")
    ready: threading.Event = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        found["loop"], found["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with serving(folder, rate=1_000_000) as served, listening(served) as port:
            turns = [{"id": f"t{number}", "text": f"the tunnel {number}", "conversation": "c"} for number in range(8)]
            await served.post("me/turns", turns)
            found["port"] = port
            ready.set()
            await found["stop"].wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            found["error"] = error
            ready.set()
            raise

    thread = threading.Thread(target=run, name="service")
    thread.start()
    assert ready.wait(120)
    assert "port" in found, found.get("error")
    yield f"http://localhost:{found['port']}"
    found["loop"].call_soon_threadsafe(found["stop"].set)
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    value: dict[str, Any] = httpx.get(f"{url}/openapi.json", timeout=60).json()
    return value


@pytest.fixture(scope="module")
def schema(url: str, document: dict[str, Any]) -> Any:
    """Without the keys, which this service does not ask for, and without long waits for what never comes."""
    document = copy.deepcopy(document)
    for model in ("SearchRequest", "ContextRequest"):
        waits = document["components"]["schemas"][model]["properties"]["wait_seconds"]
        waits |= {"maximum": 0.02, "default": 0.02}
        document["components"]["schemas"][model]["required"].append("wait_seconds")
    paths = {
        path: {method: {**operation, "security": []} for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    found = schemathesis.openapi.from_dict({**document, "paths": paths})
    found.config.update(base_url=url)
    return found


def test_every_operation_answers_as_documented(schema: Any) -> None:
    operations = [found.ok() for found in schema.exclude(path_regex="stream$").get_all_operations()]
    assert len(operations) >= 16
    for operation in operations:

        @EXAMPLES
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        check()


def test_sequences_of_operations_answer_as_documented(schema: Any) -> None:
    machine = schema.exclude(path_regex="stream$").as_state_machine()

    class Machine(machine):  # type: ignore[misc, valid-type]
        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            # A line that is no record is refused in its line of the answer.
            case.validate_response(response, checks=CHECKS[:-1])

    Machine.run(settings=settings(EXAMPLES, max_examples=10, stateful_step_count=6))


def test_every_operation_documents_its_problems_and_what_it_takes(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert operation.get("description"), path
            if path in ("/healthz", "/readyz"):
                continue
            assert operation["security"] == [{"key": []}]
            statuses = set(operation["responses"])
            assert {"401", "403", "404", "422", "429", "500", "503", "504"} <= statuses, path
            # A body is read whatever the method.
            assert {"408", "413"} <= statuses, path
            assert ("415" in statuses) == (method == "post"), path
            assert ("412" in statuses) == path.endswith(("/search", "/context")), path
            assert re.fullmatch("[a-z_]+", operation["operationId"]), "generated clients name their methods by it"
    assert {"TurnIn", "DocumentIn", "ProblemOut", "SearchRequest", "SearchOut"} <= schemas.keys()
    assert schemas["SearchRequest"]["properties"]["query"]["examples"]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named - document["components"]["schemas"].keys() == set()


def test_the_page_has_every_problem_and_every_address(document: dict[str, Any]) -> None:
    for kind in KINDS.values():
        assert f"| `{kind.name}` | {kind.status} |" in PAGE
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"`{method.upper()} {path}`" in PAGE
