"""Inputs that are the worst for a pattern, made of the pattern itself: what it begins with, again and again.

A pattern is slow where it begins at many places and goes far from each, or where two parts of it take the same letters.
So each beginning of a pattern, and each part that may repeat, is made into an example and repeated.
"""

import importlib
import inspect
import pkgutil
import re
import signal
import time
from contextlib import contextmanager
from re import _constants as sre
from re import _parser

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


def patterns(package, rooms):
    """(name, pattern, whether it looks at the beginning of a text alone) of every compiled pattern that a module of these
    rooms has, in tuples and mappings too."""
    found = {}
    for room in rooms:
        root = importlib.import_module(f"{package}.{room}")
        names = [
            root.__name__,
            *(one.name for one in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{root.__name__}.")),
        ]
        for name in names:
            if "preload" in name:  # it changes the process that imports it
                continue
            module = importlib.import_module(name)
            for attribute, value in vars(module).items():
                for number, one in enumerate(_held(value)):
                    used = set(re.findall(rf"\b{attribute}\.(\w+)", inspect.getsource(module)))
                    anchored = bool(used) and used <= {"match", "fullmatch", "pattern"}
                    found.setdefault(
                        (one.pattern, one.flags, anchored), (f"{name}.{attribute}[{number}]", one, anchored)
                    )
    return sorted(found.values(), key=lambda one: one[0])


def _held(value):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _held(one)
    elif isinstance(value, (tuple, list, frozenset, set)):
        for one in value:
            yield from _held(one)


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
        """An example of `nodes` behind `before`; what it begins with on the way is found."""
        text = before
        for code, value in nodes:
            text += self.node(code, value, text)
            self.found.add(text[-200:])
            self.found.add(text[len(before) :][-200:])
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


def seconds(pattern, text, anchored):
    """CPU time of one search of the whole text, or of one look at its beginning."""
    begin = time.process_time()
    if anchored:
        pattern.match(text)
        pattern.fullmatch(text)
        return time.process_time() - begin
    for _ in pattern.finditer(text):
        pass
    return time.process_time() - begin


class TooSlow(Exception):
    """A search took more CPU time than it was given."""


@contextmanager
def at_most(limit):
    """TooSlow when what stands inside takes more than `limit` seconds of CPU; a search looks for signals as it goes."""

    def end(*_):
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
