"""A client that replays a recorded conversation in place of a model: it uses the code of the real clients, with an HTTP
server on this machine that returns the answers in a given messages.jsonl.

The text of `describe` says that the client is a replay. The next recorded answer is selected by the number of answers
that the task's own conversation has on disk, so a restarted process continues with the next answer. After the end of
the recording the replay server refuses requests; the error names the requested position and the number of recorded
answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ConfigError
from agent.llm.base import Check
from agent.llm.dialects import DIALECTS
from agent.llm.openai import OpenAIClient
from agent.llm.recorded_answers import RecordingReader
from agent.llm.replay_server import POSITION, SUMMARY, ReplayServer, serve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ReplayClient", "ReplayServer", "serve"]


class ReplayClient(OpenAIClient):
    """The client of a replay; its positional arguments are `(config, message_store, context_dir)`; the setting
    `llm.replay.messages` names the recording."""

    name = "replay"
    is_recording = True
    start_advice = "set llm.replay.messages to a recorded messages.jsonl"
    own_dialect = DIALECTS["replay"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._server: ReplayServer | None = None
        super().__init__(*args, **kwargs)
        self._progress = RecordingReader(self.context_dir / "messages.jsonl")

    @property
    def recorded(self) -> Path:
        """The path of the messages.jsonl that is replayed. Raises ConfigError if `llm.replay.messages` is empty."""
        if self.keys.messages is None:
            raise ConfigError("llm.replay.messages is empty; name the messages.jsonl whose answers are given again")
        return self.keys.messages

    @property
    def server(self) -> ReplayServer:
        """The replay server of this client; it is started on first use, which in a worker comes after the fork."""
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
    def label(self) -> str:
        return f"replay of {self.recorded}"

    def request_headers(self, *, summary: bool) -> Mapping[str, str]:
        counts = self._progress.counts
        try:
            self._progress.read_new()
        except FileNotFoundError:
            # If the task has no messages.jsonl, a summary request gets the first recorded summary. A request that is
            # not for a summary then has no header with the position, so the server counts the assistant messages in the
            # request instead.
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
            return Check(False, str(error), answers=False)
        return Check(answers > 0, f"{self.describe()}: {answers} answers" + ("" if answers else "; record some first"))

    def close(self) -> None:
        super().close()
        if self._server is not None:
            self._server.close()
            self._server = None
