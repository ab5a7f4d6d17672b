"""The page at `/`, the API's description at `/docs`, and their files; all from this package, under a strict policy."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from streams.query.problems import Problem

router = APIRouter(include_in_schema=False)
TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "png": "image/png", "svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
PAGE_POLICY = f"{POLICY}; require-trusted-types-for 'script'; trusted-types 'none'"
"""No markup is made from text, whatever a text says: the browser itself refuses."""
DOCS_POLICY = POLICY.replace("style-src", "style-src 'unsafe-inline'").replace("img-src", "img-src data:")
"""Swagger UI sets styles on what it draws, and carries its icons in its style sheet."""
_OWN = re.compile(r"^[a-z]+\.(css|js|svg|html)$")
_VENDOR = ("swagger-ui.css", "swagger-ui-bundle.js")
_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    content: bytes
    packed: bytes | None
    """The same, gzip; None where that saves nothing."""
    kind: str
    etag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> Asset:
        """Pack a file."""
        packed = gzip.compress(content, 9, mtime=0)
        suffix = name.rpartition(".")[2]
        kind = TYPES[suffix] + ("" if suffix == "png" else "; charset=utf-8")
        return cls(content, packed if len(packed) < len(content) else None, kind, hashlib.sha256(content).hexdigest()[:32])

    def response(self, request: Request, headers: Mapping[str, str]) -> Response:
        """The answer; 304 when the caller has it."""
        own = {"ETag": f'W/"{self.etag}"', "Vary": "Accept-Encoding", **headers}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=own)
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, headers={**own, "Content-Encoding": "gzip"}, media_type=self.kind)
        return Response(self.content, headers=own, media_type=self.kind)


@cache
def _own() -> tuple[str, Mapping[str, Asset]]:
    """A digest over all files of the page, and the files; addresses carry the digest, so that browsers may keep them."""
    folder = files("streams.query") / "assets"
    contents = {each.name: each.read_bytes() for each in folder.iterdir() if _OWN.match(each.name)}
    digest = hashlib.sha256(b"".join(name.encode() + contents[name] for name in sorted(contents))).hexdigest()[:12]
    return digest, {name: Asset.of(name, _placed(name, content, digest)) for name, content in contents.items()}


def _placed(name: str, content: bytes, digest: str) -> bytes:
    return content.replace(b"{{assets}}", f"assets/{digest}".encode()) if name.endswith(".html") else content


@cache
def _vendor(name: str) -> Asset:
    return Asset.of(name, (files("fastapi_offline") / "static" / name).read_bytes())


@router.get("/")
async def show_page(request: Request) -> Response:
    """The page; it holds nothing of anybody's, so that no key is needed for it."""
    return _html(request, "/", "index.html", PAGE_POLICY)


@router.get("/docs")
async def show_docs(request: Request) -> Response:
    """The OpenAPI document, to be read and tried."""
    return _html(request, "/docs", "docs.html", DOCS_POLICY)


@router.get("/favicon.ico")
async def show_icon(request: Request) -> Response:
    """What browsers ask for by themselves."""
    return _own()[1]["icon.svg"].response(request, {"Cache-Control": "public, max-age=86400"})


@router.get("/assets/{digest}/{name}")
async def show_asset(request: Request, digest: str, name: str) -> Response:
    """One file."""
    request.state.route = "/assets"
    current, own = _own()
    found = own.get(name) if digest == current else None
    if found is None and digest == current and name in _VENDOR:
        # Large: packed once, when first asked for.
        found = await asyncio.to_thread(_vendor, name)
    if found is None or name.endswith(".html"):
        raise Problem("not-found", "there is no such file; load the page again")
    return found.response(request, {"Cache-Control": _FOREVER})


def _html(request: Request, route: str, name: str, policy: str) -> Response:
    request.state.route = route
    return _own()[1][name].response(request, {"Cache-Control": _ASK_AGAIN, "Content-Security-Policy": policy})
