"""The type of one row in the table of dialects: the ways in which model servers differ.

`hosted.py` and `local.py` contain the rows of the table of dialects; `__init__.py` recognises a server; docs/wire.md
lists the source of each rule.  A client has its row of the table of dialects in the attribute `dialect`, which changes
when the server is recognised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class When(Enum):
    """In which requests a field of an earlier answer is sent back to the server, together with that answer.

    The value LOOP: the field is sent back only with the answers after the last user message, that is, during one series
    of tool calls. The value ASKED: the field is sent back only after the server has refused a request because the field
    was missing.
    """

    ALWAYS = "always"
    LOOP = "loop"
    ASKED = "asked"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Roles:
    """A server's rules for the list of messages.  Each flag of `Roles` that is True makes the server stricter."""

    one_system: bool = False  # whether the server accepts at most one system message, and only as the first message
    user_first: bool = False  # whether the first message after the system message must be a user message
    no_neighbours: bool = False  # whether the server refuses consecutive messages of one role, except tool results
    no_user_after_tool: bool = False  # whether the server refuses a user message directly after a tool message
    no_empty_assistant: bool = False  # whether the server refuses an assistant message with neither text nor tool calls
    # whether the server refuses `content: null` in a message with tool calls; the content must then be a text
    text_beside_calls: bool = False


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

The stop reason `error` means that the server did not finish the answer. The stop reason `resample` means that the
server cannot parse a tool call that its model wrote. After the stop reasons `error` and `resample` the request is sent
again. The stop reasons come from the documents of OpenAI, Anthropic, Cohere, Gemini (`FinishReason`), Bedrock, z.ai,
vLLM, TGI, OpenRouter."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The peculiarities of one kind of model server.  The defaults describe OpenAI's API as most servers implement
    it."""

    name: str  # the value of the setting `llm.<provider>.dialect` for this dialect
    title: str  # the name of the server in messages for people

    # --- how it is recognised ------------------------------------------------------------------------------
    hosts: tuple[str, ...] = ()  # patterns (fnmatch) of host names that have this dialect
    paths: tuple[str, ...] = ()  # patterns (fnmatch) of the address's path, for gateways that a user runs on any host
    owners: tuple[str, ...] = ()  # values of `owned_by` in the list of models
    marks: tuple[str, ...] = ()  # names (in lower case) of response headers by which the server is recognised

    # --- address and authentication ------------------------------------------------------------------------
    base_path: str = ""  # the path of the API for a configured address without a path; "" means `/v1`
    # the path of the model list from the root of the host; "" means `/models` below the base URL
    models_path: str = ""
    lists_names: bool = True  # whether the model list contains the names that a request has to use
    any_name: bool = False  # whether the server serves one model and ignores the requested name
    key_header: str = ""  # the header of the API key; "" means the default of the client class
    # whether the server is self-hosted: it has chat templates, may start slowly, and its user configures the context
    # window
    local: bool = False

    # --- parameters ----------------------------------------------------------------------------------------
    limit_key: str = "max_tokens"
    refused: frozenset[str] = frozenset()  # parameters of a request that the server refuses, so they are not sent
    names_tool: bool = True  # whether `tool_choice` may name a tool; otherwise only "required" works
    cache_key: str = ""  # the parameter that names the conversation for the server's prompt cache; "" if there is none
    # patterns (fnmatch) of the models for which the server caches a prefix of the prompt only if that prefix ends with
    # a `cache_control` mark
    cache_marks: tuple[str, ...] = ()
    # the parameter that makes a stream report token counts; "always": no parameter is needed; "never": a stream never
    # has them
    usage: str = "stream_options"

    # --- messages ------------------------------------------------------------------------------------------

    # field in the message of an answer (* for every other field) → when the field is sent back; a field without an
    # entry is not sent back
    send_back: Mapping[str, When] = field(default_factory=dict)
    # field in a tool call of an answer → when the field is sent back, as in `send_back`
    send_back_in_calls: Mapping[str, When] = field(default_factory=dict)
    # fields that the server requires in every earlier answer, even in an answer that another model wrote
    stand_ins: frozenset[str] = frozenset()
    id_form: str = ""  # a pattern that each tool call id must match as a whole; "" if the server accepts every id
    roles: Roles = Roles()
    # the form of pictures in a request: image_url, source (Anthropic), images (Ollama); "" if pictures are not
    # supported
    images: str = "image_url"

    # --- answers -------------------------------------------------------------------------------------------
    stops: Mapping[str, str] = field(default_factory=dict)  # additional entries to STOPS for this kind of server

    # --- the window ----------------------------------------------------------------------------------------
    # whether the server can report its context window, so that the client requests the window
    tells_window: bool = True

    def stop(self, reason: str) -> str:
        """This program's stop reason for the server's stop reason, "" for an unknown reason.

        Gemini joins two stop reasons in one text: `content_filter: RECITATION`.
        """
        word = reason.strip().lower().removeprefix("finish_reason_").removeprefix("stop_reason_")
        words = (word, *(part.strip() for part in reversed(re.split(r"[:;,/|]", word))))
        return next((found for one in words if (found := self.stops.get(one) or STOPS.get(one, ""))), "")


LOCAL_ROLES = Roles(one_system=True, user_first=True, no_neighbours=True, no_empty_assistant=True)
"""The rules for messages of strict chat templates, for self-hosted servers."""
