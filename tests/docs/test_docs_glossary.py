"""docs/glossary.md has each term once, with one meaning, and the code uses it; the nouns of the contracts are there."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"(?m)^\| ([^|]+?) \| (.+) \|$", PAGE.split("## Names that changed")[0])[1:]
COMMON = {
    # the meaning that the field gives them
    "answer",
    "check",
    "contact",
    "counter",
    "database",
    "end",
    "entry",
    "family",
    "interrupted",
    "labels",
    "limits",
    "log",
    "mounts",
    "notices",
    "redact",
    "repository",
    "row",
    "sandbox",
    "section",
    "selector",
    "settings",
    "status",
    "store",
    "streams",
    "tokenizer",
    "tool",
    "traits",
    "usage",
    # results of one call or interfaces of one caller
    "appending",
    "control",
    "finished",
    "followed",
    "forgotten",
    "refused",
}
"""Names of classes in contracts that need no row of the glossary."""


def terms():
    return [term.strip() for words, _ in ROWS for term in re.split(r"[,·]", words)]


def words_of_the_code():
    """The text of comments, docstrings and names of agent/, in lower case, with the parts of a name as words."""
    found = []
    for path in sorted((TOP / "agent").rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                found.append(token.string)
            elif token.type == tokenize.NAME:
                found.append(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", token.string).replace("_", " "))
    return re.sub(r"[\s#]+", " ", " ".join(found)).lower()


def nouns_of_the_contracts():
    """The classes with a single word as name in the contracts of the rooms and in `values.py`, in lower case."""
    for path in [*sorted((TOP / "agent").glob("*/base.py")), TOP / "agent" / "values.py"]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and re.fullmatch(r"[A-Z][a-z]+", node.name):
                yield node.name.lower()


def without_plural(word):
    return word.removesuffix("s") if not word.endswith("ss") else word


def test_the_rows_are_read_as_a_whole():
    assert len(ROWS) > 60
    assert {"task", "turn", "fork point", "quorum"} <= set(terms())


def test_a_term_is_listed_once():
    assert [term for term, count in Counter(terms()).items() if count > 1] == []


def test_a_term_has_one_meaning():
    assert [words for words, meaning in ROWS if re.search(r"; also\b|; of (?:a|an|the)\b", meaning)] == []


def test_the_code_uses_each_term():
    code = words_of_the_code()
    forms = {term: r"[- ]".join(map(re.escape, re.split(r"[- ]", term.lower()))) for term in terms()}
    assert [term for term, form in forms.items() if not re.search(rf"\b{form}", code)] == []


def test_a_noun_of_a_contract_is_a_term_or_a_common_word():
    known = {word for term in terms() for word in term.lower().split()}
    missing = {noun for noun in nouns_of_the_contracts() if {noun, without_plural(noun)}.isdisjoint(known)}
    assert missing == COMMON
