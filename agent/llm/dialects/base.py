"""What can differ between servers of models: the type of one row of the table of dialects.

Values only.  The rows are in `hosted.py` and `local.py`, recognition is in `__init__.py`; docs/wire.md lists the source
of each rule.  A client reads its row as `self.dialect`, which becomes another one when the server says who it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class When(Enum):
    """When a field of an answer is sent back with its message.

    LOOP: only for answers after the last message of a user, that is within the tool calls that are under way.  ASKED:
    only when the server has refused a request because the field was missing.
    """

    ALWAYS = "always"
    LOOP = "loop"
    ASKED = "asked"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Roles:
    """Rules for the order of messages.  The strictest server has every flag set."""

    one_system: bool = False  # one system message at most, and first
    user_first: bool = False  # the first message after the system's is a user's
    no_neighbours: bool = False  # two messages of one side in a row are refused
    no_user_after_tool: bool = False  # a user message directly behind a tool message is refused
    no_empty_assistant: bool = False  # an assistant message needs text or calls
    text_beside_calls: bool = False  # content null beside calls is refused; it must be text


_STOPS = {
    "stop": "stop eos eos_token end_turn stop_sequence complete completed",
    "tool_calls": "tool_calls tool_call tool_use function_call function_calls",
    "length": "length max_tokens max_output_tokens max_completion_tokens model_length token_limit max_length"
    " model_context_window_exceeded context_length_exceeded",
    "content_filter": "content_filter content_filtered content-filter refusal safety recitation blocklist language"
    " prohibited_content spii sensitive image_safety guardrail_intervened error_toxic moderation blocked",
    "error": "error abort aborted cancelled canceled user_cancel insufficient_system_resource network_error"
    " server_error internal_error engine_error timeout time_limit",
    "resample": "malformed_function_call unexpected_tool_call malformed_response",
}
STOPS: Mapping[str, str] = {word: ours for ours, words in _STOPS.items() for word in words.split()}
"""Why an answer ended, in the words of servers (lower case) → ours.  `error`: the server did not bring the answer to
its end, half of it is there.  `resample`: the model wrote a call that its server cannot read.  Both are asked again.
Sources: the documents of OpenAI, Anthropic, Cohere, Gemini (`FinishReason`), Bedrock, z.ai, vLLM, TGI, OpenRouter."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server.  Every default is OpenAI's wire as most servers take it."""

    name: str  # the value of `llm.<provider>.dialect`
    title: str  # for a person

    # --- how it is recognised ------------------------------------------------------------------------------
    hosts: tuple[str, ...] = ()  # patterns (fnmatch) of host names
    paths: tuple[str, ...] = ()  # patterns of the address's path, for gateways with a host of their own
    owners: tuple[str, ...] = ()  # `owned_by` in the list of models
    marks: tuple[str, ...] = ()  # names of response headers that only this server sends, lower case

    # --- where and with what -------------------------------------------------------------------------------
    base_path: str = ""  # the path below which the calls are, where the address has none; "": `/v1`
    models_path: str = ""  # the list of models, from the root of the host; "": `/models` below the base
    lists_names: bool = True  # whether the list of models holds the names that requests take
    key_header: str = ""  # the header of the API key; "": that of the wire
    local: bool = False  # runs on the user's own machines: chat templates, slow start, its own window

    # --- parameters ----------------------------------------------------------------------------------------
    limit_key: str = "max_tokens"
    refused: frozenset[str] = frozenset()  # parameters that are never sent
    names_tool: bool = True  # `tool_choice` may name a tool; else one word, "required"
    cache_key: str = ""  # the parameter that names the conversation to the prompt cache; "": there is none
    cache_marks: tuple[str, ...] = ()  # patterns (fnmatch) of models that keep a prefix only where `cache_control` is
    usage: str = "stream_options"  # "always": comes without being asked for; "never": is not reported in a stream

    # --- messages ------------------------------------------------------------------------------------------
    send_back: Mapping[str, When] = field(default_factory=dict)  # field of an answer's message, or * → when; else never
    send_back_in_calls: Mapping[str, When] = field(default_factory=dict)  # the same for fields of one tool call
    stand_ins: frozenset[str] = frozenset()  # fields that every answer must have, also one of another model
    id_form: str = ""  # a pattern that each tool call id must match as a whole; "": any that is legal
    roles: Roles = Roles()
    images: str = "image_url"  # how a picture is sent: image_url, source (Anthropic), images (Ollama); "": not at all

    # --- answers -------------------------------------------------------------------------------------------
    stops: Mapping[str, str] = field(default_factory=dict)  # beside STOPS

    # --- the window ----------------------------------------------------------------------------------------
    tells_window: bool = True  # whether asking for the window can help

    def stop(self, reason: str) -> str:
        """Our reason for the server's, "" for an unknown one.  Gemini gives two words: `content_filter: RECITATION`."""
        word = reason.strip().lower().removeprefix("finish_reason_").removeprefix("stop_reason_")
        words = (word, *reversed(re.split(r"\s*[:;,/|]\s*", word)))
        return next((found for one in words if (found := self.stops.get(one) or STOPS.get(one, ""))), "")


LOCAL_ROLES = Roles(one_system=True, user_first=True, no_neighbours=True, no_empty_assistant=True)
"""What the strictest chat templates want; a server that takes more loses nothing by it."""
