"""The text of a pull request beside that of people: what stays, what adds up, what is cut."""

import pytest

from agent.worker.pull_text import SUMMARY, closed, fitted, is_own_title, marks, merged, summaries

FIRST, SECOND = "0123abcd-0000-4000-8000-000000000001", "0123abcd-0000-4000-8000-000000000002"


def part(uuid, words, *earlier):
    begin, end = marks(uuid, SUMMARY)
    return "\n\n".join((*earlier, f"{begin}\n{words}\n{end}", "Closes #1"))


def test_words_of_people_stay_before_and_behind_the_part_of_the_program():
    body = merged("", part(FIRST, "One."), FIRST, "A title")
    edited = f"Before.\r\n\r\n{body}\r\nBehind."
    again = merged(edited, part(FIRST, "Better."), FIRST, "A title")
    assert again.startswith("Before.\n\n")
    assert again.endswith("Behind.\n")
    assert (again.count("Better."), again.count("One."), again.count("Closes #1")) == (1, 0, 1)
    assert merged(again, part(FIRST, "Better."), FIRST, "A title") == again


def test_summaries_of_other_tasks_are_taken_over_once():
    body = merged("", part(FIRST, "One."), FIRST, "A title")
    assert summaries(body, FIRST) == []
    both = merged(body, part(SECOND, "Two.", *summaries(body, SECOND)), SECOND, "A title")
    assert both.index("One.") < both.index("Two.")
    again = merged(both, part(SECOND, "Two!", *summaries(both, SECOND)), SECOND, "A title")
    assert (again.count("One."), again.count("Two")) == (1, 1)


def test_a_text_of_an_older_version_without_marks_is_replaced_and_one_of_people_is_kept():
    old = f"It is done.\n\nCloses #1\n\n<sub>3 turns · task `{FIRST}`</sub>\n"
    assert "It is done." not in merged(old, part(FIRST, "One."), FIRST, "A title")
    assert merged("Mine alone.", part(FIRST, "One."), FIRST, "A title").startswith("Mine alone.\n\n")


def test_a_title_is_ours_until_a_person_sets_another():
    body = merged("", part(FIRST, "One."), FIRST, "Round  once")
    assert is_own_title("Round once", body)
    assert not is_own_title("My title", body)
    kept = merged(body, part(SECOND, "Two."), SECOND, "")
    assert not is_own_title("My title", kept)
    assert is_own_title("Round once", kept)
    assert is_own_title("Anything", None)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("a", "a"),
        ("```\na", "```\na\n```"),
        ("~~~~ x\na\n~~~", "~~~~ x\na\n~~~\n~~~~"),
        ("```\na\n```", "```\na\n```"),
        ("``` x ` y", "``` x ` y"),
    ],
)
def test_a_block_of_code_that_is_left_open_is_closed(text, end):
    assert closed(text) == end


@pytest.mark.parametrize("grows", [1, 3])
def test_the_words_are_cut_and_what_stands_behind_them_stays(grows):
    """Cleaning may make a text longer than it was."""

    def render(words):
        return f"{words * grows}\n\nCloses #1"

    text = fitted(render, "x" * 500, 200, " … cut")
    assert len(text) <= 200
    assert text.endswith(" … cut\n\nCloses #1")
    assert fitted(render, "short", 200, " … cut") == f"{'short' * grows}\n\nCloses #1"
