"""The type of one row in the table of dialects: the ways in which model servers differ.

The module has values only.  `hosted.py` and `local.py` have the rows, `__init__.py` recognises a server; docs/wire.md
lists the source of each rule.  A client reads its row as `self.dialect`, which changes when the server is recognised.
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

    LOOP: the field is sent only with answers after the last user message, that is within the current series of tool
    calls. ASKED: the field is sent only after the server refused a request because the field was missing.
    """

    ALWAYS = "always"
    LOOP = "loop"
    ASKED = "asked"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Roles:
    """Rules for the order of messages.  The dialect of the strictest server has every flag set."""

    one_system: bool = False  # the list has at most one system message, and it is the first
    user_first: bool = False  # the first message after the system message is a user message
    no_neighbours: bool = False  # the server refuses consecutive messages of one side
    no_user_after_tool: bool = False  # the server refuses a user message directly after a tool message
    no_empty_assistant: bool = False  # an assistant message must have text or calls
    text_beside_calls: bool = False  # the server refuses null content beside calls; it must be text


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
"""Stop reasons of servers (lower case) → stop reasons of this program.

`error` means that the server did not finish the answer.  `resample` means that the server cannot parse a call that its
model wrote.  After `error` and after `resample` the request is sent again.  Sources: the documents of OpenAI,
Anthropic, Cohere, Gemini (`FinishReason`), Bedrock, z.ai, vLLM, TGI, OpenRouter."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server.  The defaults describe OpenAI's wire as most servers implement it."""

    name: str  # the value of `llm.<provider>.dialect`
    title: str  # the name of the server for people

    # --- how it is recognised ------------------------------------------------------------------------------
    hosts: tuple[str, ...] = ()  # patterns (fnmatch) of host names that have this dialect
    paths: tuple[str, ...] = ()  # patterns of the address's path, for gateways on a host of their own
    owners: tuple[str, ...] = ()  # values of `owned_by` in the list of models
    marks: tuple[str, ...] = ()  # names of response headers that only this server sends, lower case

    # --- address and authentication ------------------------------------------------------------------------
    base_path: str = ""  # the path of the API for an address that has none; "" means `/v1`
    # the path of the model list from the root of the host; "" means `/models` below the base address
    models_path: str = ""
    lists_names: bool = True  # whether the model list has the names that requests use
    any_name: bool = False  # the server serves one model and ignores the requested name
    key_header: str = ""  # the header of the API key; "" means the header of the wire
    local: bool = False  # self-hosted: the server has chat templates, may start slowly, and has a window of its own

    # --- parameters ----------------------------------------------------------------------------------------
    limit_key: str = "max_tokens"
    refused: frozenset[str] = frozenset()  # parameters that are never sent
    names_tool: bool = True  # `tool_choice` may name a tool; otherwise only "required" works
    cache_key: str = ""  # the parameter with the name of the conversation for the prompt cache; "" if there is none
    # patterns (fnmatch) of models that cache a prefix only if it ends with a `cache_control` mark
    cache_marks: tuple[str, ...] = ()
    # "always": usage is sent without a parameter; "never": it is not reported in a stream
    usage: str = "stream_options"

    # --- messages ------------------------------------------------------------------------------------------
    # field of an answer's message (* for all others) → when it is sent back; a field without an entry is never sent
    # back
    send_back: Mapping[str, When] = field(default_factory=dict)
    send_back_in_calls: Mapping[str, When] = field(default_factory=dict)  # the same table for the fields of a tool call
    stand_ins: frozenset[str] = frozenset()  # fields that every answer must have, even an answer of another model
    id_form: str = ""  # a pattern that each whole tool call id must match; "" allows any legal id
    roles: Roles = Roles()
    # form of pictures: image_url, source (Anthropic), images (Ollama); "" if they are not supported
    images: str = "image_url"

    # --- answers -------------------------------------------------------------------------------------------
    stops: Mapping[str, str] = field(default_factory=dict)  # additional entries to STOPS

    # --- the window ----------------------------------------------------------------------------------------
    tells_window: bool = True  # whether it makes sense to ask the server for its window

    def stop(self, reason: str) -> str:
        """Our stop reason for the server's reason, "" for an unknown one.

        Gemini joins two reasons in one text: `content_filter: RECITATION`.
        """
        word = reason.strip().lower().removeprefix("finish_reason_").removeprefix("stop_reason_")
        words = (word, *(part.strip() for part in reversed(re.split(r"[:;,/|]", word))))
        return next((found for one in words if (found := self.stops.get(one) or STOPS.get(one, ""))), "")


LOCAL_ROLES = Roles(one_system=True, user_first=True, no_neighbours=True, no_empty_assistant=True)
"""The message rules of the strictest chat templates; other servers accept such lists too."""
