"""The schema file, filled in for one index."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from redisvl.schema import IndexSchema

from memory.adapters.redis.pipe import Argument
from memory.adapters.redis.search.keys import OWN
from memory.adapters.redis.search.settings import SearchSettings


@cache
def _file() -> dict[str, Any]:
    with resources.as_file(resources.files("memory.adapters.redis.search").joinpath("schema.yaml")) as file:
        loaded: dict[str, Any] = IndexSchema.from_yaml(file).to_dict()
    return loaded


def schema(*, name: str, prefix: str, place: str, dimension: int, settings: SearchSettings) -> IndexSchema:
    """
    The schema of an index.

    Args:
        name: of the index.
        prefix: of the keys that are in it.
        place: `SHARED` or `OWN`.
        dimension: of the vectors.
        settings: of the graph, for `OWN`.
    """
    content = _file()
    graph = {
        "algorithm": "hnsw",
        "m": settings.neighbours,
        "ef_construction": settings.ef_construction,
        "ef_runtime": settings.ef_runtime,
    }
    fields = []
    for field in content["fields"]:
        attributes = dict(field.get("attrs", {}))
        if field["type"] == "vector":
            attributes |= {"dims": dimension, **(graph if place == OWN else {})}
        fields.append({**field, "attrs": attributes})
    index = {**content["index"], "name": name, "prefix": prefix}
    made: IndexSchema = IndexSchema.from_dict({**content, "index": index, "fields": fields})
    return made


def create_command(made: IndexSchema, *, scan: bool) -> list[Argument]:
    """
    `FT.CREATE` for a schema, without what this project does not use: where in a text each word stands.

    Args:
        made: the schema.
        scan: whether documents may be there already: the server then goes through all its keys.
    """
    fields = [_word(word) for field in made.redis_fields for word in field.redis_args()]
    return [
        "FT.CREATE", made.index.name, "ON", "HASH", "PREFIX", 1, made.index.prefix, "NOOFFSETS", "NOHL", "STOPWORDS", 0,
        *(() if scan else ("SKIPINITIALSCAN",)),
        "SCHEMA", *fields,
    ]  # fmt: skip


def _word(word: Any) -> Argument:
    plain: Argument = getattr(word, "value", word)
    return plain
