"""What a diff hides, or shows as something else, is shown and counted."""

import pytest
from cpu_time import cpu_seconds

from agent.security.added_lines import LONGEST_LINE
from agent.security.hidden_diff_lines import hidden_lines, show_hidden

SCRIPT = "\u0434\u043b\u044f"
"""A word with letters that do not look Latin."""


def shown(line):
    return hidden_lines([f"diff --git a/x.py b/x.py\n+++ b/x.py\n@@ -1,0 +5,1 @@\n+{line}\n".encode()])


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        ("if a == b\u037e", "PI-20", r"\u037e"),
        ("x = 1\u2028y = 2", "PI-20", r"\u2028"),
        ("x = 1\u2028", "PI-20", r"\u2028"),
        ("path = 'a\u2215b'", "PI-20", r"\u2215"),
        ("admin\ufe0f = True", "PI-06", r"\ufe0f"),
        ("p\u0430ypal = 1", "PI-19", r"p\u0430ypal"),
        ("\u0441\u043e\u0440\u0443(a, b)", "PI-19", r"\u0441\u043e\u0440\u0443(a, b)"),
        ("\u0430 = a", "PI-19", r"\u0430 = a"),
        (
            "os.\u0441\u043e\u0440\u0443(a)  # \u043a\u043e\u043f\u0438\u044f",
            "PI-19",
            r"os.\u0441\u043e\u0440\u0443(a)",
        ),
        ("\u0441\u043e\u0440\u0443_2 = 1", "PI-19", r"\u0441\u043e\u0440\u0443_2"),
        ("\u039f\u039a = True", "PI-19", r"\u039f\u039a = True"),
        ("import \u0585\u057d", "PI-19", r"\u0585\u057d"),
        ("\u13aa\u13a0 = 1", "PI-19", r"\u13aa\u13a0"),
        ("\ua4ee\ua4d3 = 1", "PI-19", r"\ua4ee\ua4d3"),
        ("\U0001d41e\U0001d42f\U0001d41a\U0001d425(x)", "PI-19", r"\U0001d41e\U0001d42f\U0001d41a\U0001d425(x)"),
        ("\uff45\uff56\uff41\uff4c(x)", "PI-19", r"\uff45\uff56\uff41\uff4c(x)"),
        ("x" * 500 + " = \u0441\u043e\u0440\u0443", "PI-19", r"\u0441\u043e\u0440\u0443"),
        ("a\u202eb", "PI-07", r"\u202e"),
    ],
)
def test_it_is_listed_with_its_rule(line, rule, words):
    (found,) = shown(line)
    assert found.startswith(f"{rule} x.py, line 5: ")
    assert words in found


@pytest.mark.parametrize(
    "line",
    [
        "❤️ and 1️⃣ and 👩‍👩‍👧",
        "日本語です。",
        "Привет, мир",
        "x; y: z/w | v!",
        "naïve “quotes” – dash",
        "# а это сор (и оса)",
        "α, σ = 0.1, ρ  # learning rate",
        "Το και είναι μια λέξη",
        "ＯＫ です",
        "O(n²) µs Å größe",
    ],
)
def test_honest_text_is_not_listed(line):
    assert shown(line) == []


def test_each_is_counted():
    assert show_hidden("a\u037eb\u037ec\u2029").findings == {"PI-20": 3}


def test_the_name_of_a_file_is_looked_at_too():
    (found,) = hidden_lines(
        ["diff --git a/x b/x\n--- /dev/null\n+++ b/\u0441\u043e\u0440\u0443.py\n@@ -0,0 +1 @@\n+x\n".encode()]
    )
    assert found.startswith("PI-19 ")
    assert r"\u0441\u043e\u0440\u0443.py" in found


@pytest.mark.parametrize(
    ("line", "deceptive"),
    [
        (f"{SCRIPT}.\u0445\u043e\u0440", f"{SCRIPT}.\\u0445\\u043e\\u0440"),
        (f"{SCRIPT} \u0441\u043e\u0440(1)", f"{SCRIPT} \\u0441\\u043e\\u0440(1)"),
        (f"{SCRIPT} \u0441\u043e\u0440[1]", f"{SCRIPT} \\u0441\\u043e\\u0440[1]"),
        (f"{SCRIPT} \u0441\u043e\u0440 {SCRIPT}.", None),
        (f"{SCRIPT} a_\u0431 {SCRIPT}", f"{SCRIPT} a_\\u0431 {SCRIPT}"),
        ("if \u0441\u043e\u0440: pass", "if \\u0441\\u043e\\u0440: pass"),
        ("\u03b1 = 0.1", None),
        ("d\u00e9j\u00e0 vu, \u00e7a va", None),
        ("\u5024\u3092\uff41\uff42\u306b", None),
        ("set \uff41\uff42", "set \\uff41\\uff42"),
    ],
)
def test_words_that_look_latin_are_shown_where_they_deceive(line, deceptive):
    assert shown(line) == ([f"PI-19 x.py, line 5: {deceptive}"] if deceptive else [])


def test_text_in_other_languages_takes_hardly_longer_than_english():
    """Each line of a change with one sign beyond ASCII is looked at; nearly all signs concern no rule."""

    def cost(lines):
        body = "".join(f"+{line}\n" for line in lines)
        parts = [f"+++ b/x.py\n@@ -1,0 +1,{len(lines)} @@\n{body}".encode()]
        assert hidden_lines(parts) == []
        best = min(cpu_seconds(hidden_lines, parts) for _ in range(3))
        return best / sum(map(len, parts))

    english = cost([*(f"value_{number} = compute(number, {number})" for number in range(8000)), "\u00e9"])
    japanese = cost([f"\u5024_{number} = \u8a08\u7b97(\u5909\u6570, {number}) \u3068" for number in range(6000)])
    french = cost(
        [f"\u00e9t\u00e9_{number} = d\u00e9j\u00e0(vu, {number}) \u00e0 c\u00f4t\u00e9" for number in range(8000)]
    )
    assert max(japanese, french) < 2 * english


@pytest.mark.parametrize("before", range(-6, 7))
@pytest.mark.parametrize("deceit", ["\u202e", " p\u0430ypal "])
def test_a_deceit_at_the_seam_of_two_pieces_of_a_long_line_is_listed(deceit, before):
    line = b"+" + b"a" * (LONGEST_LINE + before - 1) + deceit.encode() + b"b" * 9000
    diff = b"+++ b/src/app.py\n@@ -0,0 +1 @@\n" + line + b"\n"
    found = hidden_lines([diff[at : at + 5000] for at in range(0, len(diff), 5000)])
    assert found
    assert all(("PI-07" if deceit == "\u202e" else "PI-19") in one for one in found)
