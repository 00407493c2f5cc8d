"""Reads the front matter of hand-written Markdown files, and changes one value without changing any other byte.

The files belong to people, so their front matter is not loaded and dumped as a whole. A change of front matter replaces
the characters of one YAML node; then the new front matter is parsed again, and an error is raised if any other value
has changed. A change of one value preserves the order of the keys, comments, quotes, unknown keys and line ends.
`front_matter.py` works on text only; `files.py` reads and writes the files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import yaml

from agent.errors import ForgeError, IssueUnreadable
from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT = 1 << 16  # maximum bytes of front matter
BOM = b"\xef\xbb\xbf"
_OPEN = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n")
_CLOSE = re.compile(rb"^(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_NULL = "tag:yaml.org,2002:null"
_TEXT = "tag:yaml.org,2002:str"
# The loader in Python (SafeLoader) is used if PyYAML was built without libyaml.
_FAST: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The front matter of one file.

    `text` is the beginning of the file up to and including the closing line `---`, `start` and `end` are the offsets of
    the YAML in `text`, `nodes` maps each key, in the order of the file, to the YAML node of its value.  `name` is the
    file's name for error messages.
    """

    name: str
    text: str
    start: int
    end: int
    nodes: Mapping[str, yaml.Node]

    def line(self, key: str) -> int:
        """The number of the line of the file with the value of `key`, counted from 1; 1 if the key is missing."""
        node = self.nodes.get(key)
        return 1 if node is None else node.start_mark.line + 2

    def value(self, key: str) -> str | None:
        """The value of `key` as text, also if YAML reads the value as another type (a number 404 is "404"); None when
        the key is missing or has no value. Raises IssueUnreadable if the value is a list or a mapping."""
        node = self.nodes.get(key)
        if node is None or (node.tag == _NULL and isinstance(node, yaml.ScalarNode)):
            return None
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(key, f"`{key}` must be one line of text")
        return str(node.value)

    def flag(self, key: str, default: bool) -> bool:
        """The value of `key` in the front matter, which must be true or false (or yes or no); `default` when the key is
        missing or has no value. Raises IssueUnreadable for a value that is not true, false, yes or no."""
        value = self.value(key)
        if value is None:
            return default
        if value.lower() not in ("true", "false", "yes", "no"):
            raise self.error(key, f"`{key}` must be true or false, not {value!r}")
        return value.lower() in ("true", "yes")

    def items(self, key: str) -> tuple[str, ...]:
        """The list of one-line texts that is the value of `key`; a key that is missing or has no value means an empty
        list. Raises IssueUnreadable for a value that is not a list of one-line texts."""
        node = self.nodes.get(key)
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == _NULL):
            return ()
        if not isinstance(node, yaml.SequenceNode) or self._source(node)[:1] in ("&", "*", "!"):
            raise self.error(key, f"`{key}` must be a list, like `{key}: [coding agent]`")
        for item in node.value:
            plain = isinstance(item, yaml.ScalarNode) and item.start_mark.line == item.end_mark.line
            if not plain or item.tag == _NULL or self._source(item)[:1] in ("", "&", "*", "!"):
                line = item.start_mark.line + 2
                raise IssueUnreadable(f"{self.name}:{line}: each of `{key}` must be text on one line")
        return tuple(str(item.value) for item in node.value)

    def error(self, key: str, problem: str) -> IssueUnreadable:
        """An IssueUnreadable error that names the file and the line of `key`."""
        return IssueUnreadable(f"{self.name}:{self.line(key)}: {problem}")

    def with_items(self, key: str, remove: tuple[str, ...], add: str | None) -> FrontMatter:
        """The front matter after a change of the list under `key`: all items in `remove` are deleted, and `add` is
        inserted in place of the first deleted item, or at the end of the list if no item was deleted. Raises ForgeError
        unless the new text, parsed again, has exactly this change."""
        old = self.items(key)
        new = list(old)
        gone = [index for index, label in enumerate(old) if label in remove]
        if add is not None:
            if gone:
                new[gone[0]] = add
                gone = gone[1:]
            else:
                new.append(add)
        wanted = tuple(label for index, label in enumerate(new) if index not in gone)
        if wanted == old:
            return self
        text = self.text
        node = self.nodes.get(key)
        if not isinstance(node, yaml.SequenceNode):
            text = self._text_with_value(key, f"[{_scalar(add or '', '[{}]')}]")
        else:
            text = _edit_list(text, self.start, node, old, new, gone)
        return self._verified(text, key, wanted)

    def with_value(self, key: str, value: str) -> FrontMatter:
        """The front matter after the value of `key` was replaced, or the key was added at the end. Raises ForgeError
        unless the new text, parsed again, has exactly this change."""
        if self.value(key) == value:
            return self
        node = self.nodes.get(key)
        plain = node is None or node.tag not in (_TEXT, _NULL)
        rendered = value if plain and re.fullmatch(r"true|false|[0-9]+", value) else _scalar(value, "k: {}", node)
        return self._verified(self._text_with_value(key, rendered), key, (value,))

    def _text_with_value(self, key: str, rendered: str) -> str:
        node = self.nodes.get(key)
        if node is None:
            newline = "\r\n" if self.text[: self.start].endswith("\r\n") else "\n"
            return f"{self.text[: self.end]}{key}: {rendered}{newline}{self.text[self.end :]}"
        first, last = self.start + node.start_mark.index, self.start + node.end_mark.index
        space = "" if self.text[first - 1 : first] in (" ", "\t") else " "
        return self.text[:first] + space + rendered + self.text[last:]

    def _source(self, node: yaml.Node) -> str:
        return self.text[self.start + node.start_mark.index : self.start + node.end_mark.index]

    def _verified(self, text: str, key: str, wanted: tuple[str, ...]) -> FrontMatter:
        """Parse the changed front matter; raises ForgeError unless `key` has the value `wanted` and all other keys have
        their old values."""
        try:
            new = parse(text, self.name)
            one = wanted[0] if len(wanted) == 1 else None
            good = new.items(key) == wanted if isinstance(new.nodes[key], yaml.SequenceNode) else new.value(key) == one
            others = {name: yaml.serialize(node) for name, node in self.nodes.items() if name != key}
            good = good and others == {name: yaml.serialize(node) for name, node in new.nodes.items() if name != key}
        except (IssueUnreadable, KeyError):
            good = False
        if not good:
            raise ForgeError(
                f"{self.name}:{self.line(key)}: `{key}` is written in a form that cannot be changed without touching "
                f"more; write it like `{key}: [one, two]` (a list) or `{key}: text`"
            )
        return new


def is_there(data: bytes) -> bool:
    """Whether `data` begins with front matter, that is, whether it has an opening line `---` and, within LIMIT bytes, a
    closing line `---` or `...`; the YAML between these lines may be invalid."""
    opening = _OPEN.match(data)
    return opening is not None and _CLOSE.search(data, opening.end(), LIMIT) is not None


def split(data: bytes, name: str) -> tuple[FrontMatter, int]:
    """(the front matter at the start of `data`, the offset where the body begins).

    Raises IssueUnreadable if there is no valid front matter; the error names the line and the expected form.  `data`
    may be only the beginning of the file, if that beginning has at least `LIMIT` bytes.
    """
    opening = _OPEN.match(data)
    if opening is None:
        raise IssueUnreadable(
            f"{name}:1: the first line must be `---`, then title, labels, author and state, then `---` again"
        )
    closing = _CLOSE.search(data, opening.end(), LIMIT)
    if closing is None:
        raise IssueUnreadable(f"{name}: the front matter has no closing line `---` within its first {LIMIT} bytes")
    return parse(decode(data[: closing.end()], name), name), closing.end()


def decode(data: bytes, name: str, line: int = 1) -> str:
    """Decode UTF-8 text.

    Raises IssueUnreadable with the line of the first invalid byte; `line` is the line number of the first line of
    `data` in the file.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise IssueUnreadable(
            f"{name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def _hint(error: yaml.MarkedYAMLError) -> str:
    """Advice for a person about the two most frequent causes of a YAML error; "" for any other error."""
    if "mapping values are not allowed" in str(error.problem):
        return "; put a value that has a colon in it in quotes"
    return "; indent with spaces" if "'\\t'" in str(error.problem) else ""


@lru_cache(maxsize=1024)
def parse(text: str, name: str) -> FrontMatter:
    """Parse front matter; `text` includes the opening and the closing line of the front matter. Raises IssueUnreadable.

    Parsed front matter is cached by text and name, because each poll reads the same front matter again.
    """
    start = text.index("\n") + 1
    end = text.rstrip("\r\n \t").rfind("\n") + 1
    try:
        root = _compose(text[start:end])
    except yaml.MarkedYAMLError as error:
        # if a bracket or quote was not closed, the error message names the line where it was opened
        inside = error.context_mark is not None and "block" not in str(error.context)
        mark = error.context_mark if inside else error.problem_mark or error.context_mark
        line = mark.line + 2 if mark else 1
        raise IssueUnreadable(f"{name}:{line}: the front matter is not YAML: {error.problem}{_hint(error)}") from error
    except yaml.YAMLError as error:
        raise IssueUnreadable(f"{name}: the front matter is not YAML: {_first_line(error)}") from error
    except RecursionError:
        raise IssueUnreadable(f"{name}: the front matter is nested too deeply; it is a plain list of keys") from None
    if root is None:
        return FrontMatter(name, text, start, end, {})
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise IssueUnreadable(f"{name}:2: the front matter must be lines of `key: value`")
    nodes: dict[str, yaml.Node] = {}
    for key, value in root.value:
        word = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        if word in nodes:
            raise IssueUnreadable(f"{name}:{key.start_mark.line + 2}: `{word}` is given twice; keep one")
        nodes[word] = value
    return FrontMatter(name, text, start, end, nodes)


def render(values: Mapping[str, str]) -> str:
    """New front matter as text, with the opening and the closing line `---`; values that are `true`, `false` or whole
    numbers get no quotes."""
    lines = [
        f"{key}: {value if re.fullmatch(r'true|false|[0-9]+', value) else _scalar(value, 'k: {}')}\n"
        for key, value in values.items()
    ]
    return "---\n" + "".join(lines) + "---\n"


def _edit_list(
    text: str, start: int, node: yaml.SequenceNode, old: tuple[str, ...], new: list[str], gone: list[int]
) -> str:
    """Replace, append and delete items of a YAML list in `text`, from the last item to the first, so that the offsets
    of the earlier items stay valid."""
    spans = [(start + item.start_mark.index, start + item.end_mark.index) for item in node.value]
    frame = "[{}]" if node.flow_style else "- {}"
    if len(new) > len(old):
        text = _append(text, start, node, spans, _scalar(new[-1], frame))
    for index in range(len(old) - 1, -1, -1):
        first, last = spans[index]
        if index in gone:
            text = _delete(text, first, last, flow=bool(node.flow_style))
        elif new[index] != old[index]:
            text = text[:first] + _scalar(new[index], frame, node.value[index]) + text[last:]
    return text


def _append(text: str, start: int, node: yaml.SequenceNode, spans: list[tuple[int, int]], rendered: str) -> str:
    if node.flow_style:
        if not spans:
            at = start + node.start_mark.index + 1
            return text[:at] + rendered + text[at:]
        at = spans[-1][1]
        return f"{text[:at]}, {rendered}{text[at:]}"
    first, last = spans[-1]
    lead = text[text.rindex("\n", 0, first) + 1 : first]
    at = text.index("\n", last) + 1
    newline = "\r\n" if text[:at].endswith("\r\n") else "\n"
    return f"{text[:at]}{lead}{rendered}{newline}{text[at:]}"


def _delete(text: str, first: int, last: int, *, flow: bool) -> str:
    if not flow:
        return text[: text.rindex("\n", 0, first) + 1] + text[text.index("\n", last) + 1 :]
    if (after := re.compile(r"[ \t]*,[ \t]*").match(text, last)) is not None:
        return text[:first] + text[after.end() :]
    before = re.search(r"(?<![ \t])[ \t]*+,[ \t]*+\Z", text[:first])
    return text[: before.start() if before else first] + text[last:]


def _scalar(text: str, frame: str, like: yaml.Node | None = None) -> str:
    """`text` as YAML in `frame` (`k: {}`, `- {}`, `[{}]`): with the kind of quotes of the node `like` if that node has
    quotes; otherwise without quotes if YAML then parses it to the same text, else in double quotes."""
    style = like.style if isinstance(like, yaml.ScalarNode) else None
    if style == "'" and "\n" not in text and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    if style != '"' and _reads_back(text, frame):
        return text
    quoted = yaml.dump(text, default_style='"', allow_unicode=True, width=1 << 30, Dumper=yaml.SafeDumper)
    return quoted.rstrip("\n")


def _reads_back(text: str, frame: str) -> bool:
    if not text or "\n" in text or not text.isprintable():
        return False
    # libyaml accepts an unquoted text with `?` in a list, but not every parser does
    if "?" in text and frame.startswith("["):
        return False
    try:
        node = _compose(frame.format(text))
    except yaml.YAMLError:
        return False
    if node is None or len(node.value) != 1:  # YAML did not parse the text to exactly one value
        return False
    inner = node.value[0][1] if isinstance(node, yaml.MappingNode) else node.value[0]
    return bool(isinstance(inner, yaml.ScalarNode) and inner.tag == _TEXT and not inner.style and inner.value == text)


def _compose(text: str) -> yaml.Node | None:
    """The root node of a YAML text.  libyaml parses the text, so that a process need not load the parser in Python.  A
    text that libyaml refuses is parsed again by the parser in Python, of which the error messages name the cause."""
    try:
        return yaml.compose(text, Loader=_FAST)
    except yaml.YAMLError:
        return _fit(yaml.compose(text, Loader=yaml.SafeLoader))


def _fit(root: yaml.Node | None) -> yaml.Node | None:
    """Replace unpaired surrogates in all scalars below `root`, so that the texts can be encoded as UTF-8; returns
    `root`.

    YAML escapes can contain the two surrogates of one character separately: libyaml refuses such a text, and the parser
    in Python does not join the surrogates.
    """
    nodes, seen = [root], set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:  # the walk over the nodes has visited this node before, through an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            node.value = replace_surrogates(node.value)
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            nodes += [one for pair in node.value for one in pair]
    return root


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
