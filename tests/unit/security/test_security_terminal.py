"""Nothing printed can do more than be read."""

from agent.security.terminal import plain
from agent.security.visible import visible


def test_a_terminal_gets_text_only():
    assert plain("a\x1b[2J\x1b[1Ab\x1b]0;t\x07c\x9b1Ad\x00e\u202ef\rg") == "abcdef\ng"
    assert plain("日本語 👩\u200d💻 ❤\ufe0f\tx\n") == "日本語 👩\u200d💻 ❤\ufe0f\tx\n"


def test_nested_sequences_leave_no_escape():
    assert "\x1b" not in plain("\x1b\x1b[2J[2J\x1b")


def test_a_diff_shows_what_it_hides():
    seen = visible("+if access\u202e != 'user\U000e0041':\u2028\n")
    assert seen.text == "+if access\\u202e != 'user\\U000e0041':\\u2028\n"
    assert seen.findings == {"PI-07": 1, "PI-05": 1}
    assert seen.high


def test_look_alike_letters_in_a_word_are_counted():
    assert visible("+def l\u043egin(): pass  # логин").findings == {"PI-19": 1}
    assert visible("+def login(): größe, 変数name").findings == {}
