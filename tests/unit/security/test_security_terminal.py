"""Nothing printed can do more than be read."""

from agent.security.hidden_diff_lines import hidden_lines, show_hidden
from agent.security.terminal import strip_terminal_controls


def test_a_terminal_gets_text_only():
    assert strip_terminal_controls("a\x1b[2J\x1b[1Ab\x1b]0;t\x07c\x9b1Ad\x00e\u202ef\rg") == "abcdef\ng"
    assert strip_terminal_controls("日本語 👩\u200d💻 ❤\ufe0f\tx\n") == "日本語 👩\u200d💻 ❤\ufe0f\tx\n"


def test_nested_sequences_leave_no_escape():
    assert "\x1b" not in strip_terminal_controls("\x1b\x1b[2J[2J\x1b")


def test_a_diff_shows_what_it_hides():
    seen = show_hidden("+if access\u202e != 'user\U000e0041':\u2028\n")
    assert seen.text == "+if access\\u202e != 'user\\U000e0041':\\u2028\n"
    assert seen.findings == {"PI-07": 1, "PI-05": 1, "PI-20": 1}
    assert seen.high


def test_look_alike_letters_in_a_word_are_counted():
    assert show_hidden("+def l\u043egin(): pass  # логин").findings == {"PI-19": 1}
    assert show_hidden("+def login(): größe, 変数name").findings == {}


def test_the_lines_that_a_change_hides_something_in_are_listed_and_no_others():
    diff = (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,6 @@\n"
        "+\ufeff# größe, 日本語, ❤\ufe0f 👩\u200d💻\r\n"
        "-if access\u202e:\n"
        " kept = '\u202e'\n"
        f"+{'x' * 200} if access\u202e != 'user':{'y' * 200}\n"
        "+l\u043egin()\n+tab\there\n+e\rmpty\n"
    ).encode()
    assert hidden_lines([diff[:90], diff[90:]]) == [
        f"PI-07 a.py, line 3: …{'x' * 50} if access\\u202e != 'user':{'y' * 43}…",
        r"PI-19 a.py, line 4: l\u043egin()",
        "PI-10 a.py, line 6: e\\u000dmpty",
    ]
    many = b"@@ -0,0 +1,30 @@\n" + "+\u200b\n".encode() * 30
    assert len(hidden_lines([many])) == 11
    assert hidden_lines([many])[-1] == "and more; the first 10 are listed"
