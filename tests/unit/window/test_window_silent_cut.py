"""What tells a prompt that Ollama cut without a word from an estimate that is wrong, over HTTP."""

import pytest
from ollama_server import OllamaServer
from talking import talks

from agent.values import Plan, Span, Usage

READ = ("", "", [("read_file", {"path": "a.py"})])
HINDI = "जब उपयोगकर्ता फ़ाइल सहेजता है तब कुल योग गलत दिखता है। कृपया इसे ठीक करें और परीक्षण जोड़ें। "
TABLE = "".join(
    "┏" + "━" * 30 + "┳" + "━" * 30 + "┓\n┃" + " कुल ".ljust(30) + "┃" + " ok ".ljust(30) + "┃\n" for _ in range(40)
)


@pytest.fixture
def talk(tmp_path):
    with talks(tmp_path / "contexts") as start:
        yield lambda server, *, wire="ollama", **keys: start(wire, server, **{"context_length": 131_072} | keys)


def thinks(words, *, only=None):
    """A play that thinks about so many tokens before each call, or before that of request `only`."""

    def play(number):
        return ("I wonder. " * (words // 3) if only in (None, number) else "", *READ[1:])

    return play


# --- no cut -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("renders", [True, False])
@pytest.mark.parametrize(("words", "only"), [(2500, 1), (2500, None), (9000, 3)])
def test_a_model_that_thinks_much_is_not_taken_for_a_server_that_cuts(talk, tells, renders, words, only):
    """Thinking is sent back in the tool loop; whether the prompt has it is a matter of the template."""
    server = OllamaServer(32_768, thinks(words, only=only), renders=renders, tells=tells)
    task = talk(server, context_length=32_768)
    for number in range(6):
        task.turn("line of the file\n" * 60)
        if number == 3:
            task.restart()
    assert task.heard.named("window_learnt") == []
    assert task.window.limits.window == 32_768
    assert all(read == sent for sent, read in server.prompts)
    task.turn()
    assert task.store.tokens_in_use() < 2 * server.prompts[-1][0] + words


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("text", [HINDI * 15, TABLE])
def test_a_text_that_is_estimated_badly_ends_no_task_and_teaches_no_window(talk, tells, text):
    server = OllamaServer(131_072, lambda _number: READ, tells=tells)
    task = talk(server, issue=text)
    for _ in range(4):
        task.turn(text)
    sent, read = server.prompts[0]
    assert read == sent
    assert task.heard.named("window_learnt") == task.heard.named("compaction") == []
    assert task.context.learnt_window("m") is None


# --- a cut --------------------------------------------------------------------------------------------------------


def silent(**more):
    return OllamaServer(4096, lambda _number: READ, heeds=False, **more)


PART = "line of the file\n" * 120  # about 600 tokens


@pytest.mark.parametrize("wire", ["ollama", "openai"])
def test_a_prompt_that_looks_cut_is_a_reason_to_ask_for_the_window_that_is_allocated(talk, wire):
    """The server's word for it teaches the window; the next request fits in it."""
    server = silent()
    task = talk(server, wire=wire).fill(16, PART)
    task.turn(PART)
    sent, read = server.prompts[0]
    assert sent > 9000
    assert read < 4096
    task.turn(PART)
    assert task.heard.named("window_learnt") == [{"model": "m", "window": 4096, "source": "the server"}]
    assert server.prompts[1][0] == server.prompts[1][1] < 4096, "what was sent next was read whole"
    task.restart()
    assert task.window.limits.window == 4096
    for _ in range(4):
        task.turn(PART)
    assert all(sent == read for sent, read in server.prompts[1:])


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("wire", ["ollama", "openai"])
def test_where_the_server_tells_no_window_the_next_prompt_tells(talk, wire, restart):
    """The report of the first is believed.  The second has more in it, and its number has not grown."""
    server = silent(tells=False)
    task = talk(server, wire=wire).fill(16, PART)
    task.turn(PART)
    assert task.heard.named("window_learnt") == []
    if restart:
        task.restart()
    before = task.store.last_seq
    task.loop.query()
    assert [one["window"] for one in task.heard.named("window_learnt")] == [4096]
    assert all(read < sent for sent, read in server.prompts[:2])
    assert server.prompts[-1][0] == server.prompts[-1][1]
    assert task.store.last_seq == before + 1, "the answer to the cut prompt is not kept"


@pytest.mark.parametrize("wire", ["ollama", "openai"])
@pytest.mark.parametrize("tells", [True, False])
def test_a_conversation_that_grows_over_the_true_window_is_seen_within_two_prompts(talk, wire, tells):
    """Whole messages go first, so the number is no mark of a cut: it only grows no more."""
    server = silent(tells=tells)
    task = talk(server, wire=wire)
    for _ in range(12):
        task.turn("line of the file\n" * 90)
        cut = [number for number, (sent, read) in enumerate(server.prompts) if read < sent]
        if task.heard.named("window_learnt"):
            break
    assert cut
    assert len(cut) <= 2
    assert 2048 <= task.window.limits.window <= 4096
    at = len(server.prompts)
    for _ in range(6):
        task.turn("line of the file\n" * 90)
    assert all(sent == read for sent, read in server.prompts[at:]), "from then on nothing is cut"


def test_a_template_that_heeds_truncate_refuses_and_says_so(talk):
    server = OllamaServer(4096, lambda _number: READ)
    task = talk(server).fill(16, PART)
    task.loop.query()
    assert server.refused
    assert task.window.limits.window < 131_072


def test_a_plan_that_leaves_old_messages_out_says_nothing_of_growth(talk):
    """With `working_memory_limit` the next prompt may well be shorter."""
    from agent.llm import truncation_detector as module

    server = OllamaServer(131_072, lambda _number: READ)
    task = talk(server)
    for _ in range(3):
        task.turn("line of the file\n" * 300)
    answer = task.loop.model.last
    short = type(answer)(answer.text, usage=Usage(1500, 20))
    path = task.store.current_path
    plan = Plan((Span(path, 0, 100), Span(path, 200, 300)), tokens=9000)
    reports = task.store.index.reports
    assert reports.read > 3000
    module.check_not_truncated(short, plan, reports, 131_072, lambda: None, "it", "")
