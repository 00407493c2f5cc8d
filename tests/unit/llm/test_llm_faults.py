"""What a server said → which error, which numbers (docs/wire.md, "Errors")."""

import json

import pytest

from agent import clock
from agent.errors import (
    AccessRefused,
    AnswerUnreadable,
    CallUnreadable,
    ContextOverflow,
    HistoryRefused,
    ModelNotFound,
    ModelUnreachable,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
    ToolsRefused,
)
from agent.llm.error_body import parse_document, parse_error_body
from agent.llm.error_mapping import LONGEST_WAIT, map_error


def of(status, error, headers=None):
    body = error if isinstance(error, bytes) else json.dumps(error).encode()
    return map_error(parse_error_body(status, body, headers), "openai at http://localhost/v1")


def openai(message, *, code=None, kind="invalid_request_error", param=None):
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


OVERFLOWS = [
    # status, body, limit, requested
    (400, openai("This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please reduce the length of the messages.", code="context_length_exceeded", param="messages"), 128000, 204308),
    (400, openai("This model's maximum context length is 8192 tokens. However, you requested 10161 tokens (6065 in the messages, 4096 in the completion).", code="context_length_exceeded"), 8192, 6065),
    (400, openai("Your input exceeds the context window of this model. Please adjust your input and try again.", code="context_length_exceeded"), None, None),
    (400, openai("Input tokens exceed the configured limit of 922000 tokens. Your messages resulted in 1751400 tokens.", code="context_length_exceeded"), 922000, 1751400),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}}, 200000, 213462),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again"}}, 200000, 188240),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}, None, None),
    (400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5004, "n_ctx": 4096}}, 4096, 5004),
    (500, {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing the context size or enable context shift", "type": "server_error"}}, None, None),
    (200, {"error": {"code": 400, "message": "request (5004 tokens) exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error"}}, 4096, 5004),
    (400, {"error": "the prompt is longer than the context length currently available to the model; increase it or shorten the prompt"}, None, None),
    (400, {"error": "Trying to keep the first 9173 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}, 4096, 9173),
    (400, {"error": {"message": "The number of tokens to keep from the initial prompt is greater than the context length."}}, None, None),
    (400, {"error": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}, 7424, 15028),
    (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 4500 tokens in the messages, Please reduce the length of the messages.", "type": "BadRequestError", "code": 400}, 4096, 4500),
    (400, [{"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}], 1048576, 1200000),
    (400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}, 131072, 537812),
    (400, openai("Please reduce the length of the messages or completion."), None, None),
    (400, {"object": "error", "message": "Prompt contains 40960 tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error"}, 32768, 40960),
    (400, openai("prompt token count of 150000 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded"), 128000, 150000),
    (400, openai("Invalid request: Your request exceeded model token limit: 131072 (requested: 150000)"), 131072, 150000),
    (400, openai("invalid params, context window exceeds limit (2013)"), None, None),
    # vLLM ≥ 0.11: proxysoul/Empryo#52; behind LiteLLM the body stands as JSON inside the message of another one
    (400, openai("You passed 98305 input tokens and requested 32768 output tokens. However, the model's context length is only 131072 tokens, resulting in a maximum input length of 98304 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=98305)", kind="BadRequestError", param="input_tokens"), 131072, 98305),
    (400, openai("litellm.BadRequestError: OpenAIException - " + json.dumps({"error": {"message": "You passed 2049 input tokens and requested 0 output tokens. However, the model's context length is only 2048 tokens", "type": "BadRequestError", "code": 400}})), 2048, 2049),
    # DashScope: anomalyco/opencode PR#45834 · z.ai: zeroclaw-labs/zeroclaw#4124
    (400, openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]", code="invalid_parameter_error"), 204800, None),
    (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, None, None),
    # Bedrock: continuedev/continue#9592 · Volcano: RooCodeInc/Roo-Code#2988 · SGLang: QwenLM/Qwen3#1321
    (400, {"__type": "ValidationException", "message": "Input is too long for requested model."}, None, None),
    (400, openai("Input length 72054 exceeds the maximum length 65536", code="InvalidParameter"), 65536, 72054),
    (400, {"object": "error", "message": "The input (41234 tokens) is longer than the model's context length (32768 tokens).", "type": "BadRequestError"}, 32768, 41234),
    (400, openai("Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 33000 tokens: 32000 tokens from the input messages and 1000 tokens for the completion."), 32768, 32000),
    # OpenRouter: OpenHands/OpenHands#9937 · with functions: FoundationAgents/OpenManus#62
    (400, openai("This endpoint's maximum context length is 32768 tokens. However, you requested about 40960 tokens (7168 of text input, 1024 of tool input, 32768 in the output). Please reduce the length of either one."), 32768, 8192),
    (400, openai("This model's maximum context length is 16385 tokens. However, you requested 20060 tokens (3500 in the messages, 464 in the functions, and 16096 in the completion)."), 16385, 3964),
    (400, openai("This model's maximum context length is 8191 tokens, however you requested 8238 tokens (8238 in your prompt; 0 for the completion)."), 8191, 8238),
    (402, {"error": {"message": "Prompt tokens limit exceeded: 36163 > 29652. To increase, visit https://openrouter.ai/settings/credits", "code": 402}}, 29652, 36163),
    (400, b"", None, None),
    (413, b"", None, None),
    (422, {"detail": [{"msg": "This model's maximum context length is 4096 tokens", "type": "value_error"}]}, 4096, None),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "limit", "requested"), OVERFLOWS)
def test_a_prompt_that_is_too_long_is_known_by_its_words_and_teaches_the_numbers(status, body, limit, requested):
    error = of(status, body)
    assert type(error) is ContextOverflow
    assert (error.limit, error.requested, error.status) == (limit, requested, status)
    assert error.tries == 1


@pytest.mark.parametrize("way", [str.upper, str.lower])
@pytest.mark.parametrize(("status", "body", "limit", "requested"), OVERFLOWS)
def test_it_is_known_by_its_words_alone_in_capitals_too(way, status, body, limit, requested):
    """As bare text: no code, no type, no object."""
    entry = body[0] if isinstance(body, list) else body
    error = (entry.get("error", entry) if "detail" not in entry else entry["detail"][0]) if entry else {}
    words = error if isinstance(error, str) else error.get("message") or error.get("msg", "")
    known = of(status, {"error": way(words)})
    assert type(known) is ContextOverflow
    if "n_ctx" not in error:
        assert (known.limit, known.requested) == (limit, requested)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai("Invalid 'messages[0].content': string too long. Expected a string with maximum length 10485760", code="string_above_max_length")),
        (400, openai("Invalid 'user': string too long. Expected a string with maximum length 64, context length exceeded", code="string_above_max_length")),
        (429, openai("Rate limit reached: please reduce the length of the messages", code="rate_limit_exceeded")),
        (503, openai("maximum context length is 10 tokens")),
    ],
)  # fmt: skip
def test_other_words_about_length_are_no_overflow(status, body):
    assert not isinstance(of(status, body), ContextOverflow)


def test_a_request_over_the_limit_per_minute_is_too_large_and_not_waited_for():
    text = "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 36278. The input or output tokens must be reduced in order to run successfully."
    error = of(429, openai(text, code="rate_limit_exceeded", kind="tokens"), {"Retry-After": "7"})
    assert type(error) is RequestTooLarge
    assert (error.limit, error.requested, error.tries) == (30000, 36278, 1)


def test_a_request_within_the_limit_per_minute_is_waited_for():
    text = "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s."
    error = of(429, openai(text, code="rate_limit_exceeded", kind="tokens"))
    assert type(error) is RateLimited
    assert error.retry_after == 2.0
    assert error.tries > 1


@pytest.mark.parametrize(
    "code",
    [
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
    ],
)
def test_no_quota_left_is_never_retried(code):
    by_code = of(429, openai("You exceeded your current quota, please check your plan and billing details.", code=code))
    by_type = of(429, openai("You exceeded your current quota", kind=code))
    assert type(by_code) is type(by_type) is QuotaExhausted
    assert by_code.tries == by_type.tries == 1


def test_the_words_insufficient_quota_without_the_code_are_only_a_limit():
    error = of(429, {"error": "INSUFFICIENT QUOTA: too many concurrent requests"})
    assert type(error) is RateLimited


def test_an_empty_balance_at_anthropic_is_a_400_and_still_quota():
    body = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "Your credit balance is too low to access the Anthropic API.",
        },
    }
    assert type(of(400, body)) is QuotaExhausted


def test_a_limit_per_day_is_given_back_at_once():
    error = of(
        429,
        openai(
            "Rate limit reached for gpt-4o on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s.",
            code="rate_limit_exceeded",
        ),
    )
    assert type(error) is RateLimited
    assert error.retry_after > LONGEST_WAIT
    assert error.tries == 1


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"Retry-After": "12"}, "", 12.0),
        ({"retry-after-ms": "1500"}, "", 1.5),
        ({"Retry-After": "1", "Retry-After-Ms": "2500"}, "", 2.5),
        ({"Retry-After": "Sat, 31 Jan 2026 09:15:30 GMT"}, "", 30.0),
        ({"Retry-After": "Sat, 31 Jan 2026 09:00:00 GMT"}, "", 0.0),
        ({"Retry-After": "soon"}, "", None),
        ({}, "Please try again in 11.05s.", 11.05),
        ({}, "Please try again in 200ms. Visit the site", 0.2),
        ({}, "Please try again in 1m30s.", 90.0),
        ({}, "Please try again in 6m0s.", 360.0),
        ({}, "please retry after 20 seconds", 20.0),
        ({}, "Please retry in 34.07s.", 34.07),
        ({}, "Try again in 2 minutes", 120.0),
        ({"Retry-After": "3"}, "Please try again in 11.05s.", 11.05),
        ({}, "Slow down", None),
    ],
)
def test_how_long_to_wait_is_the_longest_of_all_that_was_said(headers, text, seconds):
    with clock.use(clock.FakeClock()):
        error = of(429, openai(text, code="rate_limit_exceeded"), headers)
    assert error.retry_after == pytest.approx(seconds) if seconds is not None else error.retry_after is None


def test_googles_retry_delay_is_understood():
    body = [
        {
            "error": {
                "code": 429,
                "message": "Resource exhausted",
                "status": "RESOURCE_EXHAUSTED",
                "details": [{"retryDelay": "34s"}],
            }
        }
    ]
    assert of(429, body).retry_after == 34.0


def test_a_wait_longer_than_we_obey_is_given_back_with_its_number():
    error = of(429, openai("slow down"), {"Retry-After": "600"})
    assert (error.retry_after, error.tries) == (600.0, 1)


HISTORIES = [
    (400, openai("Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.", param="messages.[1].role")),
    (400, openai("Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")),
    (400, openai("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: call_x", param="messages")),
    (400, openai("insufficient tool messages following tool_calls message")),
    (400, openai("<400> InternalError.Algo.InvalidParameter: message[532].role is wrong")),
    (400, openai("Invalid parameter: Duplicate value for 'tool_call_id' of 'call_1', in messages[7] and messages[8].")),
    (400, openai("Additional properties are not allowed ('id' was unexpected) - 'messages.0'")),
    (400, openai("Unknown parameter: 'input[1].metadata'.", code="unknown_parameter")),
    (400, openai("Invalid value for 'content': expected a string, got null.", param="messages.[1].content")),
    (400, openai("[] is too short - 'messages'")),
    (400, openai("developer is not one of ['system', 'assistant', 'user', 'tool', 'function'] - 'messages.[0].role'")),
    (400, openai("Invalid 'messages[1].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", param="messages[1].name", code="invalid_value")),
    (400, openai("Invalid 'messages[2].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.", param="messages[2].tool_calls", code="empty_array")),
    (400, openai("Invalid type for 'messages[3].content': expected one of a string or array of objects, but got an integer instead.", param="messages[3].content", code="invalid_type")),
    (400, {"error": "json: cannot unmarshal object into Go struct field ChatRequest.messages of type string"}),
    (400, {"error": "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments of type api.ToolCallFunctionArguments"}),
    (400, {"error": {"message": "invalid message content type: <nil>", "type": "invalid_request_error", "param": None, "code": None}}),
    (400, {"error": {"message": "invalid tool call arguments"}}),
    (500, {"error": "no user query found in messages"}),
    (400, {"error": 'Error rendering prompt with jinja template: "No user query found in messages."'}),
    (400, {"error": 'Error rendering prompt with jinja template: "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."'}),
    (400, {"error": {"message": "Cannot pass both content and thinking in an assistant message with tool calls"}}),
    (400, {"error": "Invalid 'content': 'content' field must be a string or an array of objects."}),
    (400, openai("The request body is not valid JSON: no low surrogate in string: line 1 column 20")),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1"}}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), HISTORIES)
def test_a_list_that_is_not_legal_is_refused_and_not_retried(status, body):
    error = of(status, body)
    assert type(error) is HistoryRefused
    assert error.tries == 1


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, openai("Incorrect API key provided", code="invalid_api_key"), AccessRefused),
        (403, openai("Country, region, or territory not supported"), AccessRefused),
        (404, openai("The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found"), ModelNotFound),
        (404, {"error": 'model "qwen9" not found, try pulling it first'}, ModelNotFound),
        (404, b"404 page not found", ModelNotFound),
        (400, openai("No models loaded. Please load a model in the developer page or use the `lms load` command.", code="model_not_found", param="model"), ModelNotFound),
        (400, {"error": '"gemma" does not support tools'}, ToolsRefused),
        (402, {"error": {"message": "Insufficient credits", "code": 402}}, QuotaExhausted),
        (307, b"", RequestRefused),
    ],
)  # fmt: skip
def test_what_cannot_be_helped_by_asking_again_stops(status, body, kind):
    error = of(status, body)
    assert type(error) is kind
    assert error.tries == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (408, b""),
        (409, b""),
        (425, b""),
        (498, {"error": {"message": "Flex tier capacity exceeded", "code": "capacity_exceeded"}}),
        (520, b""),
        (524, b"error code: 524"),
        (530, b"error code: 1033"),
        (499, {"error": "client closed request"}),
        (500, {"error": "llama runner process has terminated"}),
        (502, b"<html><head><title>502 Bad Gateway</title></head></html>"),
        (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}),
        (503, openai("The server is currently overloaded", code="server_is_overloaded")),
        (504, b""),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ],
)
def test_what_may_pass_is_tried_again(status, body):
    error = of(status, body)
    assert type(error) is ModelUnreachable
    assert 1 < error.tries < 10


def test_a_model_that_is_loading_is_waited_for_longer():
    error = of(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
    assert type(error) is ModelUnreachable
    assert error.tries > 20


def test_slow_down_under_503_is_a_rate_limit():
    assert type(of(503, openai("Slow down", code="slow_down"))) is RateLimited
    assert of(503, {"error": "busy"}, {"Retry-After": "4"}).retry_after == 4.0


def test_output_that_the_server_cannot_read_is_sampled_again_a_few_times():
    error = of(
        500,
        {
            "error": {
                "code": 500,
                "message": "The model produced output that does not match the expected peg-native format",
                "type": "server_error",
            }
        },
    )
    assert type(error) is CallUnreadable
    assert error.tries == 3


@pytest.mark.parametrize(
    ("status", "body"),
    [
        # Groq: pydantic/pydantic-ai#2759, huggingface/smolagents#1119; the same inside a stream:
        # anomalyco/opencode#1018
        (400, {"error": {"message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.", "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": "<function=read_file{}"}}),
        (None, {"error": {"message": "Please adjust your prompt.", "code": "tool_use_failed", "status_code": 400}}),
        (400, {"error": {"message": "Parsing failed.", "type": "invalid_request_error", "code": "output_parse_failed"}}),
        (400, {"error": {"message": "Something went wrong with the text", "failed_generation": "{"}}),
        (400, openai("Provider returned error: " + json.dumps({"error": {"message": "nothing to see", "code": "tool_use_failed"}}), code=400)),
        # llama.cpp: ggml-org/llama.cpp#23838, #24644, vxcontrol/pentagi#313.  What is sent as history holds whole JSON
        # only, so arguments that cannot be parsed are the ones that the model has just written.
        (500, {"error": {"code": 500, "message": "Failed to parse input at pos 1360: <tool_call>\n<function=write>", "type": "server_error"}}),
        (500, {"error": {"code": 500, "message": "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]", "type": "server_error"}}),
        (500, {"error": {"code": 500, "message": "Failed to parse tool call: <|python_tag|>", "type": "server_error"}}),
        # Ollama: ollama/ollama#12064, #17638; with the words as the key: #11781
        (500, {"error": "error parsing tool call: raw='{\"input\":\"x\"}]', err=invalid character ']' after top-level value"}),
        (500, {"error parsing tool call": "invalid character 'c' looking for beginning of value"}),
        (400, [{"error": {"code": 400, "message": "The model could not go on", "status": "MALFORMED_FUNCTION_CALL"}}]),
        (424, {"__type": "ModelErrorException", "message": "The model has timed out or failed"}),
    ],
)  # fmt: skip
def test_a_call_that_its_server_cannot_read_is_asked_for_again(status, body):
    error = of(status, body) if status else map_error(parse_document(None, body), "x")
    assert type(error) is CallUnreadable
    assert error.tries == 3


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": "registry.ollama.ai/library/gemma:2b does not support tools"}),  # ollama/ollama, server/routes.go
        (400, openai('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', kind="BadRequestError")),
        (404, {"error": {"message": "No endpoints found that support tool use. To learn more about provider routing, visit: https://openrouter.ai/docs/provider-routing", "code": 404}}),
        (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
        (400, openai("deepseek-reasoner does not support Function Calling")),
        (400, openai("`tool calling` is not supported with this model")),
        (400, openai("Tools are currently not supported for this model")),
        (501, {"error": "function calling is not implemented"}),
        (422, {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted", "type": "extra_forbidden"}]}),
        (400, openai("Unrecognized request argument supplied", param="tools")),
    ],
)  # fmt: skip
def test_a_server_without_tool_calls_is_known(status, body):
    error = of(status, body)
    assert type(error) is ToolsRefused
    assert error.tries == 1


def test_a_tool_whose_schema_is_refused_is_another_thing():
    error = of(
        400,
        openai(
            "Invalid schema for function 'edit': None is not of type 'object'", param="tools[0].function.parameters"
        ),
    )
    assert type(error) is RequestRefused
    assert error.params == ("tools.0.function.parameters",)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (403, {"error": {"message": "exceeded current quota, please check your plan", "type": "exceeded_current_quota_error"}}, QuotaExhausted, "add credit"),  # MoonshotAI/Kimi-K2#5
        (429, {"error": {"message": "Your account is suspended due to insufficient balance, please recharge", "type": "exceeded_current_quota_error"}}, QuotaExhausted, "add credit"),  # MoonshotAI/kimi-code PR#1857
        (429, {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}, QuotaExhausted, "add credit"),  # continuedev/continue#10297
        (429, {"error": {"message": "The engine is currently overloaded, please try again later", "type": "engine_overloaded_error"}}, ModelUnreachable, "overloaded"),  # MoonshotAI/kimi-code#2152
        (429, {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": '{"error":{"message":"x","code":"insufficient_quota"}}'}}}, QuotaExhausted, "add credit"),
        (403, {"code": "Throttling.AllocationQuota", "message": "Allocated quota exceeded, please increase your quota limit."}, RateLimited, "quota"),
        (403, openai("Country, region, or territory not supported", code="unsupported_country_region_territory", kind="request_forbidden"), AccessRefused, "another provider"),
        (400, [{"error": {"code": 400, "message": "User location is not supported for the API use.", "status": "FAILED_PRECONDITION"}}], AccessRefused, "another provider"),  # google-gemini/gemini-cli#24641
        (400, [{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}], AccessRefused, "api_key"),
        (403, {"error": {"code": 403, "message": "Your chosen model requires moderation and your input was flagged", "metadata": {"reasons": ["x"]}}}, RequestRefused, "filter"),
        (400, {"error": {"message": "gone", "code": "model_decommissioned"}}, ModelNotFound, "Check model"),
        (410, {"error": "this model was retired"}, ModelNotFound, "Check model"),
        (405, b"", RequestRefused, "base_url"),
        (407, b"", RequestRefused, "proxy"),
        (501, b"", RequestRefused, "base_url"),
        (400, {"error": {"message": "max_tokens=140000 cannot be greater than max_model_len=max_total_tokens=131072.", "type": "BadRequestError"}}, RequestRefused, "max_tokens"),
        (422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted", "type": "extra_forbidden"}]}, RequestRefused, "top_k: Extra inputs are not permitted. It names `top_k`"),  # gpustack/gpustack#429
        (418, {"error": "no coffee"}, RequestRefused, "openai at http://localhost/v1 answered 418: no coffee. Check model"),
    ],
)  # fmt: skip
def test_what_it_is_stands_in_the_code_first_and_what_to_do_in_the_message(status, body, kind, words):
    error = of(status, body)
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<!DOCTYPE html><html><head><title>Sign in</title></head><body></body></html>"),
        (200, {"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
        (200, b"Unexpected endpoint or method. (POST /v1/v1/chat/completions). Returning 200 anyway"),
        (404, {"error": "Unexpected endpoint or method. (POST /v1/v1/chat/completions)"}),
        (200, {"hello": "world"}),
    ],
)
def test_success_without_an_answer_names_the_address(status, body):
    error = of(status, body)
    assert type(error) is AnswerUnreadable
    assert "base_url" in str(error)
    assert error.tries == 1


@pytest.mark.parametrize(
    "body", [{"error": "a plain string"}, {"error": {"message": "a plain string"}}, {"message": "a plain string"}, {"detail": "a plain string"}, b"a plain string", b'"a plain string"']
)  # fmt: skip
def test_every_shape_of_error_body_gives_its_words(body):
    assert "a plain string" in str(of(400, body))


def test_what_breaks_off_inside_a_stream_has_no_status():
    error = map_error(
        parse_document(None, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), "x"
    )
    assert type(error) is ModelUnreachable
    assert error.status is None
    limited = map_error(
        parse_document(None, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}), "x"
    )
    assert type(limited) is RateLimited


def test_a_very_long_error_is_cut_in_the_message():
    assert len(str(of(400, openai("x" * 50_000)))) < 1_000


def test_a_sentence_of_a_server_ends_once():
    assert "Incorrect API key. Check the api_key" in str(of(401, openai("Incorrect API key.")))


def test_a_router_that_quotes_its_provider_is_read_to_the_ground():
    body = {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": '{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}'},
        }
    }
    error = of(400, body)
    assert type(error) is ContextOverflow
    assert error.limit == 200000


@pytest.mark.parametrize(
    ("code", "kind"),
    [(400, RequestRefused), (401, AccessRefused), (402, QuotaExhausted), (429, RateLimited), (503, ModelUnreachable)],
)
@pytest.mark.parametrize("status", [None, 200])
def test_an_error_inside_an_answer_that_began_well_is_judged_by_the_status_in_its_body(status, code, kind):
    """vLLM, llama.cpp, Groq and routers send the error as an event, with its status as `code` or `status_code`."""
    for body in ({"message": "x", "code": code}, {"message": "x", "type": "BadRequestError", "status_code": code}):
        error = map_error(parse_document(status, {"error": body}), "a server")
        assert type(error) is kind
        assert error.status == status


def test_a_filter_is_named_whatever_status_it_has():
    body = {"error": {"message": "filtered due to our content management policy", "code": "content_filter"}}
    for status in (400, 403):
        error = of(status, body)
        assert type(error) is RequestRefused
        assert not error.unexplained
        assert "filter refused the text" in str(error)


def test_what_a_server_shows_of_a_key_is_not_passed_on():
    error = of(401, openai("Incorrect API key provided: sk-proj-Ab12****wXyZ. You can find it on the page"))
    assert "Incorrect API key provided: ***. You can" in str(error)


def test_a_refusal_without_a_word_is_only_perhaps_for_the_length():
    assert "(perhaps the prompt is too long)" in str(map_error(parse_error_body(400, b""), "a server"))


def test_a_refusal_inside_an_answer_without_a_status_is_not_asked_again_for_hours():
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "messages.1: odd blocks"}}
    error = map_error(parse_document(None, body), "a server")
    assert type(error) is RequestRefused
    assert error.tries == 1
