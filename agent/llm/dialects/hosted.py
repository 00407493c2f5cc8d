"""Dialects of hosted services, which are recognised by the host name or path of the address, or by the owner of their
models. The sources of the rules in this table of dialects are in docs/wire.md."""

from __future__ import annotations

from dataclasses import replace

from agent.llm.dialects.base import LOCAL_ROLES, Dialect, When

NINE = r"[A-Za-z0-9]{9}"
"""The pattern of the tool call ids that Mistral accepts: nine letters and digits."""

OPENAI = Dialect(
    "openai",
    "OpenAI",
    hosts=("api.openai.com", "*.api.openai.com"),
    limit_key="max_completion_tokens",
    cache_key="prompt_cache_key",
    tells_window=False,
)
AZURE = Dialect(
    "azure",
    "Azure OpenAI",
    hosts=(
        "*.openai.azure.com",
        "*.cognitiveservices.azure.com",
        "*.services.ai.azure.com",
        "*.openai.azure.us",
        "*.openai.azure.cn",
    ),
    paths=("*/openai/deployments/*",),
    base_path="/openai/v1",
    lists_names=False,  # Azure's list has the models that can be deployed, while a request has to name a deployment
    key_header="api-key",
    limit_key="max_completion_tokens",
    tells_window=False,
)
GITHUB = Dialect(
    "github",
    "GitHub Models",
    roles=LOCAL_ROLES,
    hosts=("models.github.ai", "models.inference.ai.azure.com"),
    base_path="/inference",
    models_path="/catalog/models",
)
OPENROUTER = Dialect(
    "openrouter",
    "OpenRouter",
    roles=LOCAL_ROLES,
    hosts=("openrouter.ai", "*.openrouter.ai"),
    base_path="/api/v1",
    cache_marks=("anthropic/*", "~anthropic/*"),
    send_back={"reasoning_details": When.ALWAYS, "reasoning": When.ASKED, "reasoning_content": When.ASKED},
)
DEEPSEEK = Dialect(
    "deepseek",
    "DeepSeek",
    roles=LOCAL_ROLES,
    hosts=("api.deepseek.com", "*.deepseek.com"),
    owners=("deepseek",),
    send_back={"reasoning_content": When.ALWAYS, "thinking_blocks": When.ALWAYS},
    stand_ins=frozenset({"reasoning_content", "thinking_blocks"}),
    stops={"insufficient_system_resource": "error"},
    usage="always",
    images="",
)
MISTRAL = Dialect(
    "mistral",
    "Mistral",
    hosts=("api.mistral.ai", "*.mistral.ai"),
    owners=("mistralai",),
    refused=frozenset({"stream_options"}),
    cache_key="prompt_cache_key",
    usage="always",
    id_form=NINE,
    roles=replace(LOCAL_ROLES, no_user_after_tool=True),
    stops={"model_length": "length", "error": "error"},
)
GROQ = Dialect(
    "groq",
    "Groq",
    roles=LOCAL_ROLES,
    hosts=("api.groq.com",),
    base_path="/openai/v1",
    limit_key="max_completion_tokens",
)
GEMINI = Dialect(
    "gemini",
    "Gemini",
    roles=LOCAL_ROLES,
    hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com", "*-aiplatform.googleapis.com"),
    owners=("google",),
    base_path="/v1beta/openai",
    send_back={"extra_content": When.ALWAYS},
    send_back_in_calls={"extra_content": When.ALWAYS},
    stand_ins=frozenset({"extra_content"}),
)
KIMI = Dialect(
    "kimi",
    "Kimi",
    hosts=("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"),
    owners=("moonshot", "moonshotai"),
    send_back={"reasoning_content": When.ALWAYS, "thinking_blocks": When.ALWAYS},
    stand_ins=frozenset({"reasoning_content", "thinking_blocks"}),
    roles=LOCAL_ROLES,
)
DASHSCOPE = Dialect(
    "dashscope",
    "DashScope",
    roles=LOCAL_ROLES,
    hosts=("dashscope.aliyuncs.com", "dashscope-*.aliyuncs.com", "*.dashscope.aliyuncs.com"),
    base_path="/compatible-mode/v1",
    send_back={"reasoning_content": When.ASKED},
)
ANTHROPIC = Dialect(
    "anthropic",
    "Anthropic",
    hosts=("api.anthropic.com",),
    key_header="x-api-key",
    usage="always",
    send_back={"thinking_blocks": When.ALWAYS},
    send_back_in_calls={"*": When.ALWAYS},
    images="source",
    tells_window=False,
)

HOSTED = (OPENAI, AZURE, GITHUB, OPENROUTER, DEEPSEEK, MISTRAL, GROQ, GEMINI, KIMI, DASHSCOPE, ANTHROPIC)
