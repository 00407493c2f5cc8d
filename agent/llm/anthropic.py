"""Anthropic's messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, ClassVar

from agent.llm import urls, wire_anthropic
from agent.llm.client import ChatClient
from agent.llm.dialects import DIALECTS
from agent.llm.tidy import system_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.transport import Stream
    from agent.values import Json, Span

VERSION = "2023-06-01"


class AnthropicClient(ChatClient):
    """`(config, message_store, context_dir)`."""

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
        """What stands before tools and system, always in this order."""
        fields = {"model": self.model, "max_tokens": output, "stream": True}
        return {name: value for name, value in fields.items() if name not in self.dropped}

    def optional(self) -> Collection[str]:
        return (*super().optional(), "cache_control")

    def encode(self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int) -> None:
        system = system_text(spans, shape) if shape.systems else ""
        marked = "cache_control" not in self.dropped
        if self.calling.in_text:
            form = self.calling.form
            system = f"{system}\n\n{form.prompt}".strip()
            out.write(wire_anthropic.header(self.parameters(output), system, (), marked=marked))
            wire_anthropic.write_messages(out, spans, form.messages, marked=marked)
            out.write(b"]}")
            return
        out.write(wire_anthropic.header(self.parameters(output), system, self.offers(), marked=marked))
        wire_anthropic.write_messages(out, spans, self.outgoing(shape), marked=marked)
        out.write(b"]}")

    def encode_summary(self, out: BinaryIO, text: Iterator[bytes]) -> None:
        out.write(wire_anthropic.header(self.parameters(self.output(0)), "", ()))
        out.write(b'{"role":"user","content":"')
        out.writelines(text)
        out.write(b'"}]}')

    def read(self, stream: Stream) -> Draft:
        return wire_anthropic.read_answer(stream, self.who)

    def models(self) -> list[str]:
        answer = self.ask_below("/models", more="limit=1000")
        listed = answer.get("data") if isinstance(answer, dict) else None
        return [str(entry["id"]) for entry in listed or () if isinstance(entry, dict) and "id" in entry]
