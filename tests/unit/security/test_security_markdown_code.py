"""What counts as code is code for a Markdown parser too, so that nothing in a published text is live."""

import html
import re
from collections import Counter

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from length import either
from markdown_it import MarkdownIt
from markdown_it.rules_block import table

from agent.security.diagrams import LANGUAGES
from agent.security.inert_text import Inert
from agent.security.markdown_code import sure_code

MARKDOWN = MarkdownIt("commonmark").enable("strikethrough")
MARKDOWN.block.ruler.before("paragraph", "late_table", table, {"alt": ["paragraph", "reference"]})
"""Tables come after fences, as in cmark-gfm; the order of markdown-it is its own."""
LIVE = re.compile(r"(?<![^\W_])@octocat\b|\bcloses #1|<img\b")
BARE = re.compile(r"\bhttps?://\w[^\s<]*")
FENCES = ["```", "````", "~~~", "`", "``", "```plantuml\n", "```\n", "   ```\n", "    ```\n", "\t```\n", "\u00a0```\n"]
LINES = ["\n", "\n", "\n", "\n\n", "\n\n", "\r", " ", "  ", "   ", "    ", "\t", "\u00a0", "---\n", "a"]
BLOCKS = [
    "- ",
    "* ",
    "1. ",
    "2. ",
    "> ",
    "- [x] ",
    "[^a]: ",
    "[a]: /u\n",
    "|",
    "a | b\n-|-\n",
    "```" + " " * 120 + "d2\n",
]
HTML = [
    "<div>",
    "</div>",
    "<b ",
    "<pre>",
    "</pre>",
    "<textarea>",
    "<!--",
    "-->",
    "<!",
    "<?",
    "<",
    ">",
    "lang=",
    "plantuml",
]
INLINE = ["\\", "[a](", "[a](http://h.i", "][a]", ")", "$", '"', "'", "https://h/x/issues/5", "http://h.i", ",", "/"]
INLINE += ["~", "~~", "_", "__", "*", "&lt;", "&nbsp;", "&quot;", "&amp;"]
HARM = ["@octocat", "closes #1", "![](//evil/?q=1)", "<img src=//evil>", "&#64;octocat", "`@octocat`"]
TEXTS = st.lists(st.sampled_from(FENCES + LINES + BLOCKS + HTML + INLINE + HARM + HARM), max_size=24).map("".join)

ESCAPES = [
    "- ```\n  cmd\n  ```\n- @octocat closes #1\n- ```\n  cmd\n  ```\n",
    "1. ```\n   cmd\n   ```\n2. @octocat ![](//evil/?q=1)\n\n   ```\n   cmd\n   ```\n",
    "- x\n  ```\n@octocat closes #1\n```\n",
    "foo\n2. ```\n   a\n   ```\na\n```\n@octocat\n```\n",
    "a <b\n```\nx\n\ny\n```\n@octocat closes #1\n```\nz\n```\n",
    *(f"```\na\n{close}\nb\n```\n@octocat closes #1\n```\n" for close in ("\t```", "\u00a0```", "```\u00a0")),
    "- <details>\n  ```\n  @octocat\n  ```\n",
    "<!\n<pre>\n\n`@octocat`",
    "foo `\n    ```\n    x\n    ```\n`@octocat` b",
    "a ` b\n`@octocat` c",
    "\\\\`a` @octocat `b`",
    '<b title="`">@octocat`',
    "[a](x`) @octocat `",
    '[a](b ") `" ) @octocat `',
    "a | b\n-|-\n` | @octocat `\n",
    "[a](http://h.i),@octocat",
    "- x\n  ```\nfoo\n```plantuml\na\n```\n",
    "- ```\n  a\n  ```\n\n```plantuml\na\n```\n",
]
"""Texts of which a part looks like code and is none, each by another rule of Markdown."""
BLOCK = "\n\n```\n@octocat closes #1\n![](//evil/?q=1)\n```\n"
"""A block of code that a template writes behind a value."""


def alive(text):
    """What has an effect in the page that a parser makes of a text."""
    waiting, found = MARKDOWN.parse(text), []
    while waiting:
        token = waiting.pop()
        waiting += token.children or []
        if token.type == "fence" and re.split(r"[\s:]", html.unescape(token.info).strip().lower())[0] in LANGUAGES:
            found.append(token.info)
        elif token.type in ("text", "html_block", "html_inline"):
            shown = token.content if token.type == "text" else html.unescape(token.content)
            found += [one for one in LIVE.findall(BARE.sub("", shown)) if token.type != "text" or one != "<img"]
        elif token.type == "image" and "//evil" in str(token.attrs["src"]):
            found.append(token.attrs["src"])
    return found


def inert(text, kind="markdown"):
    return getattr(Inert((), Counter()), kind)(text)


@pytest.mark.parametrize("text", ESCAPES)
def test_text_that_only_looks_like_code_is_made_inert(text):
    assert alive(text)
    assert alive(inert(text)) == alive(inert(text, "description")) == []


@given(TEXTS)
@example("https://h/x/issues/5``@octocat``")
@example("~~~http://h.ihttp://h.i~~~@octocat")
@example("~~http://h.i/~~@octocat")
@example("_a http://h.i/_@octocat")
@example("http://h.i/&lt;@octocat")
@example("````&nbsp;plantuml\n")
@example("~~~`````@octocat`https://h/x/issues/5~~@octocat")
@example("```|b\n-|-\n```plantuml\n```")
@example("```\nlog")
@example("- a\n  ```\n  log")
@example("---\n```\nlog")
@settings(max_examples=either(150, 20_000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_of_any_markdown_is_live_for_a_parser(text):
    for kind in ("markdown", "description"):
        assert alive(inert(text, kind)) == []
        assert alive(inert(text, kind) + BLOCK) == [], "it opens no block that the next block of a template ends"
    assert LIVE.findall(BARE.sub("", inert(text, "plain")).replace("<img", "")) == [], "no Markdown, so no pictures"


@pytest.mark.parametrize(
    "text", ["a ` closes https://h/x/issues/5", "https://h/x/pull/5 ` b", "`` https://h/x/issues/5`"]
)
def test_an_address_of_an_issue_beside_a_single_backtick_is_no_reference(text):
    shown = [one.content for token in MARKDOWN.parse(inert(text)) for one in token.children or () if one.type == "text"]
    assert not re.search(r"(?:issues|pull)/5", " ".join(shown))


@pytest.mark.parametrize(
    "text",
    [
        "1. Run\n   ```bash\n   @a closes #1\n   ```\n2. Then\n\n```python\n@property\n```\n",
        "- ```\n  @a\n  ```\n- b\n\n  ~~~\n  @a\n\n  ~~~\n",
        "> ```\n> a\n> ```\n\n```\n@a\n```\n",
        "Use `List<T>` or a < b:\n```java\n@Override\n```\n",
        "<details>\n<summary>Log</summary>\n\n```\n@a\n```\n</details>\n",
        "<!-- a -->\n\n`@a`, [b](https://h.i/c) and `@a`\n\n<pre>x</pre>\n\n```\n@a\n```",
        "| a | b |\n|---|---|\n| `@a` | `x` |\n",
        "```\r\n@a\r\n```\r\n",
    ],
)
def test_ordinary_code_stays_unchanged(text):
    code = [text[one.start : one.end] for one in sure_code(text)]
    assert all(one in inert(text) for one in code)
    assert sum(one.count("@") for one in code) == text.count("@")
