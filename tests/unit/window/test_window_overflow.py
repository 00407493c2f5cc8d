"""Every way in which a server says "too long" (docs/wire.md), from the wire to the next request that fits.

Real clients over HTTP, real stores, the loop's own `query`: the error is recognised, the true window learnt and kept
for the task, one compaction, one retry; a second "too long" is met by the reset, a third is the end.
"""

import json
import re

import pytest
from llm_servers import Heard, Reply, Script, says

from agent.config import settings_of
from agent.context import TaskContextManager
from agent.errors import ContextOverflow, ModelError, RequestRefused
from agent.llm import make_client
from agent.loop import Loop
from agent.security.fence import fence
from agent.window import DoesNotFit, make_window
from agent.worker.briefing import RULES_SOURCE, BriefingBudget, choose_again

TRUE = 6000
ASKED = 11_000
KEY = {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "7"}


def openai(message, code="context_length_exceeded", kind="invalid_request_error"):
    return {"error": {"message": message, "type": kind, "param": "messages", "code": code}}


def sse(body):
    return [b"event: error\ndata: " + json.dumps(body).encode() + b"\n\n"]


N_KEEP = f"Cannot truncate prompt with n_keep ({ASKED}) >= n_ctx ({TRUE})"
KEEP = (
    f"Trying to keep the first {ASKED} tokens when context the overflows. However, the model is loaded with context "
    f"length of only {TRUE} tokens, which is not enough. Try to load the model with a larger context length"
)
GREATER = "The number of tokens to keep from the initial prompt is greater than the context length."
LLAMA = {"message": f"the request exceeds the available context size, try increasing it ({TRUE})", "code": 400}
LLAMA |= {"type": "exceed_context_size_error", "n_prompt_tokens": ASKED, "n_ctx": TRUE}

# name → (wire, status, body, whether the text tells the number)
WAYS = {
    "openai maximum": (
        "openai",
        400,
        openai(
            f"This model's maximum context length is {TRUE} tokens. However, your messages resulted in {ASKED} tokens. "
            "Please reduce the length of the messages."
        ),
        True,
    ),
    "openai requested": (
        "openai",
        400,
        openai(
            f"This model's maximum context length is {TRUE} tokens. However, you requested {ASKED + 500} tokens "
            f"({ASKED} in the messages, 500 in the completion)."
        ),
        True,
    ),
    "openai window": (
        "openai",
        400,
        openai("Your input exceeds the context window of this model. Please adjust your input and try again."),
        False,
    ),
    "openai configured limit": (
        "openai",
        400,
        openai(
            f"Input tokens exceed the configured limit of {TRUE} tokens. Your messages resulted in {ASKED} tokens. "
            "Please reduce the length of the messages."
        ),
        True,
    ),
    "openai tokens per minute": (
        "openai",
        429,
        openai(
            f"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit {TRUE}, Requested {ASKED}. "
            "The input or output tokens must be reduced in order to run successfully.",
            "rate_limit_exceeded",
            "tokens",
        ),
        True,
    ),
    "anthropic prompt": (
        "anthropic",
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": f"prompt is too long: {ASKED} tokens > {TRUE} maximum"}},
        True,
    ),
    "anthropic input and max_tokens": (
        "anthropic",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": f"input length and `max_tokens` exceed context limit: {ASKED} + 800 > {TRUE}, decrease input length",
            },
        },
        True,
    ),
    "anthropic 413": (
        "anthropic",
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        False,
    ),
    "llama.cpp 400": ("openai", 400, {"error": LLAMA}, True),
    "llama.cpp 500": ("openai", 500, {"error": LLAMA}, True),
    "llama.cpp 200": ("openai", 200, {"error": LLAMA}, True),
    "ollama available": (
        "ollama",
        400,
        {"error": f"the request exceeds the available context size ({TRUE})"},
        False,
    ),
    "ollama longer": (
        "ollama",
        400,
        {"error": "the prompt is longer than the context length currently available to the model; try a larger one"},
        False,
    ),
    "lmstudio n_keep": ("lmstudio", 400, {"error": N_KEEP}, True),
    "lmstudio keep the first": ("lmstudio", 400, {"error": {"message": KEEP, "type": "invalid_request_error"}}, True),
    "lmstudio greater": ("lmstudio", 400, {"error": GREATER}, False),
    "lmstudio event": ("lmstudio", 200, sse({"error": {"message": KEEP}}), True),
    "lmstudio event with a bare string": ("lmstudio", 200, sse({"error": N_KEEP}), True),
    "vllm": (
        "openai",
        400,
        {
            "object": "error",
            "message": f"This model's maximum context length is {TRUE} tokens. However, your request has {ASKED} input tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
        True,
    ),
    "gemini": (
        "openai",
        400,
        openai(f"The input token count ({ASKED}) exceeds the maximum number of tokens allowed ({TRUE}).", 400, "INVALID_ARGUMENT"),
        True,
    ),
    "xai": (
        "openai",
        400,
        {"code": "Client specified an invalid argument", "error": f"This model's maximum prompt length is {TRUE} but the request contains {ASKED} tokens."},
        True,
    ),
    "groq": ("openai", 400, openai("Please reduce the length of the messages or completion."), False),
    "mistral": (
        "openai",
        422,
        {"message": f"Prompt contains {ASKED} tokens and 0 draft tokens, too large for model with {TRUE} maximum context length"},
        True,
    ),
    "copilot": ("openai", 400, openai(f"prompt token count of {ASKED} exceeds the limit of {TRUE}", "model_max_prompt_tokens_exceeded"), True),
    "kimi": ("openai", 400, openai(f"Invalid request: Your request exceeded model token limit: {TRUE} (requested: {ASKED})", None), True),
    "minimax": ("openai", 400, openai("invalid params, context window exceeds limit (2013)", None), False),
    "cerebras 400": ("openai", 400, b"", False),
    "cerebras 413": ("openai", 413, b"", False),
}  # fmt: skip


class Task:
    """A task's real context with about `ASKED` tokens in it, on a server that takes `room` bytes."""

    def __init__(self, folder, wire, refusal, room):
        self.sizes = []

        def reply(request):
            self.sizes.append(len(request.body))
            if len(request.body) > room:
                return refusal
            return says(wire, "Done.", usage=(len(request.body) // 4, 3))

        show = Reply({"model_info": {"llama.context_length": 131_072}})
        self.server = Script(reply, routes={("POST", "/api/show"): show})
        self.config = {
            "context_storage": {"base_dir": str(folder), "durability": "none", "strategy": "sliding_window"},
            "llm": {"provider": wire, wire: {"model": "m", "context_length": 32_768, "base_url": self.server.url, "api_key": "k"}},
        }  # fmt: skip
        self.heard = Heard()
        self.open()

    def open(self):
        """As a worker does, also after a restart."""
        settings = settings_of(self.config)
        self.context = TaskContextManager(KEY, "u-1", settings)
        self.store = self.context.get_message_store()
        client = make_client(settings, self.store, self.context.context_dir, events=self.heard)
        self.window = make_window(settings, self.context, client, events=self.heard)
        parts = dict.fromkeys(("tools", "repetition", "control", "limits", "new_comments", "heartbeat"))
        self.loop = Loop(context=self.context, model=client, window=self.window, events=self.heard, **parts)
        return self

    def fill(self, groups=16, lines=100):
        self.store.add_message("system", "You are careful.")
        self.store.add_message("user", "Fix the bug. RULE: never touch setup.py.")
        for number in range(groups):
            calls = [{"id": f"c{number}", "name": "read_file", "arguments": {"path": f"f{number}.py"}}]
            self.store.add_message("assistant", f"Step {number}.", tool_calls=calls)
            self.store.add_message("tool", f"line {number} of the file\n" * lines, tool_call_id=f"c{number}")
        return self

    def close(self):
        self.loop.model.close()
        self.context.close()
        self.server.close()


@pytest.fixture
def task_of(tmp_path):
    made = []

    def make(*args, **shape):
        made.append(Task(tmp_path / "contexts", *args).fill(**shape))
        return made[-1]

    yield make
    for task in made:
        task.close()


def refusal(status, body):
    kind = "text/event-stream" if isinstance(body, list) else "application/json"
    return Reply(body, status, {"Content-Type": kind})


@pytest.mark.parametrize("way", WAYS)
def test_case_26_too_long_is_recognised_the_window_learnt_and_the_task_goes_on(task_of, way):
    wire, status, body, tells = WAYS[way]
    task = task_of(wire, refusal(status, body), 22_000)
    text, calls = task.loop.query()
    assert (text, calls) == ("Done.", [])
    assert 2 <= len(task.sizes) <= 3
    assert task.sizes[0] > 22_000 >= task.sizes[-1]
    assert all("strategy" in one for one in task.heard.named("compaction"))
    learnt = task.heard.named("window_learnt")
    assert learnt
    assert task.window.limits.window == learnt[-1]["window"] < 32_768
    if tells:
        assert learnt[0]["window"] <= TRUE
        assert len(task.sizes) == 2
        assert task.window.limits.window >= TRUE // 2
    kept = task.window.limits.window
    task.loop.model.close()
    task.context.close()
    assert task.open().window.limits.window == kept, "kept for the task, over a restart"
    assert ("learnt from an error", kept) in task.window.limits.sources
    assert "RULE: never touch setup.py." in task.store.get_current_context_file().read_text()


@pytest.mark.parametrize("way", ["openai maximum", "openai window", "openai tokens per minute", "cerebras 413"])
def test_a_server_that_refuses_everything_is_asked_three_times_and_then_it_is_the_end(task_of, way):
    wire, status, body, _ = WAYS[way]
    task = task_of(wire, refusal(status, body), 0)
    before = task.store.last_seq
    with pytest.raises((ContextOverflow, DoesNotFit)) as caught:
        task.loop.query()
    # A server that says again and again that it takes half of what it got teaches a window that nothing fits in.
    codes = {"request_too_large" if status == 429 else "context_overflow", "turn_too_large"}
    assert caught.value.code in codes
    assert len(task.sizes) <= 3
    assert task.sizes == sorted(task.sizes, reverse=True)
    assert len([one for one in task.heard.named("compaction") if one["strategy"] != "trim"]) <= 2
    assert task.store.last_seq == before


def test_an_issue_that_is_too_long_is_told_with_the_tokens_of_each_part_and_the_least_window(tmp_path):
    body = {"error": LLAMA | {"n_prompt_tokens": 40_000, "n_ctx": 32_768}}
    task = Task(tmp_path / "contexts", "openai", refusal(400, body), 0)
    task.store.add_message("system", "You are careful.")
    task.store.add_message("user", "The totals are wrong in this line of the long report. " * 2000)
    with pytest.raises(ContextOverflow) as caught:
        task.loop.query()
    said = str(caught.value)
    assert caught.value.code == "context_overflow"
    assert "the request exceeds the available context size" in said
    [briefing] = re.findall(r"; issue with rules and comments ([\d,]+);", said)
    assert 36_000 < int(briefing.replace(",", "")) <= 40_000
    [needed] = re.findall(r"A window of ([\d,]+) tokens would do; the one in force has 32,768\.", said)
    assert 40_000 < int(needed.replace(",", "")) < 50_000
    assert said.endswith("or shorten the issue.")
    assert len(task.sizes) == 1
    task.close()


def test_the_briefing_is_chosen_again_when_the_server_counts_more_than_was_estimated(tmp_path):
    """The window was known and stays as it is: what was wrong is how many tokens the rules are."""
    body = {"error": LLAMA | {"n_prompt_tokens": 34_000, "n_ctx": 32_768}}
    rules = "".join(f"Rule {number}: keep every change small.\n" for number in range(230))
    task = Task(tmp_path / "contexts", "openai", refusal(400, body), 0)
    task.store.add_message("system", "You are careful.")
    text = fence(rules, "mark", source=f"{RULES_SOURCE}AGENTS.md") + fence(
        "Totals are wrong. " * 2000, "mark", source="issue"
    )
    task.store.add_message("user", text, kind="task")

    def rebrief():
        shares = task.window.shares
        budget = BriefingBudget(
            shares.rules, shares.earlier_comments, task.window.assembler.count, lambda text, _: text, str
        )
        shorter = choose_again(task.store.briefing()["content"], "mark", budget)
        if shorter is not None:
            task.store.brief_again(shorter)
        return shorter is not None

    task.window.assembler.heard = True  # the vocabulary passes for known
    task.window.shorten_briefing = rebrief
    assert not rebrief()
    answers = [refusal(400, body), says("openai", "Done.", usage=(30_000, 3))]
    task.server.replies = [lambda request: task.sizes.append(len(request.body)) or answers.pop(0)]
    assert task.loop.query()[0] == "Done."
    assert task.sizes[1] < task.sizes[0] - 2000
    assert "Totals are wrong. " * 2000 in task.store.briefing()["content"], "the issue is never cut"
    assert not task.heard.named("window_learnt")
    task.close()


def test_what_is_told_twice_is_met_by_the_reset(task_of):
    wire, status, body, _ = WAYS["openai window"]
    task = task_of(wire, refusal(status, body), 9000)
    assert task.loop.query()[0] == "Done."
    assert len(task.sizes) == 3
    assert [one["strategy"] for one in task.heard.named("compaction")] == ["window", "reset"]


def test_case_34_a_prompt_that_ollama_cut_without_a_word_is_an_overflow(task_of):
    """HTTP 200, half of the true window and a few tokens reported, and the server says which window it has."""
    task = task_of("ollama", None, 10**9)
    running = {"models": [{"name": "m:latest", "model": "m:latest", "context_length": 4096}]}
    task.server.routes["GET", "/api/ps"] = Reply(running)
    whole = [says("ollama", "What was the task?", usage=(2050, 5)), says("ollama", "Done.", usage=(1500, 3))]
    task.server.replies = [lambda request: whole.pop(0) if len(whole) > 1 else whole[0]]
    before = task.store.last_seq
    assert task.loop.query()[0] == "Done."
    assert task.heard.named("window_learnt")[0]["window"] == 4096
    assert task.store.last_seq == before + 1, "the answer to the cut prompt is not kept"
    assert task.context.learnt_window("m") == task.window.limits.window


@pytest.mark.parametrize("wire", ["openai", "ollama", "lmstudio", "anthropic"])
def test_an_answer_that_ended_because_the_window_was_full_makes_room_before_the_next(task_of, wire):
    """The output side: 200, `length`, and prompt and answer together as long as the window; nothing of it is an
    error."""
    task = task_of(wire, None, 10**9)
    call = {"id": "call_9", "name": "write_file", "arguments": {"path": "a.py"}}
    full = says(wire, "Half", [call], finish="length", usage=(32_000, 768))
    task.server.replies = [full, says(wire, "Done.", usage=(6000, 3))]
    task.loop.query()
    assert task.loop.model.last.finish_reason == "length"
    task.store.add_message("tool", "not run", tool_name="write_file")
    assert task.window.needs_compaction()
    before = len(task.server.asked[-1].body)
    assert task.loop.query()[0] == "Done."
    assert len(task.server.asked[-1].body) < before
    assert task.window.limits.window == 32_768


def test_another_model_does_not_inherit_what_was_learnt(task_of):
    wire, status, body, _ = WAYS["openai maximum"]
    task = task_of(wire, refusal(status, body), 22_000)
    task.loop.query()
    task.loop.model.close()
    task.context.close()
    task.config["llm"]["openai"]["model"] = "another"
    assert task.open().window.limits.window == 32_768


@pytest.mark.parametrize(
    "body",
    [
        openai("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.", "rate_limit_exceeded", "tokens"),
        openai("Invalid 'user': string too long. Expected at most 64.", "string_above_max_length"),
        openai("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.", None),
    ],
)  # fmt: skip
def test_what_is_no_overflow_compacts_nothing(task_of, body):
    from agent.llm.error_body import parse_document
    from agent.llm.error_mapping import map_error

    status = 429 if body["error"]["code"] == "rate_limit_exceeded" else 400
    error = map_error(parse_document(status, body), "a server")
    assert isinstance(error, ModelError)
    assert not isinstance(error, ContextOverflow)


# --- words that nobody knows ------------------------------------------------------------------------------------

UNKNOWN = [
    (400, openai("Le texte est trop grand", None)),
    (422, {"detail": "Unprocessable Entity"}),
    (400, {"error": {"message": "refused", "type": "invalid_request_error", "param": "messages"}}),
    (400, {"error": {"message": f"sequence of {ASKED} overflows a budget of {TRUE}", "code": "E_SEQ"}}),
]


@pytest.mark.parametrize(("status", "body"), UNKNOWN)
def test_a_refusal_in_words_that_nobody_knows_makes_room_once_and_teaches_when_that_helped(task_of, status, body):
    task = task_of("openai", refusal(status, body), 22_000)
    assert task.loop.query()[0] == "Done."
    assert len(task.sizes) == 2
    (suspected,) = task.heard.named("length_suspected")
    assert suspected["tokens"] > 8000
    assert len(task.heard.named("compaction")) == 1
    task.window.needs_compaction()  # takes the answer in
    assert task.context.learnt_window("m") == task.window.limits.window < 32_768
    if str(TRUE) in str(body):
        assert task.window.limits.window <= TRUE
    task.store.add_message("user", "And now?")
    task.loop.query()
    assert len(task.heard.named("length_suspected")) == 1


def test_it_makes_room_also_where_the_configured_window_is_many_times_the_true_one(task_of):
    """A router that sends on to a smaller model: a few long results are all that there is, and none of them is old."""
    body = openai("Whoa, that is more than we can chew", None)
    task = task_of("openai", refusal(400, body), 22_000, groups=3, lines=700)
    task.loop.model.close()
    task.context.close()
    task.config["llm"]["openai"]["context_length"] = 262_144
    task.config["context_storage"]["strategy"] = "hybrid"
    task.open()
    task.window.taken = 5000
    assert task.loop.query()[0] == "Done."
    task.window.needs_compaction()
    assert task.context.learnt_window("m") == task.window.limits.window < 32_768


def test_a_refusal_that_room_does_not_help_is_what_the_person_sees_and_teaches_nothing(task_of):
    replies = [openai("the first and true reason", None), openai("something else", None)]
    task = task_of("openai", None, 10**9)
    task.server.replies = [Reply(replies[0], 400), Reply(replies[1], 400)]
    with pytest.raises(RequestRefused, match="the first and true reason"):
        task.loop.query()
    assert len(task.server.asked) == 2
    assert len(task.heard.named("length_suspected")) == 1
    assert task.context.learnt_window("m") is None
    assert task.window.limits.window == 32_768


def test_a_request_shorter_than_one_that_was_answered_is_refused_for_something_else(task_of):
    task = task_of("openai", None, 10**9)
    asked = []
    task.server.replies = [lambda request: asked.append(request) or says("openai", "Fine.", usage=(11_500, 3))]
    task.loop.query()
    task.window.compact()
    task.store.add_message("user", "Go on.")
    task.server.replies = [Reply(openai("no such thing", None), 400)]
    with pytest.raises(RequestRefused, match="no such thing"):
        task.loop.query()
    assert task.heard.named("length_suspected") == []


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted", "type": "extra_forbidden"}]}),
        (451, b""),
        (403, openai("no", None)),
        (400, openai("Invalid schema for function 'f'", None)),
    ],
)  # fmt: skip
def test_a_refusal_that_says_what_it_is_for_compacts_nothing(task_of, status, body):
    if status == 400:
        body["error"]["param"] = "tools[0].function.parameters"
    task = task_of("openai", refusal(status, body), 0)
    with pytest.raises(ModelError):
        task.loop.query()
    assert len(task.server.asked) == 1
    assert task.heard.named("compaction") == []


def test_a_first_request_has_nothing_to_free_and_ends_with_its_own_refusal(tmp_path):
    task = Task(tmp_path / "contexts", "openai", refusal(400, openai("who knows", None)), 0).fill(0)
    with pytest.raises(RequestRefused, match="who knows"):
        task.loop.query()
    assert len(task.sizes) == 1
    task.close()
