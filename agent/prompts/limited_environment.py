"""A Jinja environment for templates that users write: the immutable sandbox, with limits on work, memory and CPU time.

Jinja's sandbox refuses access to the interpreter, but does not limit memory: a template may double a text forty times
(https://jinja.palletsprojects.com/en/stable/sandbox/ leaves this to the program that embeds Jinja). In this environment
each run of the body of a loop or macro, and each result of a filter, a concatenation or one of the operators `+`, `*`,
`**` and `%`, is counted against a budget for one rendering. The size of a result that may be much larger than its
arguments is checked before it is computed. The limits of a rendering need no signal and no second process, and work in
each thread. Templates of the user can use only the filters and methods that `limited_environment.py` lists.
"""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from functools import wraps
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, nodes, pass_context, pass_eval_context
from jinja2 import filters as jinja_filters
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from agent.errors import MakimonoError
from agent.prompts.rendering import WORDS, Live, block, code, live, numbers, on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jinja2 import Template
    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

TEMPLATE_LIMIT = 64 << 10
"""The maximum number of characters of a template of the user."""
CONTEXT_LIMIT = 256 << 10
"""The maximum total of characters in texts, and of items in containers, that are passed to a template."""
OUTPUT_LIMIT = 512 << 10
"""The maximum number of characters of a text rendered from a template, and of any value that the template computes."""
WORK_LIMIT = 8 << 20
"""The maximum total of steps, and of characters and items in results, in one rendering of a template."""
SECONDS = 1.0
"""The maximum CPU time of one rendering of a template in seconds; only the CPU time of the thread counts, so a
rendering on a busy machine does not fail."""
LOOKS = 32
"""The CPU time of a rendering is checked at each call that counts more than LARGE against the budget, and otherwise at
every LOOKS-th call."""
LARGE = 1000
LONGEST_RANGE = 10_000
LARGEST_NUMBER = 10**18

STRING_METHODS = frozenset(
    (
        *("capitalize", "casefold", "count", "endswith", "find", "isdigit", "lower", "lstrip", "removeprefix"),
        *("removesuffix", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper"),
    )
)
MAPPING_METHODS = frozenset(("get", "items", "keys", "values"))
FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int"),
    *("items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse"),
    *("select", "selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
"""Filters of Jinja of which the arguments and the result are only counted, since a result is not much larger than the
arguments."""

_FORMAT = re.compile(r"%(?:\((\w+)\))?[-+ #0]*([0-9]*|\*)(?:\.([0-9]*|\*))?[a-zA-Z%]")
_WIDEST = 100


class LimitExceeded(MakimonoError, TemplateError):
    """A rendering of a template needs more work, memory or time than a template may use. LimitExceeded is also an error
    of Jinja (TemplateError), so that callers that catch the errors of a template catch it too."""

    code = "config"


class _Budget:
    """The remaining budget of one rendering of a template."""

    def __init__(self) -> None:
        self.left = WORK_LIMIT
        self.until = time.thread_time() + SECONDS
        self.calls = 0

    def spend(self, amount: int) -> None:
        self.left -= amount
        self.calls += 1
        if self.left < 0:
            raise LimitExceeded(f"it needs more than {WORK_LIMIT} steps and characters")
        if (amount > LARGE or self.calls % LOOKS == 0) and time.thread_time() > self.until:
            raise LimitExceeded(f"it takes longer than {SECONDS:g} s")


_budget: ContextVar[_Budget] = ContextVar("budget of a rendering")


def spend(amount: int) -> None:
    """Count `amount` against the budget of the rendering. Without a budget, when Jinja evaluates constants of a
    template while it compiles, `spend` raises LimitExceeded, so that Jinja leaves the evaluation to the rendering."""
    budget = _budget.get(None)
    if budget is None:
        raise LimitExceeded("constants are not evaluated before the rendering")
    budget.spend(amount + 1)


def size(value: object) -> int:
    """The number of characters of a text, or of the characters and items in a container, and 0 for another value; an
    item that is in a container twice counts twice. Raises LimitExceeded for a size above OUTPUT_LIMIT, or an integer
    that is not between -LARGEST_NUMBER and LARGEST_NUMBER."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            count += len(one)
        elif isinstance(one, dict):
            count += len(one)
            waiting += [*one, *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            count += len(one)
            waiting += one
        elif isinstance(one, int) and not -LARGEST_NUMBER < one < LARGEST_NUMBER:
            raise LimitExceeded(f"a number is larger than {LARGEST_NUMBER}")
        if count > OUTPUT_LIMIT:
            raise LimitExceeded(f"a value has more than {OUTPUT_LIMIT} characters or items")
    return count


def _measured(value: Any) -> Any:
    """Return `value` after counting it against the budget; a generator is counted item by item."""
    if isinstance(value, GeneratorType):
        return _counted_items(value)
    spend(size(value))
    return value


def _counted_items(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        spend(1)
        yield item


def _fits(length: int) -> None:
    if length > OUTPUT_LIMIT:
        raise LimitExceeded(f"a value has more than {OUTPUT_LIMIT} characters or items")


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter of templates so that its arguments and its result are counted against the budget."""

    @wraps(function)
    def counted(*args: Any, **named: Any) -> Any:
        for value in (*args, *named.values()):
            spend(size(value))
        return _measured(function(*args, **named))

    return counted


# --- filters and operators whose result may be much larger than their arguments ------------------------------------


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    """The template filter `join`: joins texts; `attribute` is not supported, since `map(attribute=…)` does the same."""
    if attribute is not None:
        raise LimitExceeded("join takes no attribute here; write `| map(attribute=…) | join`")
    return joined([part for item in value for part in (d, item)][1:])


def _replace(value: object, old: str, new: str) -> str:
    text, old, new = str(value), str(old), str(new)
    _fits(len(text) + text.count(old) * max(0, len(new) - len(old)))
    return text.replace(old, new)


def _indent(value: object, width: int = 4, first: bool = False) -> str:
    pad = " " * _narrow("indent", width)
    lines = str(value).splitlines()
    _fits(len(lines) * len(pad))
    shown = [pad + one if one and (first or number) else one for number, one in enumerate(lines)]
    return "\n".join(shown)


def _narrow(name: str, number: object, least: int = 0) -> int:
    """An argument of the template filter `name` as an integer; raises LimitExceeded unless `number` is a number from
    `least` to _WIDEST."""
    if not isinstance(number, int | float) or not least <= number <= _WIDEST:
        raise LimitExceeded(f"{name} takes a number from {least} to {_WIDEST}")
    return int(number)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    """The template filter `round`: rounds as Jinja does; `precision` is limited, because Jinja computes a power of ten
    with it, which nothing can interrupt."""
    return jinja_filters.do_round(value, _narrow("round", precision, -_WIDEST), method)


@pass_eval_context
def _tojson(context: EvalContext, value: Any, indent: int | None = None) -> Any:
    """The template filter `tojson`: writes JSON as Jinja does; with `indent`, the size of the blanks in the result is
    checked first."""
    if indent is not None:
        _fits(size(value) * _levels(value) * _narrow("tojson", indent))
    return jinja_filters.do_tojson(context, value, indent)


def _levels(value: object) -> int:
    """The number of levels of nested containers in `value`."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, dict | list | tuple):
            deepest = max(deepest, depth)
            waiting += [(part, depth + 1) for part in (one.values() if isinstance(one, dict) else one)]
    return deepest


def _format(value: object, *args: Any, **named: Any) -> str:
    if args and named:
        raise LimitExceeded("format takes values by position or by name")
    return _percent(str(value), named or args)


def _percent(text: str, values: Any) -> str:
    """The operator `%` with a text, as in printf; a field may be at most _WIDEST wide."""
    fields = list(_FORMAT.finditer(text))
    for found in fields:
        for part in (found[2], found[3]):
            if part == "*" or (part and int(part) > _WIDEST):
                raise LimitExceeded(f"a field of {found[0]!r} may be {_WIDEST} wide")
    _fits(len(text) + len(fields) * (size(values) + _WIDEST))
    return str(text % values)


def joined(parts: Iterable[Any]) -> str:
    """The concatenation of texts, as by Jinja's operator `~`."""
    shown, length = [], 0
    for part in parts:
        spend(size(part))
        shown.append(str(part))
        length += len(shown[-1])
        _fits(length)
    spend(length)
    return "".join(shown)


def _times(left: Any, right: Any) -> Any:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, str | bytes | list | tuple):
            if isinstance(other, int):
                _fits(max(1, size(one)) * max(0, other))
            break
    return left * right


def _power(left: Any, right: Any) -> Any:
    if abs(right) > 64 or abs(left) > LARGEST_NUMBER:
        raise LimitExceeded("a power of that size")
    return left**right


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "*": _times,
    "**": _power,
    "%": lambda left, right: _percent(left, right) if isinstance(left, str) else left % right,
    "+": lambda left, right: left + right,
}


def _range(*numbers: int) -> range:
    """The function `range` of templates: as in Python, with at most LONGEST_RANGE items."""
    found = range(*numbers)
    if len(found) > LONGEST_RANGE:
        raise LimitExceeded(f"a range has more than {LONGEST_RANGE} numbers")
    spend(len(found))
    return found


_OWN = (spend, joined, _measured, _counted_items)
_SCOPES = ("_loop_vars", "_block_vars")
"""The names of the arguments that Jinja adds to a call in a template; their values are the variables in scope there."""


# --- the environment -----------------------------------------------------------------------------------------------


class _Counting(NodeTransformer):
    """Inserts calls that count the work of a rendering into the syntax tree of a template."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja finds this method by its name
        self.generic_visit(node)
        return _call("joined", nodes.List(node.nodes, lineno=node.lineno), node)

    def _container(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node, nodes.Tuple) and node.ctx != "load":
            return node
        return _call("measured", node, node)

    visit_List = visit_Dict = visit_Tuple = _container  # noqa: N815

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.test is not None:
            node.iter = _call("counted_items", node.iter, node)
        return _with_cost(node)

    def _body(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        return _with_cost(node)

    visit_Macro = visit_CallBlock = _body  # noqa: N815


def _call(name: str, argument: Any, node: nodes.Node) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), [argument], [], None, None, lineno=node.lineno)


def _with_cost(node: Any) -> nodes.Node:
    """Insert a statement at the beginning of the body of a loop or macro that counts the constant text of the body each
    time the body runs.
    """
    cost = 1 + sum(len(text.data) for part in node.body for text in _texts(part))
    node.body.insert(0, nodes.ExprStmt(_call("spend", nodes.Const(cost), node), lineno=node.lineno))
    return node  # type: ignore[no-any-return]


def _texts(node: nodes.Node) -> Iterator[nodes.TemplateData]:
    if isinstance(node, nodes.TemplateData):
        yield node
    yield from node.find_all(nodes.TemplateData)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The Jinja environment that compiles the templates of the user.

    With `published`, the function in the variable WORDS is applied to each value, as `rendering.publish` describes.
    """

    intercepted_binops = frozenset(_OPERATORS)
    spend = staticmethod(spend)
    joined = staticmethod(joined)
    measured = staticmethod(_measured)
    counted_items = staticmethod(_counted_items)

    def __init__(self, *, published: bool) -> None:
        super().__init__(
            finalize=_published if published else _counted_text,
            undefined=StrictUndefined,
            autoescape=False,  # the output of a template is Markdown or a prompt, not HTML
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            optimized=False,
        )
        own: dict[str, Callable[..., Any]] = {
            "line": on_one_line,
            "code": code,
            "block": block,
            "numbers": numbers,
            "live": live,
        }
        own |= {"join": _join, "replace": _replace, "indent": _indent, "format": _format}
        own |= {"round": _round, "tojson": _tojson}
        known = {name: jinja_filters.FILTERS[name] for name in FILTERS} | own
        self.filters = {name: _counted(function) for name, function in known.items()}
        self.globals = {"range": _range}

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        tree = _Counting().visit(source)
        tree.set_environment(self)
        return super()._generate(tree, *args, **named)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read the attribute `attr` of the object."""
        if isinstance(obj, str):
            return attr in STRING_METHODS or (attr in ("name", "value") and not callable(value))
        if isinstance(obj, dict):
            return attr in MAPPING_METHODS
        if isinstance(obj, LoopContext | Macro):
            return not attr.startswith("_") and super().is_safe_attribute(obj, attr, value)
        return not callable(value) and super().is_safe_attribute(obj, attr, value)

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a template may call the object: macros, loops, `range`, and methods of texts and mappings."""
        if obj is _range or isinstance(obj, Macro | LoopContext):
            return True
        if any(obj is own for own in _OWN):
            return True
        return isinstance(getattr(obj, "__self__", None), str | dict | LoopContext)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805, PYI063 - Jinja's own method has the same signature
        """Call an object for a template, and count its arguments and its result."""
        if not __self.is_safe_callable(__obj):
            raise SecurityError(f"{getattr(__obj, '__name__', type(__obj).__name__)!r} cannot be called")
        if any(__obj is own for own in _OWN):
            return __obj(*args)
        for value in (*args, *(value for name, value in kwargs.items() if name not in _SCOPES)):
            spend(size(value))
        return _measured(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator in a template; the size of the result is checked before the result is computed."""
        del context
        for value in (left, right):
            if isinstance(value, Undefined):
                str(value)  # `str` of an undefined variable raises an error with the name of the variable
            if not isinstance(value, int | float | str | list | tuple | type(None)):
                raise SecurityError(f"{operator} takes numbers, texts and lists, found {type(value).__name__}")
        if operator == "+" and not isinstance(left, int | float):
            _fits(size(left) + size(right))
        return _measured(_OPERATORS[operator](left, right))


def _counted_text(value: Any) -> Any:
    """Convert `value` to a text and count it; Jinja calls `_counted_text` for each value in the output of a
    template."""
    if isinstance(value, Undefined):
        return value  # Jinja converts an undefined variable to text later, which raises the error about it
    spend(size(value))
    text = value if isinstance(value, Live) else str(value)  # not `escape`, which returns Jinja's class Markup
    spend(len(text))
    return text


@pass_context
def _published(context: Context, value: Any) -> Any:
    text = _counted_text(value)
    if isinstance(text, Live | Undefined):
        return text
    words = context[WORDS]
    return _counted_text(words(text))


def fill(template: Template, values: Mapping[str, object]) -> str:
    """Render a template of this environment; white space at both ends of the text is removed.

    Raises TemplateError (including LimitExceeded), or the error of Python that a wrong template causes (ValueError,
    TypeError and others).
    """
    given = sum(size(value) for name, value in values.items() if name != WORDS)
    if given > CONTEXT_LIMIT:
        raise LimitExceeded(f"the values have {given} characters and items; a template takes {CONTEXT_LIMIT}")
    token = _budget.set(_Budget())
    try:
        chunks, length = [], 0
        for chunk in template.generate(dict(values)):
            chunks.append(chunk)
            length += len(chunk)
            if length > OUTPUT_LIMIT:
                raise LimitExceeded(f"the text has more than {OUTPUT_LIMIT} characters")
    finally:
        _budget.reset(token)
    return "".join(chunks).strip()
