"""One table: what a server said → the typed error of `agent/errors.py`, with the numbers it told.

Sources: the facts page on wires (sections 1 to 5), each row from a vendor's schema, source or a public report.  Whether
trying again may help is `error.tries`; how long to wait is `retry.py`.  Nothing is decided by a broad word: quota is
judged by the structured code, overflow by the known texts and only on the statuses that carry them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import (
    AccessRefused,
    AnswerUnreadable,
    ContextOverflow,
    HistoryRefused,
    ModelError,
    ModelNotFound,
    ModelUnreachable,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
)

if TYPE_CHECKING:
    from agent.llm.said import Said

LONGEST_WAIT = 120.0
"""Seconds that a server may ask for and be obeyed; more is given back to the caller, with the number."""
DAY = 86_400.0

SLOW_DOWN_TRIES = 8
TRANSIENT_TRIES = 6
LOADING_TRIES = 40  # a large model takes minutes to load; waits are capped at 30 s
STALLED_TRIES = 3
RESAMPLE_TRIES = 3

QUOTA = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_error",
    }
)
OVERFLOW_STATUSES = (None, 200, 400, 413, 422, 500)
OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "request_too_large"})
NOT_OVERFLOW = re.compile(r"invalid '?user'?|string_above_max_length|string too long", re.IGNORECASE)

# Each with the groups `limit` and `requested` where the text tells them.
_N = r"(?P<{}>\d[\d,_.]*\d|\d)"
_L, _R = _N.format("limit"), _N.format("requested")
OVERFLOW = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"maximum context length (?:is|of) {_L} tokens.*?(?:resulted in|requested|contains?(?: at least)?|has) {_R}",
        rf"input tokens exceed the configured limit of {_L} tokens.*?resulted in {_R}",
        rf"prompt is too long: {_R} tokens > {_L}",
        rf"input length and `?max_tokens`? exceed context limit: {_R} \+ \d+ > {_L}",
        rf"request \({_R} tokens\) exceeds the available context size \({_L} tokens\)",
        rf"keep the first {_R} tokens when context the overflows.*?context length of only {_L} tokens",
        rf"n_keep \({_R}\) >= n_ctx \({_L}\)",
        rf"input token count \({_R}\) exceeds the maximum number of tokens allowed \({_L}\)",
        rf"maximum prompt length is {_L}.*?contains {_R}",
        rf"too large for model with {_L} maximum context length",
        rf"prompt contains {_R} tokens.*?too large.*?{_L} maximum",
        rf"prompt token count of {_R} exceeds the limit of {_L}",
        rf"exceeded model token limit:? {_L}(?:.*?requested:? {_R})?",
        rf"maximum context length (?:is|of) {_L}",
        rf"maximum prompt length is {_L}",
        r"exceeds the context window",
        r"context window exceeds limit",
        r"exceeds? the available context size",
        r"longer than the context length currently available",
        r"greater than the context length",
        r"input length and `?max_tokens`? exceed context limit",
        r"input token count.*?exceeds the maximum number of tokens",
        r"reduce the length of the messages",
        r"context[ _]length[ _]exceeded",
        r"prompt is too long",
        r"exceeds the limit of \d+ tokens|token count.*?exceeds the limit of",
        r"exceeded model token limit",
        r"context size has been exceeded",
    )
)
TOO_LARGE = re.compile(rf"request too large.*?(?:limit:? {_L}.*?requested:? {_R})?", re.IGNORECASE | re.DOTALL)
LIMIT_REQUESTED = re.compile(rf"limit:? {_L}.*?requested:? {_R}", re.IGNORECASE | re.DOTALL)
PER_DAY = re.compile(r"\b(?:per day|rpd|tpd|daily limit|daily quota)\b", re.IGNORECASE)

HISTORY = re.compile(
    r"must be a response to a prece?eding message"
    r"|must be followed by tool messages"
    r"|insufficient tool messages following"
    r"|message\[\d+\]\.role"
    r"|duplicate value for 'tool_call_id'"
    r"|tool_use.{0,40}ids? (?:must be unique|were found without)"
    r"|unexpected `?tool_use_id`?"
    r"|additional properties are not allowed"
    r"|unknown parameter: 'input\[\d+\]"
    r"|expected a string, got null"
    r"|invalid message content type"
    r"|content' field must be a string"
    r"|invalid (?:type for |value for )?'messages\b(?!.*string too long)"
    r"|is too short - 'messages'"
    r"|is not one of \[.*\] - 'messages"
    r"|invalid tool call arguments"
    r"|failed to parse tool call arguments"
    r"|cannot unmarshal .{1,40} field chatrequest\.messages"
    r"|no low surrogate in string|unpaired surrogate|lone leading surrogate"
    r"|jinja|rendering prompt|roles must alternate|conversation roles"
    r"|no user query found"
    r"|cannot pass both content and thinking",
    re.IGNORECASE | re.DOTALL,
)
NO_MODEL = re.compile(
    r"model_not_found|no models? (?:is |are )?loaded|not found, try pulling it first|model .{0,120}does not exist"
    r"|failed to load model|model .{0,120}not found|unknown model|model unloaded|invalid model",
    re.IGNORECASE | re.DOTALL,
)
RESAMPLE = re.compile(
    r"model produced output that does not match|failed to parse (?:the )?(?:model )?output", re.IGNORECASE
)
WRONG_PATH = re.compile(r"unexpected endpoint or method|returning 200 anyway", re.IGNORECASE)


def fault(said: Said, who: str) -> ModelError:
    """The error for what was said; `who` names the server in the message ("openai at https://api.openai.com/v1")."""
    error = _judge(said, who)
    error.tries = _tries(error, said)
    return error


def _judge(said: Said, who: str) -> ModelError:
    status, text = said.status, said.text
    heard = f"{who} answered {status}: {said.quote}" if status else f"{who} broke off: {said.quote}"
    if said.html and status in (None, 200):
        return AnswerUnreadable(f"{heard} (a web page, not an answer); check base_url", status=status)
    if WRONG_PATH.search(text):
        return AnswerUnreadable(f"{heard}; check base_url, it should end with /v1 or with the port", status=status)
    if said.code in QUOTA or said.type in QUOTA or status == 402 or (status == 400 and "credit balance" in text):
        return QuotaExhausted(f"{heard}. The account has no quota left; add credit or raise its limit", status=status)
    if status == 401 or (status == 403 and not said.html):
        return AccessRefused(f"{heard}. Check the api_key of this provider and what it may use", status=status)
    if status == 403:
        return AccessRefused(f"{heard}. Something before the server refused; check base_url and proxy", status=status)
    if status == 429 or said.type == "rate_limit_error":
        return _slow_down(said, heard)
    if overflow := _overflow(said, heard):
        return overflow
    if status in (None, 200, 400, 422, 500) and HISTORY.search(text):
        return HistoryRefused(f"{heard}. The message list is not legal for this server", status=status)
    if status == 404 or NO_MODEL.search(text) or said.code == "model_not_found":
        return ModelNotFound(f"{heard}. Check model and base_url, and load or pull the model", status=status)
    if RESAMPLE.search(text):
        return AnswerUnreadable(f"{heard}. The model wrote what its server cannot read", status=status)
    if status in (503, 529) and (said.retry_after is not None or "slow_down" in text):
        return RateLimited(f"{heard}", status=status, retry_after=said.retry_after)
    if status is None or status >= 500 or status in (408, 409, 425, 499):
        return ModelUnreachable(f"{heard}", status=status)
    if 300 <= status < 400:
        return RequestRefused(f"{heard}. A redirect is not followed; put the final address in base_url", status=status)
    if status < 300:
        return AnswerUnreadable(f"{heard}. There is no answer in it; check base_url and model", status=status)
    return RequestRefused(heard, status=status)


def _slow_down(said: Said, heard: str) -> ModelError:
    large = TOO_LARGE.search(said.message)
    pair = LIMIT_REQUESTED.search(said.message)
    limit, requested = _numbers(pair) if pair else (None, None)
    if large or (limit is not None and requested is not None and requested > limit):
        return RequestTooLarge(
            f"{heard} (one request is over a limit per minute; waiting does not help)",
            status=said.status,
            limit=limit,
            requested=requested,
        )
    if PER_DAY.search(said.message):
        return RateLimited(
            f"{heard} (a limit per day)", status=said.status, retry_after=max(said.retry_after or DAY, LONGEST_WAIT + 1)
        )
    return RateLimited(heard, status=said.status, retry_after=said.retry_after)


def _overflow(said: Said, heard: str) -> ContextOverflow | None:
    if said.status not in OVERFLOW_STATUSES or NOT_OVERFLOW.search(said.text):
        return None
    match = next((found for pattern in OVERFLOW if (found := pattern.search(said.message))), None)
    coded = bool({said.code, said.type} & OVERFLOW_CODES)
    wordless = not said.message and not said.code and said.status in (400, 413)
    if not (match or coded or wordless or said.status == 413):
        return None
    limit, requested = _numbers(match) if match else (None, None)
    return ContextOverflow(
        f"{heard} (the prompt is too long)",
        status=said.status,
        limit=said.limit or limit,
        requested=said.requested or requested,
    )


def _numbers(match: re.Match[str]) -> tuple[int | None, int | None]:
    """(limit, requested) of a match; a group that is not in the pattern, or did not match, is None."""
    groups = match.groupdict()
    found = [re.sub(r"\D", "", groups.get(name) or "") for name in ("limit", "requested")]
    limit, requested = (int(digits) if digits else None for digits in found)
    return limit, requested


def _tries(error: ModelError, said: Said) -> int:
    if isinstance(error, RateLimited):
        return SLOW_DOWN_TRIES if (error.retry_after or 0.0) <= LONGEST_WAIT else 1
    if isinstance(error, ModelUnreachable):
        return LOADING_TRIES if "loading model" in said.text else TRANSIENT_TRIES
    if isinstance(error, AnswerUnreadable) and RESAMPLE.search(said.text):
        return RESAMPLE_TRIES
    return 1
