"""Requests that model servers refuse, one value per server: written from vendors' documents and public reports.

It imports nothing of the program, so that a mistake in one of the program's rules becomes visible.  `dialect_server.py`
serves them.  A check examines the body of a request and returns the fault as (status, error body), or None.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from jsonschema import Draft202012Validator, SchemaError

PLAIN = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
COMMON = {"model", "messages", "stream", "stream_options", "tools", "max_tokens", "tool_choice", "temperature"}


def openai_error(message, kind="invalid_request_error", code=None, param=None):
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def unknown_keys(body, allowed, extra=()):
    """(number, role, key) of the first key of a message that is not allowed."""
    for number, message in enumerate(body["messages"]):
        for key in message:
            if key not in allowed.get(message["role"], set()) | set(extra):
                return number, message["role"], key
    return None


def broken_pairs(messages):
    """The first call without its result directly after it, or result without its call; "" if none."""
    waiting = set()
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls'. ({number})"
                )
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            )
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    return ""


# --- checks -----------------------------------------------------------------------------------------------------------


def pairs(body, _server):
    """The order of calls and results: BerriAI/litellm#4931, #10696."""
    if words := broken_pairs(body["messages"]):
        return 400, openai_error(words, param="messages")
    return None


def only_known_keys(body, _server):
    """agentic#531, openai/openai-node#1161: keys that are not in the schema."""
    if found := unknown_keys(body, PLAIN):
        number, _, key = found
        words = f"Additional properties are not allowed ('{key}' was unexpected) - 'messages.{number}'"
        return 400, openai_error(words)
    return None


def reasoning_models_of_openai(body, _server):
    """openai/openai-python#2046: GPT-5 and the o-series take max_completion_tokens only."""
    if "max_tokens" in body:
        words = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return 400, openai_error(words, code="unsupported_parameter", param="max_tokens")
    return None


def openai_parameters(body, _server):
    """Parameters that the schema does not have; `prompt_cache_key` is in it (tests/specs/openai-chat.json)."""
    for key in sorted(set(body) - COMMON - {"max_completion_tokens", "parallel_tool_calls", "prompt_cache_key"}):
        words = f"Unrecognized request argument supplied: {key}"
        return 400, openai_error(words, code="unrecognized_request_argument", param=key)
    return None


def openai_tools(body, _server):
    """langchain-ai/langchainjs#9804, ruvnet/ruflo#1296 and the API reference: names, schemas and number."""
    if (count := len(body.get("tools") or ())) > 128:
        words = f"Invalid 'tools': array too long. Expected an array with maximum length 128, but got {count} instead."
        return 400, openai_error(words, code="array_above_max_length", param="tools")
    for number, tool in enumerate(body.get("tools") or ()):
        name, schema = tool["function"]["name"], tool["function"].get("parameters") or {}
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            words = f"Invalid 'tools[{number}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
            return 400, openai_error(words, code="invalid_value", param=f"tools[{number}].function.name")
        found = {"oneOf", "anyOf", "allOf", "enum", "not"} & set(schema)
        words = f"Invalid schema for function '{name}': "
        if schema.get("type") != "object" or found:
            words += (
                "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
            )
            return 400, openai_error(words, code="invalid_function_parameters", param=f"tools[{number}].parameters")
        arguments = [one for one in schema.get("properties", {}).values() if isinstance(one, dict)]
        if any("array" in str(one.get("type")) and "items" not in one for one in arguments):
            words += "In context=('properties',), array schema missing items."
            return 400, openai_error(words, code="invalid_function_parameters", param=f"tools[{number}].parameters")
    return None


def azure_parameters(body, _server):
    """vectorize-io/hindsight#3518: Azure's endpoint refuses the key of OpenAI's prompt cache for some models."""
    if "prompt_cache_key" in body:
        words = "Unrecognized request argument supplied: prompt_cache_key"
        return 400, openai_error(words, code="unrecognized_request_argument")
    return None


def openrouter_marks(body, _server):
    """openrouter.ai/docs/guides/best-practices/prompt-caching, microsoft/vscode#312939: for Claude `cache_control` may
    stand at the root of a request."""
    if body.get("cache_control") not in (None, {"type": "ephemeral"}):
        return 400, openai_error("cache_control: Input should be an object of type ephemeral")
    return None


def mistral_schema(body, _server):
    """charmbracelet/crush#1590, editor-code-assistant/eca#231, Gage-Technologies/mistral-go PR#2; the key of the prompt
    cache: docs.mistral.ai/studio-api/conversations/advanced/prompt-caching."""
    known = COMMON - {"stream_options"} | {"parallel_tool_calls", "response_format", "top_p", "random_seed"}
    known |= {"prompt_cache_key"}
    found = [(["body", key], body[key]) for key in sorted(set(body) - known)]
    if bad := unknown_keys(body, PLAIN, ("prefix", "name")):
        number, role, key = bad
        found.append((["body", "messages", number, role, key], body["messages"][number][key]))
    if not found:
        return None
    detail = [
        {"type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted", "input": value}
        for place, value in found
    ]
    return 422, {
        "object": "error",
        "message": {"detail": detail},
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def mistral_roles(body, _server):
    """aaif-goose/goose#5998, zed-industries/zed#37021: no user message behind a tool message."""
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if before == "tool" and role not in ("tool", "assistant"):
            return 400, mistral_error(f"Unexpected role '{role}' after role 'tool'", "3230")
        before = role
    return None


def mistral_ids(body, _server):
    """anomalyco/opencode#1680: ids are nine letters and digits."""
    for message in body["messages"]:
        for call_id in [call["id"] for call in message.get("tool_calls") or ()] + [message.get("tool_call_id")]:
            if call_id is not None and not re.fullmatch(r"[a-zA-Z0-9]{9}", call_id):
                words = f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
                return 400, mistral_error(words, "3280")
    return None


def mistral_error(message, code):
    return {"object": "error", "message": message, "type": "invalid_request_error", "param": None, "code": code}


def deepseek_reasoning(body, server):
    """api-docs.deepseek.com/guides/thinking_mode, anomalyco/opencode#24722: required on each answer with calls, in all
    later requests."""
    if server.thinks and any(
        message.get("tool_calls") and "reasoning_content" not in message for message in body["messages"]
    ):
        words = "The `reasoning_content` in the thinking mode must be passed back to the API."
        return 400, openai_error(words, code="invalid_request_error")
    return None


def kimi_reasoning(body, server):
    """continuedev/continue#11600, mastra-ai/mastra#12592."""
    for number, message in enumerate(body["messages"]):
        if server.thinks and message.get("tool_calls") and not message.get("reasoning_content"):
            words = (
                f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {number}"
            )
            return 400, {"error": {"message": words, "type": "invalid_request_error"}}
        if message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls"):
            words = f"Invalid request: the message at position {number} with role 'assistant' must not be empty"
            return 400, {"error": {"message": words, "type": "invalid_request_error"}}
    return None


def groq_properties(body, _server):
    """janhq/jan#8136, karthink/gptel#774."""
    if found := unknown_keys(body, PLAIN, ("name",)):
        number, role, key = found
        words = (
            f"'messages.{number}' : for 'role:{role}' the following must be satisfied"
            f"[('messages.{number}' : property '{key}' is unsupported)]"
        )
        return 400, {"error": {"message": words, "type": "invalid_request_error"}}
    for key in set(body) - COMMON - {"max_completion_tokens", "parallel_tool_calls", "top_p", "seed", "stop", "user"}:
        return 400, {"error": {"message": f"property '{key}' is unsupported", "type": "invalid_request_error"}}
    return None


def gemini_signature(body, server):
    """0xsline/OpenChatCut#6, securo-finance/securo#884: the first call of each step has its signature."""
    for number, message in enumerate(body["messages"]):
        calls = message.get("tool_calls") or ()
        if not server.thinks or not calls:
            continue
        if not calls[0].get("extra_content", {}).get("google", {}).get("thought_signature"):
            words = (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
                "correctly, and missing thought_signature may lead to degraded model performance. Additional data, "
                f"function call `default_api:{calls[0]['function']['name']}` , position {number}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
            return 400, [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}]
    return None


def gemini_schema(body, _server):
    """googleapis/python-genai#699: fields that its schema does not have."""
    for key in set(body) - COMMON - {"max_completion_tokens", "parallel_tool_calls", "top_p", "reasoning_effort"}:
        words = f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.'
        return 400, [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}]
    return None


def openrouter_reasoning(body, server):
    """openrouter.ai/docs/use-cases/reasoning-tokens: `reasoning_details` go back unchanged; the error of the provider
    behind it is quoted in `metadata.raw`."""
    for message in body["messages"]:
        if server.thinks and message.get("tool_calls") and not message.get("reasoning_details"):
            raw = {"error": {"code": 400, "message": "Function call is missing a thought_signature", "status": "X"}}
            metadata = {"raw": json.dumps(raw), "provider_name": "Google AI Studio"}
            return 400, {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}
    return None


def anthropic_thinking(body, server):
    """docs.anthropic.com, "Preserving thinking blocks": an answer with a call begins with its thinking block."""
    for number, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] == "assistant" and server.thinks and any(one["type"] == "tool_use" for one in blocks):
            first = blocks[0]
            if first["type"] not in ("thinking", "redacted_thinking"):
                words = (
                    f"messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                    f"`{first['type']}`. When `thinking` is enabled, a final `assistant` message must start with a "
                    "thinking block"
                )
                return 400, anthropic_error(words)
            if first.get("signature") not in server.signatures:
                return 400, anthropic_error(f"messages.{number}.content.0: Invalid `signature` in `thinking` block")
    return None


def anthropic_form(body, _server):
    """docs.anthropic.com/en/api/messages: max_tokens is required, turns alternate, results follow their calls."""
    if "max_tokens" not in body:
        return 400, anthropic_error("max_tokens: Field required")
    before, waiting = "assistant", set()
    for number, message in enumerate(body["messages"]):
        if message["role"] not in ("user", "assistant") or message["role"] == before:
            return 400, anthropic_error(f'messages.{number}: roles must alternate between "user" and "assistant"')
        before = message["role"]
        blocks = message["content"] if isinstance(message["content"], list) else []
        answered = {one["tool_use_id"] for one in blocks if one["type"] == "tool_result"}
        if waiting != answered:
            lost = ", ".join(sorted(waiting - answered))
            words = (
                f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: {lost}"
            )
            return 400, anthropic_error(words)
        waiting = {one["id"] for one in blocks if one["type"] == "tool_use"}
    return None


def anthropic_tools(body, _server):
    """ComposioHQ/composio#3500, decocms/studio#6874, anomalyco/opencode#2082: one tool makes a whole request illegal."""
    for number, tool in enumerate(body.get("tools") or ()):
        schema, where = tool["input_schema"], f"tools.{number}.custom"
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]):
            return 400, anthropic_error(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if {"oneOf", "allOf", "anyOf"} & set(schema):
            words = f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
            return 400, anthropic_error(words)
        if not all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) for key in schema.get("properties", {})):
            pattern = "^[a-zA-Z0-9_.-]{1,64}$"
            words = f"{where}.input_schema.properties: Property keys should match pattern '{pattern}'"
            return 400, anthropic_error(words)
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError:
            words = "JSON schema is invalid. It must match JSON Schema draft 2020-12"
            return 400, anthropic_error(f"{where}.input_schema: {words}")
    return None


def anthropic_marks(body, server):
    """platform.claude.com/docs/en/build-with-claude/prompt-caching: at most four marks, none on thinking."""
    words = server.cache.refusal(body)
    return (400, anthropic_error(words)) if words else None


def anthropic_error(message, kind="invalid_request_error"):
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def strict_template(body, _server):
    """ggml-org/llama.cpp#9291, lmstudio-ai/lmstudio-bug-tracker#1586: templates that count turns."""
    turns = [m["role"] for m in body["messages"] if m["role"] in ("user", "assistant") and not m.get("tool_calls")]
    late = any(m["role"] == "system" for m in body["messages"][1:])
    if late or any(role != ("user", "assistant")[number % 2] for number, role in enumerate(turns)):
        words = (
            "Jinja Exception: After the optional system message, conversation roles must alternate "
            "user/assistant/user/assistant/..."
        )
        return 500, {"error": {"code": 500, "message": words, "type": "server_error"}}
    return None


def vllm_schema(body, _server):
    """vllm-project/vllm#9033: fields are checked by pydantic; `auto` tools need a parser, which this one has."""
    for number, message in enumerate(body["messages"]):
        for call in message.get("tool_calls") or ():
            try:
                json.loads(call["function"]["arguments"])
            except (ValueError, TypeError):
                detail = f"messages.{number}: tool call arguments are no JSON"
                return 400, {
                    "object": "error",
                    "message": detail,
                    "type": "BadRequestError",
                    "param": None,
                    "code": 400,
                }
    return None


def tgi_schema(body, _server):
    """huggingface/text-generation-inference, router/src/lib.rs: content null is no text; text error bodies."""
    for message in body["messages"]:
        if message.get("content") is None and not message.get("tool_calls"):
            return (
                422,
                "Failed to deserialize the JSON body into the target type: messages: data did not match any variant",
            )
    return None


def litellm_parameters(body, _server):
    """BerriAI/litellm, UnsupportedParamsError: parameters that the model behind it does not accept."""
    for key in ("stream_options", "parallel_tool_calls"):
        if key in body:
            words = (
                f"litellm.UnsupportedParamsError: mistral does not support parameters: ['{key}'], for model=m. To drop "
                "these, set `litellm.drop_params=True` or for proxy: `litellm_settings: drop_params: true`"
            )
            return 400, openai_error(words, "None", "400", "None")
    return None


def ollama_form(body, _server):
    """neuron-core/neuron-ai#219, ollama/ollama#12794: arguments are objects, contents are text."""
    for message in body["messages"]:
        if message.get("content") is not None and not isinstance(message["content"], str):
            words = "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
            return 400, {"error": words}
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], dict):
                words = (
                    "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function."
                    "arguments of type api.ToolCallFunctionArguments"
                )
                return 400, {"error": words}
    return None


# --- too long ---------------------------------------------------------------------------------------------------------


def openai_overflow(count, window):
    words = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {count} tokens. "
        "Please reduce the length of the messages."
    )
    return 400, openai_error(words, code="context_length_exceeded", param="messages")


def github_overflow(_count, window):
    """eslint/tsc-meetings PR#593."""
    words = f"Request body too large for m model. Max size: {window} tokens."
    return 413, {"error": {"code": "tokens_limit_reached", "message": words, "details": words}}


def openrouter_overflow(count, window):
    words = (
        f"This endpoint's maximum context length is {window} tokens. However, you requested about {count} tokens "
        f'({count} of text input). Please reduce the length of either one, or use the "middle-out" transform.'
    )
    return 400, {"error": {"message": words, "code": 400, "metadata": {"provider_name": None}}}


def mistral_overflow(count, window):
    words = (
        f"Prompt contains {count} tokens and 0 draft tokens, too large for model with {window} maximum context length"
    )
    return 400, mistral_error(words, "3051")


def groq_overflow(_count, _window):
    words = "Please reduce the length of the messages or completion."
    return 400, openai_error(words, code="context_length_exceeded", param="messages")


def gemini_overflow(count, window):
    words = f"The input token count ({count}) exceeds the maximum number of tokens allowed ({window})."
    return 400, [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}]


def kimi_overflow(count, window):
    words = f"Invalid request: Your request exceeded model token limit: {window} (requested: {count})"
    return 400, {"error": {"message": words, "type": "invalid_request_error"}}


def dashscope_overflow(_count, window):
    """anomalyco/opencode PR#45834."""
    words = f"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {window}]"
    return 400, openai_error(words, code="invalid_parameter_error")


def vllm_overflow(count, window):
    words = (
        f"This model's maximum context length is {window} tokens. However, your request has {count} input tokens. "
        "Please reduce the length of the input messages."
    )
    return 400, {"error": {"message": words, "type": "BadRequestError", "param": None, "code": 400}}


def sglang_overflow(count, window):
    words = f"The input ({count} tokens) is longer than the model's context length ({window} tokens)."
    return 400, {"object": "error", "message": words, "type": "BadRequest", "param": None, "code": 400}


def tgi_overflow(count, window):
    words = f"Input validation error: `inputs` must have less than {window} tokens. Given: {count}"
    return 422, {"error": words, "error_type": "validation"}


def llamacpp_overflow(count, window):
    words = f"request ({count} tokens) exceeds the available context size ({window} tokens), try increasing it"
    numbers = {"n_prompt_tokens": count, "n_ctx": window}
    return 400, {"error": {"code": 400, "message": words, "type": "exceed_context_size_error", **numbers}}


def lmstudio_overflow(count, window):
    words = (
        f"Trying to keep the first {count} tokens when context the overflows. However, the model is loaded with context "
        f"length of only {window} tokens, which is not enough. Try to load the model with a larger context length"
    )
    return 400, {"error": words}


def ollama_overflow(count, window):
    words = (
        f"the prompt is longer than the context length currently available to the model; request ({count} tokens) exceeds "
        f"the available context size ({window} tokens)"
    )
    return 400, {"error": words}


def litellm_overflow(count, window):
    words = (
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: MistralException - "
        + json.dumps(mistral_overflow(count, window)[1])
    )
    return 400, openai_error(words, None, "400")


def anthropic_overflow(count, window):
    return 400, anthropic_error(f"prompt is too long: {count} tokens > {window} maximum")


# --- the servers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """One kind of server.  `path` is where its call is, `address` what a person would write behind the host; `own` what
    it says of itself in its list of models; `reasoning`, `signed`: each answer has opaque fields that a check wants back.
    `thought` is how its usage counts thinking: "inside" the completion and apart in its details (OpenAI, DeepSeek,
    OpenRouter, Anthropic), "beside" the completion, in the total alone (Gemini's endpoint), "" in the completion and
    nowhere else (docs/wire.md, "Usage")."""

    path: str
    overflow: Callable
    address: str = ""
    query: str = ""
    key: str = "authorization"
    wire: str = "openai"
    provider: str = "openai"
    checks: tuple = (pairs,)
    usage: str = "asked"  # always, asked, never
    own: dict = field(default_factory=dict)
    headers: dict = field(default_factory=dict)
    reasoning: str = ""  # the field with the thoughts
    signed: bool = False  # Gemini's signatures in calls
    thought: str = ""
    ids: str = "call_{}"
    stops: dict = field(default_factory=dict)


V1 = "/v1/chat/completions"
RULES = {
    "openai": Rules(
        V1,
        openai_overflow,
        checks=(only_known_keys, reasoning_models_of_openai, openai_parameters, openai_tools, pairs),
        thought="inside",
    ),
    "azure": Rules(
        "/openai/deployments/m/chat/completions",
        openai_overflow,
        address="/openai/deployments/m?api-version=2024-10-21",
        query="api-version=2024-10-21",
        key="api-key",
        checks=(only_known_keys, reasoning_models_of_openai, azure_parameters, openai_tools, pairs),
        thought="inside",
    ),
    "github": Rules("/inference/chat/completions", github_overflow, address="/inference"),
    "openrouter": Rules(
        "/api/v1/chat/completions",
        openrouter_overflow,
        checks=(openrouter_reasoning, openrouter_marks, pairs),
        reasoning="reasoning_details",
        thought="inside",
        usage="always",
    ),
    "deepseek": Rules(
        "/chat/completions",
        openai_overflow,
        checks=(deepseek_reasoning, pairs),
        usage="always",
        reasoning="reasoning_content",
        thought="inside",
        own={"owned_by": "deepseek"},
    ),
    "mistral": Rules(
        V1,
        mistral_overflow,
        checks=(mistral_schema, mistral_roles, mistral_ids, pairs),
        usage="always",
        ids="mistral{:02}",
        own={"owned_by": "mistralai"},
    ),
    "groq": Rules("/openai/v1/chat/completions", groq_overflow, checks=(groq_properties, pairs), reasoning="reasoning"),
    "gemini": Rules(
        "/v1beta/openai/chat/completions",
        gemini_overflow,
        checks=(gemini_schema, gemini_signature, pairs),
        signed=True,
        thought="beside",
    ),
    "kimi": Rules(
        V1, kimi_overflow, checks=(kimi_reasoning, pairs), reasoning="reasoning_content", own={"owned_by": "moonshot"}
    ),
    "dashscope": Rules("/compatible-mode/v1/chat/completions", dashscope_overflow, reasoning="reasoning_content"),
    "vllm": Rules(
        V1, vllm_overflow, key="", checks=(vllm_schema, pairs), own={"owned_by": "vllm"}, reasoning="reasoning"
    ),
    "sglang": Rules(V1, sglang_overflow, key="", own={"owned_by": "sglang"}),
    "tgi": Rules(V1, tgi_overflow, key="", checks=(tgi_schema, pairs), usage="asked", stops={"stop": "eos_token"}),
    "llamacpp": Rules(
        V1,
        llamacpp_overflow,
        key="",
        checks=(strict_template, pairs),
        own={"owned_by": "llamacpp"},
        reasoning="reasoning_content",
    ),
    "lmstudio": Rules(V1, lmstudio_overflow, key="", provider="lmstudio", checks=(strict_template, pairs)),
    "ollama": Rules(
        "/api/chat", ollama_overflow, key="", wire="ollama", provider="ollama", checks=(ollama_form,), usage="always"
    ),
    "litellm": Rules(V1, litellm_overflow, checks=(litellm_parameters, pairs), headers={"x-litellm-version": "1.80.0"}),
    "anthropic": Rules(
        "/v1/messages",
        anthropic_overflow,
        key="x-api-key",
        wire="anthropic",
        provider="anthropic",
        checks=(anthropic_form, anthropic_thinking, anthropic_tools, anthropic_marks),
        usage="always",
        reasoning="thinking",
        thought="inside",
    ),
}
