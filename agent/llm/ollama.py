"""Ollama by its own API: a constant window in every request, no silent cutting, and a look whether it was cut anyway.

`/v1` of Ollama cannot set the window, so `/api/chat` is used (facts on wires, section 2).  Seed 002, section 5.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from agent.config.window import configured_window
from agent.errors import ContextOverflow, ModelError
from agent.llm import urls, wire_ollama, wire_openai
from agent.llm.client import ChatClient
from agent.llm.openai import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.transport import Stream
    from agent.values import Answer, Json, Plan, Span


class OllamaClient(ChatClient):
    """`(config, message_store, context_dir)`."""

    name = "ollama"
    default_url = "http://localhost:11434"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._window: int | None = None
        self._believed = 0  # the last prompt count that agreed with the estimate

    @property
    def root(self) -> str:
        """The server without `/v1` or `/api`."""
        return urls.root(self.base_url)

    @property
    def url(self) -> str:
        return f"{self.root}/api/chat"

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    # --- request ----------------------------------------------------------------------------------------------

    def ready(self) -> None:
        self.loaded_window()

    def loaded_window(self) -> int:
        """`num_ctx` of every request: the configured window, at most what the model was trained for.  It never changes,
        because another value makes the server load the model again."""
        if self._window is None:
            tokens, _ = configured_window(self.settings, self.provider, self.model)
            self._window = min(tokens, self._trained() or tokens)
        return self._window

    def _trained(self) -> int | None:
        try:
            shown = self.fetch("POST", f"{self.root}/api/show", json={"model": self.model})
        except ModelError:
            return None
        info = shown.get("model_info") if isinstance(shown, dict) else None
        lengths = [whole(value) for key, value in (info or {}).items() if key.endswith(".context_length")]
        return max((length for length in lengths if length), default=None)

    def header(self, output: int, *, tools: bool) -> bytes:
        """Everything before the first message."""
        options: Json = {"num_ctx": self.loaded_window()}
        if output:
            options["num_predict"] = output
        fields = {"model": self.model, "stream": True, "truncate": False, "shift": False, "options": options}
        return wire_openai.header(fields, self.tools if tools else ())

    def encode(self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int) -> None:
        out.write(self.header(output, tools=True))
        wire_openai.join(out, wire_ollama.messages(spans, shape, alternate=self.alternate))
        out.write(b"]}")

    def encode_summary(self, out: BinaryIO, text: Iterator[bytes]) -> None:
        out.write(self.header(self.output(0), tools=False))
        out.write(b'{"role":"user","content":"')
        out.writelines(text)
        out.write(b'"}]}')

    # --- answer -----------------------------------------------------------------------------------------------

    def read(self, stream: Stream) -> Draft:
        return wire_ollama.read_answer(stream, self.who)

    def judge(self, answer: Answer, plan: Plan | None) -> None:
        """A prompt that was cut without a word is an overflow; the answer to it is not used."""
        if answer.usage is None:
            return
        reported, estimated = answer.usage.prompt, plan.tokens if plan is not None else 0
        if wire_ollama.was_cut(reported, estimated, self.loaded_window(), self._believed):
            raise ContextOverflow(
                f"{self.who} read only {reported} tokens of the {estimated or 'many'} that were sent: it cut the "
                f"prompt silently. Its window is smaller than num_ctx {self.loaded_window()}; see "
                f"OLLAMA_CONTEXT_LENGTH and `ollama ps`",
                limit=wire_ollama.window_behind(reported),
                requested=estimated or None,
            )
        self._believed = max(self._believed, reported)

    # --- server -----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        answer = self.fetch("GET", f"{self.root}/api/tags")
        listed = answer.get("models") if isinstance(answer, dict) else None
        return [str(entry.get("model") or entry.get("name")) for entry in listed or () if isinstance(entry, dict)]
