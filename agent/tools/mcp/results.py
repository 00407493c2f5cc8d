"""Converts the result of a call to an MCP server into text for the model: pictures, sounds and binary resources are
named and not shown, links to resources are named and not fetched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.tools.base import RawResult
from agent.tools.file_types import size_text

if TYPE_CHECKING:
    from agent.values import Json

EMPTY = "(the tool returned nothing)"


def raw_result(result: Json) -> RawResult:
    """The result of a call, in the JSON form of the protocol, converted to the result of a tool."""
    parts = [_part(block) for block in result.get("content") or ()]
    text = "\n".join(part for part in parts if part)
    structured = result.get("structuredContent")
    if not text and structured is not None:
        text = json.dumps(structured, ensure_ascii=False)
    if result.get("isError"):
        return RawResult(text or "(no text)", status="error", head="the tool of the server reports an error:")
    return RawResult(text or EMPTY)


def _part(block: Any) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text") or "")
    if kind in ("image", "audio"):
        return f"[{kind}, {block.get('mimeType')}, {_size(block.get('data'))}: not shown]"
    if kind == "resource_link":
        about = f" ({block['description']})" if block.get("description") else ""
        return f"[link to the resource {block.get('uri')}{about}: not fetched]"
    if kind == "resource":
        inner = block.get("resource") or {}
        if isinstance(inner.get("text"), str):
            return f"[resource {inner.get('uri')}]\n{inner['text']}"
        return f"[resource {inner.get('uri')}, {inner.get('mimeType')}, {_size(inner.get('blob'))}: not shown]"
    return f"[content of the unknown type {str(kind)[:40]!r}: not shown]"


def _size(data: Any) -> str:
    """The number of bytes that base64 data encodes, as text for people; "no data" for a value that is no text."""
    return size_text(len(data) * 3 // 4) if isinstance(data, str) else "no data"
