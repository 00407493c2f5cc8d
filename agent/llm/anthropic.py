"""The client for Anthropic's messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, ClassVar

from agent.llm import urls, wire_anthropic, wire_openai
from agent.llm.client import ChatClient
from agent.llm.dialects import DIALECTS
from agent.llm.request_lines import lines
from agent.llm.role_alternation import system_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.llm.base import SideRequest
    from agent.llm.stream_accumulator import StreamAccumulator
    from agent.llm.transport import Stream
    from agent.message_list_check import Shape
    from agent.values import Json, Span

VERSION = "2023-06-01"
SYSTEM = b'{"role":"system"'


class AnthropicClient(ChatClient):
    """A client for Anthropic's messages API; its positional arguments are `(config, message_store, context_dir)`."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    call = "/messages"
    key_header = "x-api-key"
    wire_headers: ClassVar[Mapping[str, str]] = {"anthropic-version": VERSION}
    own_dialect = DIALECTS["anthropic"]

    @property
    def bases(self) -> tuple[str, ...]:
        return urls.bases(self.base_url, self.call, version_first=True)

    def parameters(self, output: int) -> Json:
        """The parameters of a request to Anthropic that are written before tools and system text, always in the same
        order."""
        fields = {"model": self.model, "max_tokens": output, "stream": True}
        return {name: value for name, value in fields.items() if name not in self.dropped}

    def optional(self) -> Collection[str]:
        return (*super().optional(), "cache_control")

    def encode(
        self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int, aside: SideRequest | None = None
    ) -> None:
        system = system_text(spans, shape)
        # a request outside the conversation gets no cache mark (`cache_control`): no later request would read the
        # cache, and writing the cache costs money
        marked = aside is None and "cache_control" not in self.dropped
        if aside is None and self.calling.in_text:
            form = self.calling.form
            system = f"{system}\n\n{form.prompt}".strip()
            out.write(wire_anthropic.header(self.parameters(output), system, (), marked=marked))
            wire_anthropic.write_messages(out, spans, self.as_text, marked=marked)
            out.write(b"]}")
            return
        if aside is None:
            out.write(wire_anthropic.header(self.parameters(output), system, self.offered_tools(), marked=marked))
        else:
            fields = self.parameters(output) | self.tool_choice(wire_anthropic.tool_choice(aside))
            out.write(wire_anthropic.header(fields, system, self.offered_tools(aside.tools), marked=marked))
        # a message list of plain texts is already in Anthropic's form
        if aside is not None and shape.tidy and not shape.ids:
            wire_openai.join(out, (line for line in lines(spans) if not line.startswith(SYSTEM)))
        else:
            wire_anthropic.write_messages(out, spans, self.message_change(shape), marked=marked, answer=shape.answer)
        out.write(b"]}")

    def read(self, stream: Stream) -> StreamAccumulator:
        return wire_anthropic.read_answer(stream, self.label)

    def models(self) -> list[str]:
        answer = self.ask_below("/models", more="limit=1000")
        listed = answer.get("data") if isinstance(answer, dict) else None
        return [str(entry["id"]) for entry in listed or () if isinstance(entry, dict) and "id" in entry]
