"""Lists the windows of models that vendors serve, as data, collected in November 2026 from the vendors' own pages.

Only names of models with the same window on every server are listed. Models that people host themselves are not listed,
since their server reports the window that it has loaded. If the vendor limits the input to less than the window, the
listed number is the input limit.
"""

from __future__ import annotations

import re

MADE = "2026-11"

SERVED: tuple[tuple[str, int], ...] = (
    # source for OpenAI: developers.openai.com/api/docs/models
    (r"gpt-5\.(?:[5-9]|\d\d)(?:-.*)?", 1_050_000),
    (r"gpt-5\.4(?:-pro)?", 1_050_000),
    (r"gpt-5(?:\.\d+)?-chat(?:-.*)?", 128_000),
    (r"gpt-5(?:\.\d+)?(?:-.*)?", 272_000),
    (r"gpt-4\.1(?:-.*)?", 1_047_576),
    (r"gpt-4o(?:-.*)?|chatgpt-4o(?:-.*)?|gpt-4-turbo(?:-.*)?|gpt-4-\d{4}-preview", 128_000),
    (r"gpt-4-32k(?:-.*)?", 32_768),
    (r"gpt-4(?:-0?\d{3,4})?", 8_192),
    (r"gpt-3\.?5-turbo(?:-16k|-1106|-0125)?", 16_385),
    (r"o1-(?:mini|preview)(?:-.*)?", 128_000),
    (r"o[134](?:-mini|-pro)?(?:-\d.*)?", 200_000),
    # source for Anthropic: docs.anthropic.com, "Context windows"
    (r"claude-(?:opus|sonnet)-(?:4[.-][6-9]|[5-9])(?:[.-].*)?", 1_000_000),
    (r"claude-(?:opus|sonnet|haiku|3).*", 200_000),
    # source for Google: ai.google.dev/gemini-api/docs/models
    (r"gemini-1\.5-pro(?:-.*)?", 2_097_152),
    (r"gemini-(?:1\.5-flash|[2-9]).*", 1_048_576),
    # source for DeepSeek: api-docs.deepseek.com
    (r"deepseek-(?:chat|reasoner)", 131_072),
    (r"deepseek-v4(?:-.*)?", 1_048_576),
    # source for Moonshot: platform.moonshot.ai/docs
    (r"kimi-k2-0711-preview|kimi-latest", 131_072),
    (r"kimi-k2(?:[.-].*)?", 262_144),
    (r"moonshot-v1-8k", 8_192),
    (r"moonshot-v1-32k", 32_768),
    (r"moonshot-v1-(?:128k|auto)", 131_072),
    # source for Alibaba: help.aliyun.com/zh/model-studio/models
    (r"qwen3-coder-(?:plus|flash)(?:-.*)?", 1_000_000),
    (r"qwen3-max(?:-.*)?", 262_144),
    (r"qwen-(?:plus|turbo|flash)(?:-.*)?", 131_072),
    (r"qwen-max(?:-.*)?", 32_768),
    # source for Mistral: docs.mistral.ai/getting-started/models
    (r"(?:mistral-(?:large|medium|small)|ministral-\d+b|codestral|devstral(?:-\w+)?)-latest", 131_072),
    # source for xAI: docs.x.ai/docs/models
    (r"grok-4(?:[.\d]*)-fast(?:-.*)?", 2_000_000),
    (r"grok-(?:4|code-fast)(?:[.-].*)?", 256_000),
    (r"grok-3(?:-.*)?", 131_072),
)
"""(pattern of a whole model name, window in tokens); the first row that matches counts."""


def served_window(model: str) -> int | None:
    """The window of a model that its vendor serves, with or without the vendor as a prefix of the name; None for any
    other model."""
    name = model.lower().rpartition("/")[2]
    return next((size for pattern, size in SERVED if re.fullmatch(pattern, name)), None)
