"""Generates worst-case inputs for a pattern from the pattern itself: its beginnings, repeated.

A pattern is slow if it can begin at many places and reads far from each, or if two parts of it match the same letters.
So an example is made for each beginning of a pattern, and for each part that may repeat; then it is repeated.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import signal
from collections.abc import Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from re import _constants as sre
from re import _parser
from typing import NamedTuple

from cpu_time import cpu_seconds

CANDIDATES = "a1 A<\n-_.:/\\\"'`([{}])>!@#*=+|&%;,~$^?\t\u3042\x1b"
EVERYWHERE = [
    "a",
    " ",
    "\n",
    "<",
    ">",
    "`",
    "[",
    "]",
    "(",
    ")",
    "/",
    "-",
    "*",
    "@a",
    "#1",
    "a b\n",
    "> ",
    "\\",
    '"',
    "'",
    "{",
    "&",
    "1",
    "A",
    "\r",
]
REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


class Met(NamedTuple):
    """A pattern and its uses in the program: the methods that are called on it, none if no use was found."""

    name: str
    pattern: re.Pattern
    uses: frozenset


HANDED = {
    f"agent.{name}": frozenset({use})
    for use, room, names in (
        ("match", "llm.text_call_formats", ("FUNCTION", "PARAMETER", "INVOKE", "INVOKED", "TAG")),  # `_element`
        ("subn", "security.inert_text", ("_ORDER", "_MACHINE", "_CLOSING_KEY", "_CLOSING_WORD", "_SKIP", "_TRAILER")),
        ("subn", "security.hidden_markup", ("_DETAILS", "_HTML_IMAGE", "_IMAGE", "_REFERENCE", "_LINK")),  # `_counted`
        ("search", "work.setup_outage", ("_SIGN", "_HOST")),  # `_says`
    )
    for name in (f"{room}.{one}" for one in names)
}
"""Pattern that is passed to a function → the methods of it that the function calls."""


def rooms(package="agent"):
    """The modules and packages directly below `package`."""
    return sorted(one.name for one in pkgutil.iter_modules(importlib.import_module(package).__path__))


@cache
def modules(package, room):
    root = importlib.import_module(f"{package}.{room}")
    below = pkgutil.walk_packages(getattr(root, "__path__", ()), f"{root.__name__}.")
    # `preload` changes the process that imports it, `demo_data` contains a repository of its own
    names = (one.name for one in below if "preload" not in one.name and "demo_data" not in one.name)
    return [root, *map(importlib.import_module, names)]


@cache
def patterns(package, room):
    """Every pattern of a room once.

    These are the compiled ones in its modules, including those in tuples, mappings, classes and instances, and those in
    calls of `re` (`inline`).
    """
    found = {}
    for module in modules(package, room):
        source = inspect.getsource(module)
        for attribute, value in vars(module).items():
            if inspect.ismodule(value) or (inspect.isclass(value) and value.__module__ != module.__name__):
                continue  # its own module shows it
            for number, one in enumerate(_held(value)):
                uses = HANDED.get(f"{module.__name__}.{attribute}") or _uses(
                    source if attribute.startswith("_") else _everything(package)
                ).get(attribute, frozenset())
                found.setdefault((one.pattern, one.flags), Met(f"{module.__name__}.{attribute}[{number}]", one, uses))
        for one in inline(module)[0]:
            found.setdefault((one.pattern.pattern, one.pattern.flags), one)
    return sorted(found.values(), key=lambda one: one.name)


METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")


@cache
def _everything(package):
    paths = sorted(Path(importlib.import_module(package).__path__[0]).rglob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@cache
def _uses(source):
    """{name: the methods of a pattern that are called on it, also as the first of a pair or in a loop}."""
    found = {}
    for name, method in re.findall(rf"\b(\w+)(?:\[\d\]\[0\])?\.({'|'.join(METHODS)})\b", source):
        found.setdefault(name, set()).add(method)
    loop = rf"\bfor (?:\w+, )*(\w+) in (?:\w+\.)*([A-Z_]+)\b.{{0,60}}?\b\1\.({'|'.join(METHODS)})\b"
    for _, name, method in re.findall(loop, source, re.DOTALL):
        found.setdefault(name, set()).add(method)
    return {name: frozenset(methods) for name, methods in found.items()}


@cache
def inline(module):
    """(the patterns in calls of `re` inside functions, [the names of functions that build one from another value]).

    The latter cannot be examined.  A value inside an f-string is looked up in the module; otherwise it counts as `x`.
    """
    seen, made = [], []
    top = ast.parse(inspect.getsource(module))
    for function in ast.walk(top):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
                continue
            if node.func.attr not in (*METHODS, "compile"):
                continue
            name = f"{module.__name__}.{function.name}"
            text = _text(node.args[0], vars(module))
            if text is None:
                made.append(name)
                continue
            given = {word.arg: word.value for word in node.keywords}.get("flags", node.args[-1])
            written = ast.unparse(given)
            flags = eval(written, {"re": re}) if re.fullmatch(r"re\.[A-Z]+( \| re\.[A-Z]+)*", written) else 0
            uses = frozenset({node.func.attr} - {"compile"})
            seen.append(Met(f"{name}[{len(seen)}]", re.compile(text, flags), uses))
    return seen, made


def _text(node, names):
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (
            part.value if isinstance(part, ast.Constant) else _looked_up(part.value, names) for part in node.values
        )
        return "".join(parts)
    return None


def _looked_up(node, names):
    found = names.get(node.id) if isinstance(node, ast.Name) else None
    return found if isinstance(found, str) else "x"


def _held(value, depth=4):
    if isinstance(value, re.Pattern):
        yield value
    elif depth == 0:
        return
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _held(one, depth - 1)
    elif isinstance(value, (tuple, list, frozenset, set)):
        for one in value:
            yield from _held(one, depth - 1)
    elif inspect.isclass(value) or type(value).__module__.startswith("agent."):
        for one in [*getattr(value, "__dict__", {}).values(), *_slots(value)]:
            if not inspect.isclass(one):
                yield from _held(one, depth - 1)


def _slots(value):
    names = () if inspect.isclass(value) else getattr(type(value), "__slots__", ())
    return [getattr(value, name, None) for name in ((names,) if isinstance(names, str) else names)]


def attacks(pattern, size):
    """Texts of `size` characters."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    units = _Units()
    units.sequence(_parser.parse(text, pattern.flags & ~re.DEBUG), "")
    made = {(unit * (size // len(unit) + 1))[:size] for unit in (*EVERYWHERE, *units.found) if unit}
    made |= {f"{before}{(unit * (size // len(unit) + 1))[:size]}\x00" for before, unit in units.runs if unit}
    made |= {(f"{unit}\n" * (size // (len(unit) + 1) + 1))[:size] for unit in units.found if unit}
    return sorted(made if isinstance(pattern.pattern, str) else {one.encode("utf-8") for one in made})


class _Units:
    def __init__(self):
        self.found, self.runs = set(), set()

    def sequence(self, nodes, before):
        """An example of `nodes` after `before`.

        Adds the beginnings of the example, and each run of a few parts with the text before it, since two parts may
        match the same characters.
        """
        text, ends = before, [len(before)]
        for code, value in nodes:
            text += self.node(code, value, text)
            self.found.add(text[-200:])
            self.found.add(text[len(before) :][-200:])
            ends.append(len(text))
        for place, start in enumerate(ends):
            self.runs.update((text[:start][-200:], text[start:end]) for end in ends[place + 1 : place + 7])
        return text[len(before) :]

    def node(self, code, value, before):
        if code is sre.LITERAL:
            return chr(value)
        if code is sre.NOT_LITERAL:
            return next(sign for sign in CANDIDATES if ord(sign) != value)
        if code is sre.ANY:
            return "a"
        if code is sre.IN:
            return next((sign for sign in CANDIDATES if _is_in(value, sign)), _first(value))
        if code in REPEATS:
            least, most, inner = value
            one = self.sequence(inner, before)
            if most > 4:
                self.runs.add((before[-200:], one))
                self.found.add(one)
            return one * max(1, min(least, 64))
        if code is sre.SUBPATTERN:
            return self.sequence(value[3], before)
        if code is sre.ATOMIC_GROUP:
            return self.sequence(value, before)
        if code is sre.BRANCH:
            examples = [self.sequence(one, before) for one in value[1]]
            self.found.update(examples)
            return examples[0]
        if code is sre.ASSERT and value[0] > 0:
            return self.sequence(value[1], before)
        return ""


def _is_in(items, sign):
    found = negated = False
    for code, value in items:
        if code is sre.NEGATE:
            negated = True
        elif code is sre.LITERAL:
            found |= value == ord(sign)
        elif code is sre.RANGE:
            found |= value[0] <= ord(sign) <= value[1]
        elif code is sre.CATEGORY:
            name = str(value).removeprefix("CATEGORY_")
            kind = name.removeprefix("NOT_")
            is_kind = {"DIGIT": str.isdigit, "SPACE": str.isspace}.get(kind, lambda one: one.isalnum() or one == "_")(
                sign
            )
            found |= is_kind != name.startswith("NOT_")
    return found != negated


def _first(items):
    code, value = next((one for one in items if one[0] in (sre.LITERAL, sre.RANGE)), (sre.LITERAL, ord("a")))
    return chr(value if code is sre.LITERAL else value[0])


def seconds(met, text):
    """CPU time of the slowest of the program's uses of the pattern on a text."""
    return max(cpu_seconds(_apply, met.pattern, use, text) for use in met.uses or ("search", "finditer"))


def _apply(pattern, use, text):
    if use in ("sub", "subn"):
        pattern.sub(text[:0], text)
    elif use in ("finditer", "findall"):
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, use)(text)


def least(met, text, times=3):
    """The minimum CPU time of some tries: a busy machine makes it longer, never shorter."""
    return min(seconds(met, text) for _ in range(times))


def worst(met, size, tried, most, limit):
    """The beginning of a worst-case text of the pattern.

    Of about `tried` texts of `size` characters the `most` slowest are measured again at eight times the length.
    TooSlow when one of the first takes more than about `limit` seconds.
    """
    texts = attacks(met.pattern, size)
    texts = texts[:: max(1, len(texts) // tried)]
    with at_most(limit * len(texts) + 1.0):
        slowest = sorted(texts, key=lambda text: seconds(met, text), reverse=True)[:most]
    with at_most(8 * limit * 3 * most + 1.0):
        return max(slowest, key=lambda text: least(met, grown(text, 8 * size)))


def grown(text, size):
    """`text` repeated to `size` characters."""
    return (text * (size // len(text) + 1))[:size]


class TooSlow(Exception):
    """A search exceeded its CPU time."""


@contextmanager
def at_most(limit):
    """TooSlow when the block takes more than `limit` seconds of CPU; a search handles signals while it runs."""

    def end(*_):
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
