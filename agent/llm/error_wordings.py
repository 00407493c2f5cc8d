"""Codes and wordings in the error bodies of model servers, as data, with the servers that send them where they are
known.  `error_mapping.py` checks the codes before the wordings.

A wording is needed where a server, or a gateway before it, sends no code; kinds of errors that differ by their HTTP
status need no wordings. To add a wording, add one line to `error_wordings.py`; `docs/wire.md` describes the kinds of
errors. Codes are compared in lower case, and wordings without regard to case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def _any(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE | re.DOTALL)


# --- codes: `code`, `type`, `status` and `reason` of a body and of the errors in it -----------------------------------

RECORDING_OVER = "recording_over"
"""The code of the replay server for a request behind the last recorded answer."""

QUOTA_CODES = frozenset(
    (
        "insufficient_quota",  # OpenAI
        "credit_balance_exhausted",  # OpenAI
        "organization_spend_limit_exceeded",  # OpenAI
        "project_spend_limit_exceeded",  # OpenAI
        "organization_usage_limit_exceeded",  # OpenAI
        "billing_hard_limit_reached",  # OpenAI
        "billing_not_active",  # OpenAI
        "billing_error",  # code that Anthropic sends (documented on Anthropic's page about errors)
        # Moonshot sends this code with 429 or 403: MoonshotAI/kimi-code PR#1857, MoonshotAI/Kimi-K2#5
        "exceeded_current_quota_error",
        "insufficient_user_quota",  # code of the gateway new-api, sent with status 403 (QuantumNous/new-api)
        "insufficient_balance",  # code of DeepSeek, if it is used through a gateway
        "payment_required",  # OpenRouter
        "arrearage",  # code sent by DashScope (documented on DashScope's page of error codes)
    )
)
OVERFLOW_CODES = frozenset(
    (
        "context_length_exceeded",  # OpenAI, Azure
        "context_window_exceeded",
        "model_context_window_exceeded",  # z.ai
        "exceed_context_size_error",  # llama.cpp
        "request_too_large",  # Anthropic
        "model_max_prompt_tokens_exceeded",  # Copilot
        "tokens_limit_reached",  # GitHub Models
        "input_too_long",
        "prompt_too_long",
        "1261",  # code of z.ai for "Prompt exceeds max length", zeroclaw-labs/zeroclaw#4124
    )
)
RATE_CODES = frozenset(
    (
        "rate_limit_exceeded",  # OpenAI
        "rate_limit_error",  # Anthropic
        "rate_limit_reached_error",  # code sent by Moonshot: MoonshotAI/kimi-cli#901
        "too_many_requests",  # Azure, Together
        "toomanyrequestsexception",  # Bedrock
        "throttlingexception",  # Bedrock
        "throttling",  # code sent by DashScope, also with a suffix such as .ratequota or .allocationquota
        "resource_exhausted",  # Google
        "slow_down",  # OpenAI
    )
)
ACCESS_CODES = frozenset(
    (
        "invalid_api_key",  # OpenAI, Groq
        "authentication_error",  # Anthropic
        "permission_error",  # Anthropic
        "api_key_invalid",  # Google, under 400
        "invalidapikey",  # DashScope
        "accessdeniedexception",  # Bedrock
        "unrecognizedclientexception",  # Bedrock
        "account_deactivated",  # OpenAI
    )
)
REGION_CODES = frozenset(("unsupported_country_region_territory",))  # OpenAI, under 403
MODEL_CODES = frozenset(
    (
        "model_not_found",  # code sent by OpenAI and LM Studio
        "model_not_available",  # Together
        "model_not_supported",  # Copilot
        "model_decommissioned",  # Groq
        "model_terms_required",  # Groq
        "invalid_model",  # Mistral
        "not_found_error",  # code sent by Anthropic and by Ollama's /v1
        "deploymentnotfound",  # Azure
        "modelnotfound",  # DashScope
    )
)
REFUSAL_CODES = frozenset(
    (
        "invalid_request_error",  # OpenAI, Anthropic
        "invalid_argument",  # Google
        "validationexception",  # Bedrock
        "badrequesterror",  # vLLM, LiteLLM
    )
)
"""Error codes that have the meaning of status 400, for an error inside an answer, which has no HTTP status of its
own."""
OVERLOAD_CODES = frozenset(
    (
        "overloaded_error",  # Anthropic
        "engine_overloaded_error",  # code sent by Moonshot with status 429: MoonshotAI/kimi-code#2152
        "server_is_overloaded",  # OpenAI
        "modelnotreadyexception",  # Bedrock
        "capacity_exceeded",  # code of Groq's flex tier, sent with status 498
    )
)
RESAMPLE_CODES = _any(
    (
        r"tool_use_failed",  # code sent by Groq with status 400: pydantic/pydantic-ai#2759, huggingface/smolagents#1119
        r"output_parse_failed",  # Groq: 400
        r"json_validate_failed",  # code sent by Groq with status 400: langchain-ai/langchain#31459
        # code of Google, as a stop reason or as the `status` of an error
        r"(?:malformed|unexpected|invalid)_(?:function|tool)_calls?",
        r"(?:tool|function)_calls?_(?:pars|invalid|malformed|fail)\w*",
        r"modelerrorexception",  # code of Bedrock: "The model produced invalid sequence as part of ToolUse"
    )
)
"""Error codes with which a server reports that it cannot parse the output of its model: the same request may succeed
when it is repeated."""

# --- wordings -------------------------------------------------------------------------------------------------------

RESAMPLE = _any(
    (
        # Wordings sent by llama.cpp and Bedrock.
        r"model produced output that does not match|produced invalid sequence",
        r"failed to parse (?:the )?(?:model )?output",
        r"failed to parse (?:the )?(?:tool|function) ?calls?",  # wording sent by llama.cpp: continuedev/continue#7491
        r"failed to parse input at pos",  # wording sent by llama.cpp: ggml-org/llama.cpp#23838, #24644
        # wording sent by Ollama with status 500: ollama/ollama#12064, #12884, #17638
        r"error parsing (?:the )?tool calls?",
        r"failed to call a function",  # wording sent by Groq in a stream: anomalyco/opencode#1018
        r"generated output that could not be parsed",  # Groq
        # Wording sent by Groq when the model called a tool that was not offered.
        r"attempted to call tool .{0,200} not in request",
        r"(?:tool|function) call .{0,40}(?:malformed|could not be parsed)|malformed (?:tool|function) call",
    )
)
_TOOLS = r"(?:tools?|functions?)(?:[ _-](?:use|calls?|calling|choice))?"
_MISSING = r"(?:not (?:yet )?(?:supported|enabled|available|allowed|implemented)|unsupported|disabled)"
TOOLS_REFUSED = _any(
    (
        # wording sent by Ollama (status 400) and by DeepSeek's reasoner
        r"(?:not|n't|cannot) (?:currently )?support (?:native )?(?:tool|function)(?:s\b|[ _-]?(?:use|call))",
        rf"{_TOOLS}(?: param(?:eter)?s?)? (?:is|are) (?:currently )?{_MISSING}",
        r"(?:tools?|function)(?:[ _-](?:use|call|calling))? unsupported",
        r"no endpoints found that support tool use",  # OpenRouter: 404
        r"tool choice requires --enable-auto-tool-choice",  # vLLM: 400
        # Wording sent by llama.cpp without --jinja: status 500, in later versions 400.
        r"tools?(?: param)? requires? --jinja",
        r"cannot use tools? with|tools? cannot be used with",
    )
)
NO_ANSWER_TO_TOOLS = frozenset(("tools", "tool_choice", "functions", "function_call"))
"""Parameters for tools in a request: a server without tool calls does not know them and may name one of them in its
refusal."""
INPUT = re.compile(r"(?:messages|inputs?|prompt|contents?|body)\b|input_|prompt_", re.IGNORECASE)
"""Matches the names of parameters that contain the prompt: a server that names only such parameters in a refusal may
have refused the request because the prompt is too long."""

_N = r"(?P<{}>\d(?:[\d,_.]{{0,18}}\d)?)"
_L, _R = _N.format("limit"), _N.format("requested")
_OF_ANSWER = rf"(?:.{{0,200}}?{_N.format('answer')}(?: tokens)? (?:in|for) the (?:completion|output))?"
"""Matches the requested maximum tokens of the answer, which are a part of the number `requested`, if the text of the
error names them separately from the tokens of the prompt."""
_ASKED = r"requested(?: a total of| about)?"


def _then(first: str, then: str) -> str:
    """A regular expression for a text that contains `first` and, anywhere after `first`, `then`.

    The expression tries only the first match of `first`: if `then` does not follow that match, it follows no later
    match of `first` either.
    """
    return rf"\A(?>.*?{first}).*?{then}"


OVERFLOW = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Wordings of a prompt that is too long, with numbers: the groups `limit` and `requested` match the numbers of
        # tokens, and `answer` matches a number that is subtracted from `requested`. The first wording of OVERFLOW is
        # used by OpenAI, vLLM, SGLang and OpenRouter.
        _then(
            rf"maximum context length (?:is|of) {_L} tokens",
            rf"(?:resulted in|{_ASKED}|contains?(?: at least)?|has) {_R}{_OF_ANSWER}",
        ),
        # wording sent by vLLM ≥ 0.11: proxysoul/Empryo#52
        _then(rf"passed {_R} input tokens", f"context length is only {_L}"),
        _then(f"input tokens exceed the configured limit of {_L} tokens", f"resulted in {_R}"),  # OpenAI
        rf"prompt is too long: {_R} tokens > {_L}",  # Anthropic
        rf"prompt is too long: {_R}, model maximum context length: {_L}",  # Fireworks
        rf"input length and `?max_tokens`? exceed context limit: {_R} \+ \d+ > {_L}",  # Anthropic
        rf"request \({_R} tokens\) exceeds the available context size \({_L} tokens\)",  # llama.cpp
        # LM Studio
        _then(f"keep the first {_R} tokens when context the overflows", f"context length of only {_L} tokens"),
        rf"n_keep \({_R}\) >= n_ctx \({_L}\)",  # LM Studio
        rf"input token count \({_R}\) exceeds the maximum number of tokens allowed \({_L}\)",  # Gemini
        rf"input token count is {_R} but (?:the )?model only supports up to {_L}",  # Vertex
        rf"maximum prompt length is {_L}.{{0,300}}?contains {_R}",  # xAI
        rf"input \({_R} tokens\) is longer than the model'?s context length \({_L} tokens\)",  # QwenLM/Qwen3#1321
        # RooCodeInc/Roo-Code#2988
        rf"input length (?:of )?{_R} exceeds (?:the )?(?:maximum|context) length (?:of )?{_L}",
        rf"must (?:be <=|have less than) {_L}(?: tokens)?\. given: {_R}",  # TGI
        rf"max input tokens: {_L}, request input token count: {_R}",  # Bedrock Titan
        rf"cannot exceed {_L}(?: tokens)?[ ,-]+received {_R}",  # Cohere
        rf"prompt has {_R} tokens?, but the configured context size is {_L}",
        rf"maximum output tokens \({_R}\) exceeded this model context window limit \({_L}\)",  # Cloudflare
        # wording sent by OpenRouter with status 402 of a free account: continuedev/continue#11540
        rf"prompt tokens limit exceeded: {_R} > {_L}",
        rf"prompt contains {_R} tokens.{{0,300}}?too large.{{0,300}}?{_L} maximum",  # Mistral
        rf"too large for model with {_L} maximum context length",  # Mistral
        rf"prompt token count of {_R} exceeds the limit of {_L}",  # Copilot
        rf"exceeded model token limit:? {_L}(?:.*?requested:? {_R})?",  # Kimi
        rf"range of input length should be \[\d+, ?{_L}\]",  # wording sent by DashScope: anomalyco/opencode PR#45834
        rf"maximum (?:allowed )?input length of {_L}",  # Poolside
        rf"maximum context length (?:is|of) {_L}",
        rf"maximum prompt length is {_L}",
        rf"body too large for .{{1,80}} max size: {_L} tokens",  # GitHub Models
        # The following wordings of a prompt that is too long contain no numbers of tokens, or numbers that are not
        # read.
        r"input is too long|input_too_long",  # wording sent by Bedrock: continuedev/continue#9592
        r"prompt exceeds max(?:imum)? length",  # z.ai
        r"prompt too long; exceeded (?:max )?context length",  # Ollama
        r"(?:larger|longer) than the (?:model'?s )?context (?:length|window)",
        r"exceeds? the (?:model'?s )?context (?:window|length)",
        r"context window exceeds limit",  # MiniMax
        r"exceeds? the available context size",
        r"longer than the context length currently available",  # Ollama
        r"greater than the context length",  # LM Studio
        r"input length and `?max_tokens`? exceed context limit",
        _then("input token count", "exceeds the maximum number of tokens"),
        r"reduce the length of the (?:messages|input|prompt)",  # Groq, vLLM
        r"context[ _]length[ _]exceeded",
        r"prompt is too long|prompt_too_long|too many (?:input )?tokens",
        r"exceeds the limit of \d+ tokens",
        _then("token count", "exceeds the limit of"),
        r"exceeded model token limit|token limit exceeded",
        r"context size has been exceeded",
    )
)
NOT_OVERFLOW = _any((r"invalid '?user'?", r"string_above_max_length", r"string too long"))
OUTPUT_TOO_LONG = _any(
    (
        r"max_(?:completion_)?tokens'?.{0,40}cannot be greater than max_model_len",  # vLLM
        r"range of max_tokens should be",  # DashScope
    )
)
"""Matches the wordings of servers that refuse the requested maximum of the answer, not the prompt, as too large."""

TOO_LARGE = re.compile(rf"request too large.*?(?:limit:? {_L}.*?requested:? {_R})?", re.IGNORECASE | re.DOTALL)
LIMIT_REQUESTED = re.compile(rf"limit:? {_L}.{{0,300}}?requested:? {_R}", re.IGNORECASE | re.DOTALL)
PER_DAY = re.compile(r"\b(?:per day|rpd|tpd|daily limit|daily quota)\b", re.IGNORECASE)

HISTORY = _any(
    (
        r"must be a response to a prece?eding message",
        r"must be followed by tool messages",
        r"insufficient tool messages following",
        r"message\[\d+\]\.role",
        r"duplicate value for 'tool_call_id'",
        # wording sent by Mistral, and by vLLM with Mistral's tokenizer, there with status 500: vllm-project/vllm#18412
        r"call id was .{1,5000} but must be",
        r"tool_use.{0,40}ids? (?:must be unique|were found without)",
        r"unexpected `?tool_use_id`?",
        r"additional properties are not allowed",
        r"unknown parameter: 'input\[\d+\]",
        r"expected a string, got null",
        r"invalid message content type",
        r"content' field must be a string",
        r"invalid (?:type for |value for )?'messages\b(?!.*string too long)",
        r"is too short - 'messages'",
        r"is not one of \[.*\] - 'messages",
        r"invalid tool call arguments",
        r"cannot unmarshal .{1,40} field chatrequest\.messages",
        r"no low surrogate in string|unpaired surrogate|lone leading surrogate",
        r"jinja|rendering prompt|roles must alternate|conversation roles",
        r"no user query found",
        r"cannot pass both content and thinking",
    )
)
NO_MEMORY = _any((r"requires more (?:system|gpu|video)? ?memory .{0,40}than is available",))  # Ollama: 500, ollama#4977
NO_MODEL = _any(
    (
        r"no models? (?:is |are )?loaded",
        r"not found, try pulling it first",
        r"model .{0,120}does not exist",
        r"failed to load model",
        r"model .{0,120}not found",
        r"unknown model|model unloaded|invalid model",
    )
)
NO_ACCESS = _any(
    (r"(?:incorrect|invalid) api key", r"api key not valid", r"api key .{0,40}expired")
)  # xAI, Google: 400
REGION = _any(
    (
        r"(?:location|region|country|territory)(?: is)? (?:not |un)(?:supported|available)",
        r"not (?:supported|available) in your (?:country|region|location)",
    )
)  # wording sent by Google with status 400 FAILED_PRECONDITION: google-gemini/gemini-cli#24641
MODERATED = _any(
    (
        r"(?:input|prompt) was flagged|requires moderation",
        r"content (?:management )?policy|content[ _](?:policy|filter)",
        r"data_inspection",
    )
)
LOW_CREDIT = _any(
    (
        r"credit balance",  # Anthropic: 400
        r"insufficient (?:account )?(?:balance|credits?|funds)",  # wording sent by DeepSeek, Moonshot and z.ai
        r"余额不足",  # wording sent by z.ai with status 429 and code 1113: continuedev/continue#10297
    )
)
WRONG_PATH = _any((r"unexpected endpoint or method", r"returning 200 anyway"))  # LM Studio
LOADING = _any((r"loading model", r"model is (?:currently |still )?loading"))
