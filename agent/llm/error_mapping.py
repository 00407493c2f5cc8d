"""Maps the error body of a server to a typed error of `agent/errors.py`; an error about the length of a request
contains the numbers of tokens that the body names.

The codes in an error body are checked before its wording, except for the wording of a wrong address; the known codes
and wordings are in `error_wordings.py`. `tries` of an error is the maximum number of attempts to send the request;
`retry.py` has the delays between them. A refusal (400, 413 or 422) that matches no rule becomes RequestRefused, with
`unexplained` unless it names a parameter outside the prompt. After an unexplained refusal the agent's loop compacts the
conversation once, in case the length of the prompt was the reason.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import (
    AccessRefused,
    AnswerUnreadable,
    CallUnreadable,
    ContextOverflow,
    HistoryRefused,
    ModelError,
    ModelNotFound,
    ModelUnreachable,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
    ToolsRefused,
)
from agent.llm import error_wordings as known

if TYPE_CHECKING:
    from agent.llm.error_body import ErrorBody

LONGEST_WAIT = 120.0
"""The longest delay in seconds for which the client itself waits before a retry; if the server demands a longer delay,
the client raises an error that contains the delay."""
DAY = 86_400.0

SLOW_DOWN_TRIES = 8
TRANSIENT_TRIES = 6
# a server may take minutes to load a large model; the delay between two attempts while it loads is at most 30 s
LOADING_TRIES = 40
STALLED_TRIES = 3
RESAMPLE_TRIES = 3

OVERFLOW_STATUSES = (None, 200, 400, 413, 422, 500)
CLIENT = range(400, 500)
HTTP_ERRORS = range(400, 600)
TRANSIENT = frozenset((408, 409, 425, 498, 499))
"""HTTP statuses below 500 after which a retry may succeed: 408 time-out, 409 conflict, 425 too early, 498 no capacity
(Groq), 499 the client disconnected."""
LASTING = frozenset((501, 505, 510, 511))
"""HTTP statuses from 500 on after which a retry cannot succeed: 501 not implemented, 505 unsupported version of HTTP,
510 a missing extension, 511 a login page."""


def map_error(said: ErrorBody, who: str) -> ModelError:
    """The typed error for a server's error body; `who` names the server in the error's message ("openai at
    https://api.openai.com/v1")."""
    error = _classify(said, who)
    error.tries = _tries(error, said)
    error.quote = said.message
    error.params = said.params
    error.codes = said.codes
    return error


def _classify(said: ErrorBody, who: str) -> ModelError:
    status = said.status
    # the quotation gets no full stop, since the error message continues after it
    quote = said.quoted.removesuffix(".")
    heard = f"{who} answered {status}: {quote}" if status else f"{who} broke off: {quote}"
    if said.html and status in (None, 200):
        return AnswerUnreadable(f"{heard} (a web page, not an answer); check base_url", status=status)
    if known.WRONG_PATH.search(said.text):
        return AnswerUnreadable(f"{heard}; check base_url, it should end with /v1 or with the port", status=status)
    told = replace(said, status=_told_status(said))
    error = _by_code(told, heard) or _by_status(told, heard) or _by_wording(told, heard) or _unknown(told, heard)
    error.status = status
    return error


def _told_status(said: ErrorBody) -> int | None:
    """The HTTP status of an error, None if there is no status; for an error inside an answer that began with status
    200, the status that the error body names."""
    if said.status not in (None, 200):
        return said.status
    named = [int(code) for code in said.codes if code.isdecimal() and len(code) == len("400")]
    refused = 400 if known.REFUSAL_CODES.intersection(said.codes) else said.status
    return next((status for status in named if status in HTTP_ERRORS), refused)


def _by_code(said: ErrorBody, heard: str) -> ModelError | None:
    """The typed error for an error body with a code that means the same under (nearly) every HTTP status; None for any
    other error body."""
    codes, status = frozenset(said.codes), said.status
    if codes & known.QUOTA_CODES:
        return _quota(heard, status)
    if said.generation or any(known.RESAMPLE_CODES.fullmatch(code) for code in codes):
        return _resample(said, heard)
    if codes & known.REGION_CODES:
        return _region(heard, status)
    if codes & known.ACCESS_CODES and (status is None or status in CLIENT):
        return _access(heard, status)
    if codes & known.OVERLOAD_CODES:
        return ModelUnreachable(heard, status=status)
    if codes & known.MODEL_CODES and status != 429 and not known.TOOLS_REFUSED.search(said.text):
        return _no_model(heard, status)
    limited = codes & known.RATE_CODES or any(code.startswith("throttling.") for code in codes)
    if limited and (status is None or status in (403, 429, 503)):
        return _slow_down(said, heard)
    return None


def _by_status(said: ErrorBody, heard: str) -> ModelError | None:
    """The typed error for an HTTP status that decides (nearly) without the wording of the error body; None for any
    other status."""
    status = said.status
    if status == 402:
        return _overflow(said, heard, (402,)) or _quota(heard, status)
    if status == 401:
        return _access(heard, status)
    if status == 403:
        return _forbidden(said, heard)
    if status == 407:
        return RequestRefused(f"{heard}. The proxy asks for a login; check HTTPS_PROXY", status=status)
    if status == 429:
        if known.LOW_CREDIT.search(said.text):
            return _quota(heard, status)
        return _slow_down(said, heard)
    if status == 451:
        return _region(heard, status)
    return None


def _by_wording(said: ErrorBody, heard: str) -> ModelError | None:
    status, text = said.status, said.text
    if status == 400 and known.LOW_CREDIT.search(text):
        return _quota(heard, status)
    if known.RESAMPLE.search(text):
        return _resample(said, heard)
    if _no_tools(said):
        return ToolsRefused(f"{heard}. This model, or its server as it was started, has no tool calls", status=status)
    if known.NO_MEMORY.search(text):
        return RequestRefused(
            f"{heard}. The machine has too little memory for this model with this window; set a smaller "
            "context_length, or use a smaller model",
            status=status,
        )
    if overflow := _overflow(said, heard, OVERFLOW_STATUSES):
        return overflow
    if status in (None, 200, 400, 422, 500) and known.HISTORY.search(text):
        return HistoryRefused(f"{heard}. The message list is not legal for this server", status=status)
    if status == 400 and known.NO_ACCESS.search(text):
        return _access(heard, status)
    if status == 400 and known.REGION.search(text):
        return _region(heard, status)
    if status == 400 and (moderated := _moderated(said, heard)):
        return moderated
    if status in (404, 410) or known.NO_MODEL.search(text):
        return _no_model(heard, status)
    return None


def _unknown(said: ErrorBody, heard: str) -> ModelError:
    status = said.status
    if status in (503, 529) and (said.retry_after is not None or "slow_down" in said.text):
        return RateLimited(heard, status=status, retry_after=said.retry_after)
    if status is None or status in TRANSIENT or (status >= 500 and status not in LASTING):
        return ModelUnreachable(heard, status=status)
    if 300 <= status < 400:
        return RequestRefused(f"{heard}. A redirect is not followed; put the final address in base_url", status=status)
    if status < 300:
        return AnswerUnreadable(f"{heard}. There is no answer in it; check base_url and model", status=status)
    if status in (405, 501):
        return RequestRefused(f"{heard}. The server has no such call; check base_url and provider", status=status)
    if known.RECORDING_OVER in said.codes:
        why = "The task asks for more answers than were recorded; record it anew, or use a model"
        return RequestRefused(f"{heard}. {why}", status=status)
    named = ", ".join(f"`{name}`" for name in said.params)
    what = (
        f"It names {named}; leave out or change what sets it in the section of this provider"
        if named
        else "Check model and base_url, and what the server's own log says of this request"
    )
    about_input = all(known.INPUT.match(name) for name in said.params)
    return RequestRefused(f"{heard}. {what}", status=status, unexplained=about_input and status in (400, 413, 422))


# --- kinds ------------------------------------------------------------------------------------------------------------


def _quota(heard: str, status: int | None) -> QuotaExhausted:
    return QuotaExhausted(f"{heard}. The account has no quota left; add credit or raise its limit", status=status)


def _access(heard: str, status: int | None) -> AccessRefused:
    return AccessRefused(f"{heard}. Check the api_key of this provider and what it may use", status=status)


def _region(heard: str, status: int | None) -> AccessRefused:
    return AccessRefused(
        f"{heard}. The provider does not serve the place that this machine is in; no key helps: use another provider",
        status=status,
    )


def _no_model(heard: str, status: int | None) -> ModelNotFound:
    return ModelNotFound(f"{heard}. Check model and base_url, and load or pull the model", status=status)


def _resample(said: ErrorBody, heard: str) -> CallUnreadable:
    return CallUnreadable(
        f"{heard}. The model wrote what its server cannot read, or refuses; another model, or "
        "`tool_calls: text` in the section of this provider, may help",
        status=said.status,
    )


def _forbidden(said: ErrorBody, heard: str) -> ModelError:
    status = said.status
    if said.html:
        return AccessRefused(f"{heard}. Something before the server refused; check base_url and proxy", status=status)
    if known.REGION.search(said.text):
        return _region(heard, status)
    if known.LOW_CREDIT.search(said.text):
        return _quota(heard, status)
    return _moderated(said, heard) or _access(heard, status)


def _moderated(said: ErrorBody, heard: str) -> RequestRefused | None:
    if not known.MODERATED.search(said.text):
        return None
    return RequestRefused(
        f"{heard}. The provider's filter refused the text of this request; use another model", status=said.status
    )


def _no_tools(said: ErrorBody) -> bool:
    """Whether the server refused the tools of a request, judged by its message or by a list of unknown parameters."""
    if said.status == 429 or (said.status is not None and said.status < 400):
        return False
    if known.TOOLS_REFUSED.search(said.text.replace("`", "")):
        return True
    return said.status in (400, 422) and bool(known.NO_ANSWER_TO_TOOLS.intersection(said.params))


def _slow_down(said: ErrorBody, heard: str) -> ModelError:
    large = known.TOO_LARGE.search(said.message)
    pair = known.LIMIT_REQUESTED.search(said.message)
    limit, requested = _numbers(pair) if pair else (None, None)
    if large or (limit is not None and requested is not None and requested > limit):
        return RequestTooLarge(
            f"{heard} (one request is over a limit per minute; waiting does not help)",
            status=said.status,
            limit=limit,
            requested=requested,
        )
    if known.PER_DAY.search(said.message):
        return RateLimited(
            f"{heard} (a limit per day)", status=said.status, retry_after=max(said.retry_after or DAY, LONGEST_WAIT + 1)
        )
    return RateLimited(heard, status=said.status, retry_after=said.retry_after)


def _overflow(said: ErrorBody, heard: str, statuses: tuple[int | None, ...]) -> ContextOverflow | None:
    if said.status not in statuses or known.NOT_OVERFLOW.search(said.text):
        return None
    match = next((found for pattern in known.OVERFLOW if (found := pattern.search(said.message))), None)
    coded = bool(known.OVERFLOW_CODES.intersection(said.codes))
    if not coded and known.OUTPUT_TOO_LONG.search(said.message):
        return None
    wordless = not said.message and not said.codes and said.status in (400, 413)
    if not (match or coded or wordless or said.status == 413):
        return None
    limit, requested = _numbers(match) if match else (None, None)
    return ContextOverflow(
        f"{heard} ({'perhaps ' if wordless else ''}the prompt is too long)",
        status=said.status,
        limit=said.limit or limit,
        requested=said.requested or requested,
    )


def _numbers(match: re.Match[str]) -> tuple[int | None, int | None]:
    """(maximum tokens of a request, tokens of the prompt) from the groups of a match of a pattern in OVERFLOW; None for
    a group that is missing or did not match."""
    groups = match.groupdict()
    found = [re.sub(r"\D", "", groups.get(name) or "") for name in ("limit", "requested", "answer")]
    limit, requested, answer = (int(digits) if digits else None for digits in found)
    if requested and answer and answer < requested:
        requested -= answer
    return limit, requested


def _tries(error: ModelError, said: ErrorBody) -> int:
    if isinstance(error, RateLimited):
        return SLOW_DOWN_TRIES if (error.retry_after or 0.0) <= LONGEST_WAIT else 1
    if isinstance(error, ModelUnreachable):
        return LOADING_TRIES if known.LOADING.search(said.text) else TRANSIENT_TRIES
    return RESAMPLE_TRIES if isinstance(error, CallUnreadable) else 1
