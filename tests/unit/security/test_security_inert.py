"""Words that are published close nothing, call nobody and give no order, and read as before; code stays as it is."""

import html
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from cpu_time import cpu_seconds
from forges.host_rules import github_closes, gitlab_closes, rung, skips_checks
from markdown_it import MarkdownIt

from agent.security.diagrams import LANGUAGES
from agent.security.inert_text import APART, Inert
from agent.security.markdown_code import closed


def by(kind):
    """The words of one kind."""
    return getattr(Inert((), Counter()), kind)


inert = SimpleNamespace(APART=APART, plain=by("plain"), markdown=by("markdown"), description=by("description"))
HOST, REPO = "127.0.0.1:1", "acme/web"
HOSTILE = [
    "This does not fix #2.",
    "closes #3",
    "Fixes acme/web#4, resolves: #5 and closes GH-6",
    "Closes https://127.0.0.1:1/acme/web/issues/5 and https://127.0.0.1:1/acme/web/-/issues/6.",
    "closing #2, #3 and #4",
    "implements acme/web#7",
    "closes **#3** or [#4](https://127.0.0.1:1/acme/web/issues/4)",
    "Thanks @octocat, @acme/security and @all!",
    "_@octocat_ \\@octocat &#64;octocat &commat;octocat &#x40;octocat",
    "<div>\n`@octocat`\n</div>",
    "\\`@octocat\\` and `` ` @octocat",
    "> ```\n@octocat\n> ```",
    "```\nnever ended? @no\n```\n@octocat",
]


def seen(text):
    """What a person sees of it."""
    return text.replace(inert.APART, "").replace("&amp;", "&").replace("`", "")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("words", [inert.plain, inert.markdown, inert.description])
def test_nothing_is_closed_and_nobody_is_called(words, text):
    made = words(text)
    is_markdown = words is not inert.plain
    assert github_closes(made, HOST, REPO, is_markdown=is_markdown) == set()
    assert gitlab_closes(made, HOST, REPO) == set()
    assert rung(made, is_markdown=is_markdown) == set()
    assert seen(made) == seen(text)
    assert words(made) == made or words is inert.markdown or words is inert.description


def test_the_rules_of_the_hosts_are_live_without_it():
    """Else the tests above would prove nothing."""
    closed = [github_closes(text, HOST, REPO) | gitlab_closes(text, HOST, REPO) for text in HOSTILE]
    called = [rung(text) for text in HOSTILE]
    assert [bool(one) for one in closed] == [True] * 6 + [False] * 7
    assert [bool(one) for one in called[7:]] == [True] * 6
    assert skips_checks("Mend it [skip ci]")


@pytest.mark.parametrize(
    "line", ["/close", "  /assign @x", "> /merge", "- /label ~bug", "/approve", "/close/", "/merge / now"]
)
def test_a_line_that_is_an_order_is_none(line):
    for words in (inert.plain, inert.markdown, inert.description):
        assert not re.search(r"(?m)^[ \t>*+-]*/[a-z]", words(f"Done.\n{line}\nMore."))


@pytest.mark.parametrize("line", ["/srv/app/x.py is gone", "- /opt/tool/bin", "/a.b/c", "/close-me/.x"])
def test_a_path_at_the_begin_of_a_line_stays_as_it_is(line):
    for words in (inert.plain, inert.markdown, inert.description):
        assert words(f"Done.\n{line}\nMore.") == f"Done.\n{line}\nMore."


@pytest.mark.parametrize("line", ["bors r+", "@bors: try", "recheck", "ok to test", "retest this please"])
def test_machines_that_read_without_a_sign_read_nothing(line):
    made = inert.markdown(f"Done.\n{line}")
    assert line not in made
    assert seen(made) == f"Done.\n{line}"


@pytest.mark.parametrize(
    "title", ["Mend it [skip ci]", "[ci skip] x", "x [no ci]", "[skip actions] y", "a\nskip-checks: true"]
)
def test_a_title_skips_no_checks(title):
    assert not skips_checks(inert.plain(title))


def test_a_commit_message_has_no_trailer_but_the_programs():
    assert "by:" not in inert.plain("Mend it\n\nSigned-off-by: A <a@b.c>\nCo-authored-by: B <b@c.d>")


@pytest.mark.parametrize(
    "code",
    [
        "```python\n@property\ndef x(self): ...  # see a.py\n```\n",
        "~~~\n@octocat\n/close\n~~~\n",
        "````\n```\n@x\n```\n````\n",
        "Use `@property` and ``a`@b``.",
        "```diff\n+@app.route('/x')\n-# closes #2\n```\n",
        "````\n```plantuml\na\n```\n````\n",
        "Use `` ```plantuml ``, not ```mermaid```.\n\n```mermaid\ngraph TD\n```\n",
    ],
)
def test_code_stays_as_it_is(code):
    assert inert.markdown(code) == code


DRAWN = [
    "```plantuml\n!include http://10.0.0.1/\n```\n",
    "~~~~ PlantUML title\n!include http://10.0.0.1/\n~~~~\n",
    "```plantuml:x\na\n```\n\n```vega\n{}\n```\n",
    "```&#112;lantuml\na\n```\n",
    "- x\n  ```&nbsp;plantuml\na\n",
    '<pre lang="&nbsp;plantuml"><code>a</code></pre>\n',
    "> ```c4plantuml\n> a\n> ```\n",
    "- one\n\n  ```structurizr\n  a\n  ```\n",
    "```d2\nnever ended\n",
    '<pre lang="plantuml"><code>!include http://10.0.0.1/</code></pre>\n',
    "<pre><code\nlang = plantuml:x>a</code></pre>\n",
    "<pre><code class='language-plantuml'>a</code></pre>\n",
    "```" + " " * 100 + "plantuml\na\n```\n",
    "- x\n  ```\nfoo\n```plantuml\na\n```\n",
    '<pre lang=\n"plantuml"><code>a</code></pre>\n',
    "<pre><code\nlang\n=\nplantuml>a</code></pre>\n",
    "<pre lang=" + " " * 101 + "plantuml>a</pre>\n",
]


def drawn(text):
    """The languages of which GitLab has a diagram drawn, by lib/banzai/filter/code_language_filter.rb."""
    names = [one.info for one in MarkdownIt().parse(text) if one.type == "fence"]
    names += [one[1] for one in re.finditer(r"lang(?:uage-|\s*=\s*[\"']?)([^\"'>]*)", text)]
    return [name for one in names if (name := re.split(r"[\s:]", html.unescape(one).strip().lower())[0]) in LANGUAGES]


@pytest.mark.parametrize("text", DRAWN)
def test_no_server_of_a_forge_draws_a_diagram(text):
    assert drawn(text)
    for words in (inert.markdown, inert.description):
        assert drawn(words(text)) == []
        assert seen(words(text)) == seen(closed(text))


def test_honest_text_stays_as_it_is():
    text = "Mail a@b.c, see https://x.org/y#5, https://x.org/~a/@b and https://x.org/a_b#5; C&amp;A: 1/2, x != y!\n\n# Heading\n\n* one\n"
    assert inert.markdown(text) == text
    assert inert.plain("Mend the sum (part 2)") == "Mend the sum (part 2)"


WORST = [
    "<",
    "`",
    "@",
    "` ``",
    "/ ",
    "close ",
    "fix a/",
    "&",
    "&#6",
    "> ",
    "http://",
    "```\n",
    "~~~a\n",
    "#",
    "A-by",
    "[skip ",
    "a``\n",
]
WORST += ["\n", " ", "close a/" + "b" * 50, "lang", "lang = ", "``` "]
WORST += ["http://h~", "http://h.i/_ ", "~", "```&nbsp;", "lang=&a;"]


@pytest.mark.parametrize("piece", WORST)
def test_its_time_is_linear(piece):
    def work(text):
        for words in (inert.plain, inert.markdown, inert.description):
            words(text)

    def seconds(size):
        return cpu_seconds(work, piece * (size // len(piece)))

    assert seconds(200_000) < 8 * max(seconds(50_000), 0.02)


def test_a_text_that_a_squash_merge_makes_a_message_skips_no_checks_and_signs_for_nobody():
    text = "Done.\n\n[skip ci] and `[ci skip]`\n\n```\nSigned-off-by: Linus <l@x>\n```\nCo-authored-by: A <a@x>\n"
    made = inert.description(text)
    for found in ("[skip ci]", "[ci skip]", "Signed-off-by:", "Co-authored-by:"):
        assert found not in made
    assert made.replace(inert.APART, "") == text
    assert inert.description(made) == made
