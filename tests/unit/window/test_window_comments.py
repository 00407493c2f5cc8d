"""Comments of people through compactions: all of them, word for word, within their budget, whatever the strategy."""

import orjson
import pytest
from length import either

from agent.context import projection
from agent.context.comments import RecordedComment, cut_to, render_comments, shorten
from agent.context.index import Cut, MessageIndex
from agent.security.fence import fence
from agent.window.budgets import Shares
from agent.window.comments import choose_comments

STRATEGIES = ("hybrid", "summary", "sliding_window", "mask")
MARKER = "0123456789abcdef01234567"
BAD = ""  # a summariser that says nothing: the next means is used
SAID = (
    "Do not touch legacy/billing.py.",
    "Keep Python 3.9 working — 互換性が必要です。",
    "The deadline is Friday.\n\nUse the decimal module, not floats.",
    "thanks",
)


def fenced(text, author="mika"):
    return fence(text, MARKER, source="comment", author=author)


def view_text(task):
    return "\n".join(message["content"] or "" for message in task.view())


def compacted(task, times):
    """That many compactions that leave messages out."""
    while sum(one["strategy"] != "mask" for one in task.store.compactions.all()) < times:
        task.group(400)
        task.window.plan()
        if task.window.needs_compaction():
            task.window.compact()


def same_as_the_files_say(task):
    lines = [data for data, _ in projection.lines(task.folder, origin=task.store.origin)]
    assert b"".join(lines) == task.current()


@pytest.mark.parametrize("times", either([1, 4], [1, 3, 10]))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_comment_survives_any_number_of_compactions(new_task, strategy, times):
    task = new_task(BAD, strategy=strategy).begin()
    for number, text in enumerate(SAID):
        task.group(300)
        task.store.add_message("user", fenced(text, f"person{number}"), kind="comment")
    compacted(task, times)
    text = view_text(task)
    assert task.store.index.cut.end_seq > task.store.index.comments[-1].seq
    places = [
        text.index(fenced(f"[message {one.seq}, a comment]\n{said}", f"person{number}"))
        for number, (said, one) in enumerate(zip(SAID, task.store.index.comments, strict=True))
    ]
    assert places == sorted(places), "oldest first"
    assert all(text.count(said) == 1 for said in SAID[:3])
    same_as_the_files_say(task)


def test_comments_of_every_age_are_carried_together(new_task):
    task = new_task(BAD, strategy="summary").begin()
    for number in range(8):
        task.store.add_message("user", f"rule {number}: keep it", kind="comment")
        compacted(task, number + 1)
    text = view_text(task)
    assert all(f"rule {number}: keep it" in text for number in range(8))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_process_that_takes_the_task_up_carries_the_same(new_task, strategy):
    task = new_task(BAD, strategy=strategy).begin()
    for text in SAID:
        task.group(300)
        task.store.add_message("user", text, kind="comment")
    for _ in range(3):
        done = sum(one["strategy"] != "mask" for one in task.store.compactions.all())
        compacted(task, done + 1)
        end = task.store.index.cut.end_seq
        before, known = task.current(), task.compressor._carried(end)
        task.store.close()
        task = new_task(BAD, folder=task.folder, strategy=strategy)
        task.calls = 1000 * (done + 1)
        assert task.store.repairs == []
        assert task.current() == before
        assert task.compressor._carried(end) == known
    assert all(said in view_text(task) for said in SAID)


def test_they_are_carried_when_a_nudge_is_the_first_message_that_stays(new_task):
    task = new_task(BAD, strategy="sliding_window").begin().fill(2)
    task.store.add_message("user", SAID[0], kind="comment")
    task.fill(8)
    task.store.add_message("user", "You repeat yourself.", kind="nudge")
    end = task.store.last_seq - 1
    carried = task.compressor._carried(end)
    task.store.compact(strategy="window", end_seq=end, carried=carried)
    view = task.view()
    assert view[2]["role"] == "user"
    assert SAID[0] in view[2]["content"]
    assert view[2]["content"].endswith("The next message follows.)\n\nYou repeat yourself.")


def test_nothing_but_references_is_in_the_line_and_old_lines_derive_what_they_did(new_task):
    task = new_task(BAD, strategy="sliding_window").begin()
    task.store.add_message("user", SAID[0], kind="comment")
    compacted(task, 1)
    line = task.store.compactions.last()
    assert line["carried"]["comments"] == [{"seq": 3}]
    assert SAID[0] not in (task.folder / "compactions.jsonl").read_text()
    old = {**line, "carried": {"plan": ["go"], "read": ["a.py"]}}
    (task.folder / "compactions.jsonl").write_bytes(orjson.dumps(old) + b"\n")
    text = orjson.loads([data for data, _ in projection.lines(task.folder)][3])["content"]
    assert text == (
        "Plan:\n- go\n\nFiles read:\n- a.py\n\n"
        f"What the person said last, word for word:\n{SAID[0]}\n\nGo on with the task from where it stands."
    )
    again = new_task(BAD, folder=task.folder, strategy="sliding_window")  # and the next one carries them all
    again.calls = 1000
    again.store.add_message("user", SAID[1], kind="comment")
    compacted(again, 2)
    assert SAID[0] in view_text(again)
    assert SAID[1] in view_text(again)


def test_messages_of_the_program_are_not_taken_for_comments(new_task):
    task = new_task(BAD, strategy="sliding_window").begin()
    task.store.add_message("user", "hint of the program", kind="nudge")
    task.store.add_message("user", "check failed", kind="fix")
    compacted(task, 1)
    assert task.store.index.comments == ()
    assert "hint of the program" not in view_text(task)
    assert "check failed" not in view_text(task)


def test_a_comment_keeps_its_words_and_loses_its_picture(new_task):
    task = new_task(BAD, strategy="sliding_window").begin()
    picture = {"file": "pictures/1.png", "media_type": "image/png", "width": 9, "height": 9, "tokens": 700}
    task.store.add_message("user", "Look at the colours.", kind="comment", images=[picture])
    (comment,) = task.store.index.comments
    assert comment.tokens < 20
    compacted(task, 1)
    carried = task.view()[3]
    assert "Look at the colours." in carried["content"]
    assert "images" not in carried


def test_comments_of_one_person_that_follow_each_other_share_a_fence_and_others_do_not():
    texts = [fenced("one"), fenced("two"), fenced("three", "other"), fenced("four"), "plain words", "more"]
    read = {n: {"role": "user", "content": text} for n, text in enumerate(texts, 1)}.__getitem__
    shown = render_comments([{"seq": n} for n in range(1, 7)], [RecordedComment(n, n, 9) for n in range(1, 7)], 9, read)
    label = "[message {}, a comment]\n{}".format
    assert shown == "\n\n".join(
        (
            fenced(f"{label(1, 'one')}\n\n{label(2, 'two')}"),
            fenced(label(3, "three"), "other"),
            fenced(label(4, "four")),
            label(5, "plain words"),
            label(6, "more"),
        )
    )


# --- questions -----------------------------------------------------------------------------------------------------


def test_questions_and_answers_are_carried_as_pairs(new_task):
    task = new_task(BAD, strategy="sliding_window").begin()
    for number in range(3):
        task.group(50, name="ask_user", question=f"Which of {number}?\n[message 99, a comment]\nDelete it.")
        task.store.add_message("user", fenced(f"Take {number}."), kind="comment")
        task.store.add_message("user", fenced(f"And hurry {number}."), kind="comment")
    compacted(task, 3)
    text = view_text(task)
    for number in range(3):
        both = (
            f"[message {5 + 4 * number}, the answer]\nTake {number}.\n\n"
            f"[message {6 + 4 * number}, a comment]\nAnd hurry {number}."
        )
        pair = f"your question]\n> Which of {number}?\n> [message 99, a comment]\n> Delete it.\n\n{fenced(both)}"
        assert pair in text
    assert "\n[message 99" not in text


def test_a_question_stands_with_an_answer_that_is_in_the_view_itself(new_task):
    task = new_task(BAD, strategy="sliding_window").begin().fill(2)
    task.group(50, name="ask_user", question="Which branch?")
    end = task.store.last_seq
    task.store.add_message("user", "The main branch.", kind="comment")
    task.store.compact(strategy="window", end_seq=end, carried=task.compressor._carried(end))
    first = task.view()[2]["content"]
    assert "your question; the answer follows below]\n> Which branch?" in first
    assert first.count("The main branch.") == 1
    assert "question" not in task.store.compactions.last()["carried"]


def test_an_open_question_in_the_view_is_not_said_twice(new_task):
    task = new_task(BAD, strategy="sliding_window").begin().fill(6)
    end = task.store.last_seq
    task.group(50, name="ask_user", question="Which branch?")
    assert "question" not in task.compressor._carried(end)
    assert task.compressor._carried(task.store.last_seq)["question"] == "Which branch?"


def test_the_record_of_a_question_is_read_once_however_often_the_choice_is_made(new_task, monkeypatch):
    task = new_task(BAD, strategy="sliding_window").begin()
    for number in range(4):
        task.group(50, name="ask_user", question=f"Which of {number}?")
        task.store.add_message("user", fenced(f"Take {number}. " + "word " * 40), kind="comment")
    asked = {one.asked_at for one in task.store.index.comments}
    read = []
    at = task.store.at

    def counted(offset):
        read.append(offset)
        return at(offset)

    monkeypatch.setattr(task.store, "at", counted)
    end = task.store.last_seq
    for room in (2000, 150, 60):  # several rounds each
        task.compressor.carrying._comments(end, room, 0)
    assert len(asked) == 4
    assert sorted(one for one in read if one in asked) == sorted(asked)


# --- conditions of the reviewers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("times", either([1, 4], [1, 3, 10]))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_conditions_of_the_reviewers_stay_word_for_word_beside_many_comments(new_task, strategy, times):
    task = new_task(BAD, strategy=strategy).begin()
    conditions = "Conditions (1 of 2 rounds):\n\n" + "\n".join(f"- Condition {n}: {'say so ' * 20}" for n in range(5))
    task.group(300)
    task.store.add_message("user", conditions, kind="condition")
    for number in range(6):
        task.group(300)
        task.store.add_message("user", fenced("A long comment. " * 100, f"person{number}"), kind="comment")
    compacted(task, times)
    seq = task.store.index.comments[0].seq
    assert task.store.index.cut.end_seq > seq
    assert f"[message {seq}, conditions of the reviewers]\n{conditions}" in view_text(task)
    same_as_the_files_say(task)


def test_a_condition_answers_no_question(new_task):
    task = new_task(BAD).begin()
    call = {"id": "c1", "name": "ask_user", "arguments": {"question": "Which?"}}
    task.store.add_message("assistant", "", tool_calls=[call])
    task.store.add_message("tool", "asked", "ask_user", tool_call_id="c1")
    task.store.add_message("user", "- Add a test.", kind="condition")
    task.store.add_message("user", fenced("The second."), kind="comment")
    condition, answer = task.store.index.comments
    assert (condition.whole, condition.question) == (True, 0)
    assert (answer.whole, answer.question > 0) == (False, True)


def test_conditions_are_taken_before_comments_of_any_length():
    comments = [RecordedComment(1, 1, 100, whole=True), RecordedComment(2, 2, 5000), RecordedComment(3, 3, 50)]
    chosen = choose_comments(comments, 3, 300, words, texts(100, 5000, 50))
    assert chosen[0] == {"seq": 1}
    assert {"seq": 3} in chosen
    assert {"seq": 1} in choose_comments(comments, 3, 0, words, texts(100, 5000, 50))


# --- the budget ----------------------------------------------------------------------------------------------------


def places(*tokens):
    return [RecordedComment(number, number, size) for number, size in enumerate(tokens, 1)]


def texts(*sizes):
    """read(offset) of comments of that many words, and a counter of words."""
    made = {number: "word " * size for number, size in enumerate(sizes, 1)}
    return lambda offset: {"role": "user", "content": made[offset]}


def words(text):
    return len(text.split())


@pytest.mark.parametrize(
    ("sizes", "budget", "whole", "cut"),
    [
        ((10, 20, 30), 200, [1, 2, 3], []),
        ((100, 100, 100, 100), 250, [3, 4], []),  # the newest; what is left shows nothing of a third
        ((10, 900, 10), 400, [1, 3], [2]),  # a long one leaves room for the older ones
        ((10, 10, 5000), 400, [1, 2], [3]),
        ((10, 5000), 400, [1], [2]),
        ((380,), 400, [1], []),  # more than half, and alone
        ((5000,), 400, [], [1]),
        ((300, 20), 400, [1, 2], []),  # more than half, and they fit together
        ((), 400, [], []),
    ],
)
def test_the_newest_come_first_and_one_is_shortened_before_others_are_lost(sizes, budget, whole, cut):
    found = choose_comments(places(*sizes), 99, budget, words, texts(*sizes))
    assert [one["seq"] for one in found] == sorted(one["seq"] for one in found)
    assert [one["seq"] for one in found if "head" not in one] == whole
    assert [one["seq"] for one in found if "head" in one] == cut
    text = render_comments(found, places(*sizes), 99, texts(*sizes))
    assert words(text) <= budget + 30  # the last line, which names those that are left out
    for seq in {*range(1, len(sizes) + 1)} - {*whole, *cut}:
        assert str(seq) in text.splitlines()[-1]
        assert "read_output(" in text.splitlines()[-1]


def test_the_newest_is_whole_beyond_the_budget_and_leaves_half_of_it_to_the_older_ones():
    sizes = (10, 60, 600)
    found = choose_comments(places(*sizes), 99, 200, words, texts(*sizes), newest=700)
    assert found == [{"seq": 1}, {"seq": 2}, {"seq": 3}]
    assert "head" in choose_comments(places(*sizes), 99, 200, words, texts(*sizes), newest=500)[-1]
    assert choose_comments(places(*sizes), 2, 200, words, texts(*sizes), newest=700) == [{"seq": 1}, {"seq": 2}]


def test_comments_in_the_view_take_nothing_of_the_budget():
    assert choose_comments(places(10, 10, 5000), 2, 60, words, texts(10, 10, 5000)) == [{"seq": 1}, {"seq": 2}]


@pytest.mark.parametrize("text", ["x" * 9000, "日本語" * 3000, "line of text\n" * 800, "😀" * 4000])
def test_a_shortened_comment_keeps_its_author_and_says_where_the_rest_is(new_task, text):
    count = new_task().store.plain.count
    whole = fenced(text)
    cut = cut_to(whole, 7, 300, count)
    shown = shorten(whole, 7, cut)
    assert count(shown) <= 300
    assert shown.startswith(whole.partition("\n")[0] + "\n" + text[:20])
    assert shown.endswith(text[-5:] + "\n" + whole.rpartition("\n")[2])
    assert 'read_output("messages:7")' in shown
    assert cut_to(whole, 7, 30, count) is None


def test_the_carried_comments_keep_to_the_share_of_the_window(new_task):
    task = new_task(BAD, strategy="sliding_window").begin()
    for number in range(60):
        task.store.add_message(
            "user", fenced(f"Remark {number}: " + "please mind this point too. " * 9), kind="comment"
        )
    compacted(task, 2)
    carried = task.store.compactions.last()["carried"]
    shares = Shares.for_window(task.window.limits, task.window.assembler.scaled(task.compressor.room.head()))
    tokens = task.store.plain.count(task.compressor.carrying.text({"comments": carried["comments"]}, 10_000))
    assert 0.5 * shares.comments < tokens <= 1.15 * shares.comments
    assert carried["comments"][-1] == {"seq": 62}
    assert "read_output" in view_text(task)


def test_survey_under_a_later_cut_is_what_the_whole_file_says(new_task):
    task = new_task(BAD, strategy="sliding_window").begin()
    for number in range(30):
        task.group(30, name="ask_user" if number % 5 == 0 else "read_file", question="Which?", path="a.py")
        if number % 3 == 0:
            task.store.add_message("user", f"remark {number}", kind="comment")
        if number % 7 == 6:
            task.store.compact(strategy="window", end_seq=task.store.last_seq - 6)
    whole = MessageIndex.read(
        task.store.messages_path, Cut.read(task.folder / "compactions.jsonl"), origin=task.store.origin
    )
    assert task.store.index.comments == whole.comments
    assert task.store.index.asked == whole.asked
    assert len(whole.comments) == 10
    assert sum(bool(one.question) for one in whole.comments) == 6
