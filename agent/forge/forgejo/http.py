"""The HTTP client for Forgejo: the parts of the client in `forge/rest_client.py` that are specific to Forgejo's API.

Forgejo itself sends no rate limit and no ETag; a proxy in front of Forgejo may send both, and then the HTTP client uses
them. The adapter sends its requests to the API through `ForgejoWire.call`, and `api_session.py` transmits them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from agent.forge import http
from agent.forge.forgejo import errors as answers
from agent.forge.forgejo.answer_shapes import SHAPES
from agent.forge.host_client import AGENT
from agent.forge.rest_client import RestClient

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.errors import ForgeError
    from agent.forge.base_session import BaseSession
    from agent.forge.etag_cache import HttpAnswer


class ForgejoWire(RestClient):
    """Sends requests to the API of the Forgejo at `base_url` (host, port, sub-path), as the account of
    `section.token`."""

    api = "/api/v1"
    shapes = SHAPES
    advice = "; is base_url the address of Forgejo, with its sub-path?"
    page_size: ClassVar[dict[str, Any]] = {"limit": 50}

    def whole(self, path: str, *, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Read a list that Forgejo sends in one answer if the request names no page, such as the comments or the
        timeline of an issue.

        If the timeline were read page by page, it would seem to end early: Forgejo takes the rows of a page and then
        removes comments on lines from them, so a page may be short or empty.
        """
        found: list[dict[str, Any]] = self.get(path, query=query)
        return found

    def _open_session(self, ca_file: Path | None) -> BaseSession:
        from agent.forge.forgejo.api_session import ApiSession

        return ApiSession(f"{self.base_url}{self.api}", ca_file, AGENT)

    def _reasons(self, content: bytes) -> tuple[str, ...]:
        return answers.parse_error(content)

    def _error_of(self, what: str, verb: str, status: int, reasons: tuple[str, ...]) -> ForgeError:
        return answers.error_of(what, verb, status, reasons)

    def _retry_delay(self, headers: Mapping[str, str]) -> float | None:
        return http.retry_after(headers)

    def _following(
        self, path: str, params: dict[str, Any], answer: HttpAnswer, number: int
    ) -> tuple[str, dict[str, Any]] | None:
        """(path, parameters) of the next page of a list if Forgejo's answer has a total count but no `Link` header:
        Forgejo sends some lists without that header, and a proxy may remove the header. The result is None after the
        last page and for any other answer."""
        total = answer.headers.get("x-total-count", "")
        if not (answer.data and total.isdigit() and number < int(total)) or "link" in answer.headers:
            return None
        return path, {**params, "page": int(params.get("page", 1)) + 1}
