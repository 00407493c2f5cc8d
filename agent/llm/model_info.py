"""Reads a model's context window and abilities from the responses of servers.

The functions in `model_info.py` only read: they get decoded JSON from a response that a client has requested, and
return None or an empty result if the response does not contain the fact.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.values import Json

KEYS = (
    "max_model_len",  # vLLM, SGLang
    "context_length",  # key in the model lists of OpenRouter, Together and Moonshot
    "context_window",  # Groq
    "max_context_length",  # key in the model lists of Mistral and LM Studio
    "max_context_window_tokens",  # Copilot
    "max_input_tokens",  # key in the model lists of LiteLLM, GitHub Models and Anthropic
    "inputTokenLimit",  # Gemini
    "input_token_limit",
    "n_ctx",
    "max_total_tokens",  # TGI
    "max_seq_len",
)
"""Keys that contain the context window in an entry of a model list; a server may also nest these keys in an object
under one of the keys in NESTED."""
NESTED = ("limits", "top_provider", "model_info", "capabilities", "meta", "metadata")


def positive_int(value: Any) -> int | None:
    """`value` if it is a positive integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def listed_window(entry: Json) -> int | None:
    """The context window in an entry of a model list, under the first of KEYS that has one; the smallest window if the
    entry of a router names several under this key, None if it names none."""
    places = [entry, *(inner for name in NESTED if isinstance(inner := entry.get(name), dict))]
    for key in KEYS:
        if found := [size for place in places if (size := positive_int(place.get(key)))]:
            return min(found)
    return None


def slot_window(props: Any) -> int | None:
    """The context window of one slot (a parallel request), from llama.cpp's response to `/props`; None if the response
    names none."""
    generation = props.get("default_generation_settings") if isinstance(props, dict) else None
    return positive_int(generation.get("n_ctx")) if isinstance(generation, dict) else None


def entries(answer: Any, key: str) -> Iterator[Json]:
    """The objects in the list under `key` of a server's response, or in a response that is itself a list; none if there
    is no such list.

    A response of any other form is possible, since a server may answer an unknown path with status 200.
    """
    listed = answer.get(key) if isinstance(answer, dict) else answer
    return (entry for entry in (listed if isinstance(listed, list) else ()) if isinstance(entry, dict))


def ollama_windows(answer: Any) -> tuple[int | None, int | None]:
    """(the context window that the model's Modelfile sets, the context window with which the model was trained), from
    Ollama's response to `/api/show`."""
    if not isinstance(answer, dict):
        return None, None
    info = answer.get("model_info")
    lengths = (
        [positive_int(value) for key, value in info.items() if key.endswith(".context_length")]
        if isinstance(info, dict)
        else []
    )
    parameters = answer.get("parameters")
    own = re.search(r"^num_ctx\s+(\d{1,12})$", parameters, re.MULTILINE) if isinstance(parameters, str) else None
    return (int(own[1]) or None) if own else None, max((length for length in lengths if length), default=None)


def abilities(answer: Any) -> dict[str, bool]:
    """The abilities of a model that a response reports: {"tools": …, "images": …}; an ability that the response does
    not mention is left out.

    `abilities` reads the responses of llama.cpp's `/props` and Ollama's `/api/show`, and entries in the model lists of
    LM Studio and OpenRouter.
    """
    if not isinstance(answer, dict):
        return {}
    found: dict[str, bool] = {}
    template = answer.get("chat_template_caps")
    if isinstance(template, dict):
        said = [template.get(key) for key in ("supports_tools", "supports_tool_calls")]
        if False in said:
            found["tools"] = False
        elif True in said:
            found["tools"] = True
    modalities = answer.get("modalities")
    if isinstance(modalities, dict) and isinstance(modalities.get("vision"), bool):
        found["images"] = modalities["vision"]
    can = answer.get("capabilities")
    if isinstance(can, list):
        found.setdefault("tools", bool({"tools", "tool_use"}.intersection(map(str, can))))
        if "completion" in can:
            found["images"] = "vision" in can
    elif isinstance(can, dict):
        for name, key in (("tools", "trained_for_tool_use"), ("images", "vision")):
            if isinstance(can.get(key), bool) and (name != "tools" or can[key]):
                found[name] = can[key]
    parameters = answer.get("supported_parameters")
    if isinstance(parameters, list):
        found["tools"] = "tools" in parameters
    architecture = answer.get("architecture")
    inputs = architecture.get("input_modalities") if isinstance(architecture, dict) else None
    if isinstance(inputs, list):
        found["images"] = "image" in inputs
    return found
