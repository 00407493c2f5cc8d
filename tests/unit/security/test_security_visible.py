"""What a diff hides, or shows as something else, is shown and counted."""

import pytest

from agent.security.visible import hidden, visible


def shown(line):
    return hidden([f"diff --git a/x.py b/x.py\n+++ b/x.py\n@@ -1,0 +5,1 @@\n+{line}\n".encode()])


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        ("if a == b\u037e", "PI-20", r"\u037e"),
        ("x = 1\u2028y = 2", "PI-20", r"\u2028"),
        ("x = 1\u2028", "PI-20", r"\u2028"),
        ("path = 'a\u2215b'", "PI-20", r"\u2215"),
        ("admin\ufe0f = True", "PI-06", r"\ufe0f"),
        ("p\u0430ypal = 1", "PI-19", "p\u0430ypal"),
        ("a\u202eb", "PI-07", r"\u202e"),
    ],
)
def test_it_is_listed_with_its_rule(line, rule, words):
    (found,) = shown(line)
    assert found.startswith(f"{rule} x.py, line 5: ")
    assert words in found


@pytest.mark.parametrize(
    "line", ["❤️ and 1️⃣ and 👩‍👩‍👧", "日本語です。", "Привет, мир", "x; y: z/w | v!", "naïve “quotes” – dash"]
)
def test_honest_text_is_not_listed(line):
    assert shown(line) == []


def test_each_is_counted():
    assert visible("a\u037eb\u037ec\u2029").findings == {"PI-20": 3}
