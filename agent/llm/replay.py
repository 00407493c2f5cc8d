"""A recorded conversation instead of a model: the same code path, over loopback, from any messages.jsonl.

It says so (`describe`).  The position is how many answers this conversation already has on disk, so a restart goes on
where it was; when the recording is over, the request is refused with both numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ConfigError
from agent.llm.base import Check
from agent.llm.dialects import DIALECTS
from agent.llm.openai import OpenAIClient
from agent.llm.recording import Progress
from agent.llm.replay_server import POSITION, SUMMARY, ReplayServer, serve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ReplayClient", "ReplayServer", "serve"]


class ReplayClient(OpenAIClient):
    """`(config, message_store, context_dir)`; the recording is `llm.replay.messages`."""

    name = "replay"
    own_dialect = DIALECTS["replay"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._server: ReplayServer | None = None
        super().__init__(*args, **kwargs)
        self._progress = Progress(self.context_dir / "messages.jsonl")

    @property
    def recorded(self) -> Path:
        """The messages.jsonl that is played."""
        if self.keys.messages is None:
            raise ConfigError("llm.replay.messages is empty; name the messages.jsonl whose answers are given again")
        return self.keys.messages

    @property
    def server(self) -> ReplayServer:
        """The loopback server, started when first used (after a fork)."""
        if self._server is None:
            self._server = serve(self.recorded)
            self._server.model = self.model
        return self._server

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1/chat/completions"

    @property
    def base_url(self) -> str:
        return "http://127.0.0.1"

    @property
    def who(self) -> str:
        return f"replay of {self.recorded}"

    def request_headers(self, *, summary: bool) -> Mapping[str, str]:
        counts = self._progress.counts
        try:
            self._progress.look()
        except FileNotFoundError:
            # A store that keeps no messages.jsonl: the server counts the assistant messages of the request.
            return {POSITION: "0", SUMMARY: "1"} if summary else {}
        return {POSITION: str(counts["summary"]), SUMMARY: "1"} if summary else {POSITION: str(counts["answer"])}

    def loaded_window(self) -> int | None:
        return None

    def models(self) -> list[str]:
        return [self.model]

    def describe(self) -> str:
        return f"replay of {self.recorded}"

    def check(self) -> Check:
        try:
            answers = self.server.recording.count()
        except ConfigError as error:
            return Check(False, str(error))
        return Check(answers > 0, f"{self.describe()}: {answers} answers" + ("" if answers else "; record some first"))

    def close(self) -> None:
        super().close()
        if self._server is not None:
            self._server.close()
            self._server = None
