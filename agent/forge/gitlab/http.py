"""The HTTP client for GitLab: the parts of the client in `forge/rest_client.py` that are specific to GitLab's API.

The adapter sends its requests to the API through `GitLabWire.call`, and python-gitlab transmits them
(`api_session.py`). This module knows GitLab's error answers, rate-limit headers and page headers; it does not interpret
issues, labels or merge requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from agent.forge.gitlab import errors as answers
from agent.forge.gitlab.answer_shapes import SHAPES
from agent.forge.host_client import AGENT
from agent.forge.rest_client import RestClient

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.errors import ForgeError, ForgeRefused
    from agent.forge.base_session import BaseSession
    from agent.forge.etag_cache import HttpAnswer


class GitLabWire(RestClient):
    """Sends requests to the API of the GitLab at `base_url` (host, port, sub-path), as the account of
    `section.token`."""

    api = "/api/v4"
    shapes = SHAPES
    advice = "; is base_url the address of GitLab, with its sub-path?"
    page_size: ClassVar[dict[str, Any]] = {"per_page": 100}

    def _open_session(self, ca_file: Path | None) -> BaseSession:
        from agent.forge.gitlab.api_session import ApiSession

        return ApiSession(self.base_url, ca_file, AGENT)

    def _reasons(self, content: bytes) -> tuple[str, ...]:
        return answers.parse_error(content)

    def _error_of(self, what: str, verb: str, status: int, reasons: tuple[str, ...]) -> ForgeError:
        return answers.error_of(what, verb, status, reasons)

    def _retry_delay(self, headers: Mapping[str, str]) -> float | None:
        return answers.retry_delay(headers)

    def _budget(self, headers: Mapping[str, str]) -> tuple[int, int, float] | None:
        return answers.budget(headers)

    def _following(
        self,
        path: str,
        params: dict[str, Any],
        answer: HttpAnswer,
        number: int,  # noqa: ARG002 - GitLab's header names the next page, so `number` is not used
    ) -> tuple[str, dict[str, Any]] | None:
        """(path, parameters) of the next page of a list, from GitLab's header `x-next-page`, for an answer without a
        `Link` header, which a proxy may have removed. Returns None after the last page, and for an answer with a `Link`
        header."""
        page = answer.headers.get("x-next-page", "")
        return (path, {**params, "page": page}) if page.isdigit() and "link" not in answer.headers else None


def is_missing(error: ForgeRefused) -> bool:
    """Whether GitLab refused with the status 404: the resource is missing, or the token may not see it."""
    return error.status == 404
