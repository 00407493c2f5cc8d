"""Dialects of self-hosted servers; most of them are recognised by the data that they send.

The sources of the rules in this table of dialects are in docs/wire.md.
"""

from __future__ import annotations

from agent.llm.dialects.base import LOCAL_ROLES, Dialect, When

COMPATIBLE = Dialect(
    "compatible",
    "a server of OpenAI's wire",
    local=True,
    roles=LOCAL_ROLES,
    send_back={"*": When.ALWAYS},
    send_back_in_calls={"*": When.ALWAYS},
)
"""The dialect of a server with OpenAI's API that was not recognised."""

VLLM = Dialect(
    "vllm",
    "vLLM",
    owners=("vllm",),
    local=True,
    roles=LOCAL_ROLES,
    send_back={"reasoning_content": When.LOOP, "reasoning": When.LOOP},
)
SGLANG = Dialect(
    "sglang",
    "SGLang",
    owners=("sglang",),
    local=True,
    roles=LOCAL_ROLES,
    send_back={"reasoning_content": When.LOOP},
    stops={"abort": "error"},
)
TGI = Dialect(
    "tgi",
    "Text Generation Inference",
    any_name=True,
    local=True,
    roles=LOCAL_ROLES,
    stops={"eos_token": "stop", "stop_sequence": "stop"},
)
LLAMACPP = Dialect(
    "llamacpp",
    "llama.cpp",
    owners=("llamacpp",),
    any_name=True,
    local=True,
    roles=LOCAL_ROLES,
    send_back={"reasoning_content": When.LOOP},
)
LMSTUDIO = Dialect(
    "lmstudio",
    "LM Studio",
    owners=("organization_owner",),
    local=True,
    roles=LOCAL_ROLES,
    send_back={"reasoning_content": When.ASKED, "reasoning": When.ASKED},
    names_tool=False,
)
OLLAMA = Dialect(
    "ollama",
    "Ollama",
    hosts=("ollama.com",),
    owners=("library",),
    local=True,
    roles=LOCAL_ROLES,
    send_back={"thinking": When.LOOP, "reasoning": When.LOOP},
    images="images",
)
LITELLM = Dialect(
    "litellm",
    "LiteLLM",
    marks=("x-litellm-version", "x-litellm-call-id", "x-litellm-model-id"),
    local=True,
    roles=LOCAL_ROLES,
    send_back={"reasoning_content": When.ALWAYS, "thinking_blocks": When.ALWAYS},
    send_back_in_calls={"extra_content": When.ALWAYS, "provider_specific_fields": When.ALWAYS},
)
REPLAY = Dialect("replay", "a recorded conversation", owners=("replay",), local=True, roles=LOCAL_ROLES)

LOCAL = (COMPATIBLE, VLLM, SGLANG, TGI, LLAMACPP, LMSTUDIO, OLLAMA, LITELLM, REPLAY)
