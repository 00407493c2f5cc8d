"""What the syntax of the modules says: whose errors are raised, callables handed about, names with many definitions."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ROOT_ERROR = "MakimonoError"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

DEMANDED = {
    "KeyError": ("__getitem__", "__delitem__", "__missing__"),
    "IndexError": ("__getitem__", "__delitem__"),
    "AttributeError": ("__getattr__", "__getattribute__", "__setattr__", "__delattr__"),
    "StopIteration": ("__next__",),
}
"""Errors that a protocol of Python demands, and in which methods."""
DEMANDED_ANYWHERE = {
    "NotImplementedError": "a method that a subclass has to write",
    "AssertionError": "a line that is never reached",
    "typer.Exit": "how a command of typer ends",
    "typer.BadParameter": "how typer is told of a wrong argument",
    "structlog.DropEvent": "how a processor of structlog leaves an event out",
}
"""The same, wherever they are raised, with the reason."""
VALIDATOR = "validator"
"""Pydantic collects ValueError alone, of functions that are decorated as a validator or wrapped in one, and of what
these call in their module."""


@dataclass(frozen=True)
class Raise:
    """One `raise`, its place, and what it raises: a class or an expression.

    `kind` is `own`, `foreign`, `demanded` (a protocol asks for that class) or `again` (alone, or of an error that a
    name holds).
    """

    path: str
    line: int
    what: str
    kind: str


@dataclass
class Modules:
    """The parsed modules, by path, and what has to be known of all of them to judge one `raise`."""

    trees: dict[str, ast.Module]
    bases: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    returns: dict[str, list[ast.expr | None]] = field(default_factory=lambda: defaultdict(list))
    own: set[str] = field(default_factory=lambda: {ROOT_ERROR})

    def __post_init__(self) -> None:
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.bases[node.name].update(last_name(base) for base in node.bases)
                elif isinstance(node, FUNCTIONS):
                    self.returns[node.name].append(node.returns)
        while new := {name for name, bases in self.bases.items() if bases & self.own} - self.own:
            self.own |= new


def parsed(paths: Iterable[Path], root: Path) -> Modules:
    """Parse modules; their paths count from `root`."""
    return Modules({path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths})


def last_name(node: ast.expr) -> str:
    """`C` of `C`, `a.b.C`, `C(...)`, `C[...]`; "" of anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return last_name(node.value) if isinstance(node, ast.Subscript) else ""


# --- errors --------------------------------------------------------------------------------------------------------


def raises(modules: Modules) -> Iterator[Raise]:
    """Every `raise` of the modules."""
    for path, tree in modules.trees.items():
        checks = _validators(tree)
        for node, inside in _raises_in(tree, ()):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            what = "" if raised is None else ast.unparse(raised)
            yield Raise(path, node.lineno, what, _kind(node.exc, inside, checks, modules, tree))


def _raises_in(node: ast.AST, inside: tuple[ast.AST, ...]) -> Iterator[tuple[ast.Raise, tuple[ast.AST, ...]]]:
    """Each `raise` below a node, with the classes and functions around it, the innermost last."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise):
            yield child, inside
        yield from _raises_in(child, (*inside, child) if isinstance(child, (*FUNCTIONS, ast.ClassDef)) else inside)


def _validators(tree: ast.Module) -> set[str]:
    """Names of the functions of a module that pydantic calls to check a value, and of those that they call."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}
    found = {name for name, node in functions.items() if any(_is_validator(one) for one in node.decorator_list)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_validator(node.func):
            found.update(last_name(argument) for argument in node.args)
    while True:
        called = {
            last_name(node.func)
            for name in found & set(functions)
            for node in ast.walk(functions[name])
            if isinstance(node, ast.Call)
        }
        if called & set(functions) <= found:
            return found
        found |= called & set(functions)


def _is_validator(node: ast.expr) -> bool:
    return VALIDATOR in last_name(node).lower()


def _kind(
    raised: ast.expr | None, inside: tuple[ast.AST, ...], checks: set[str], modules: Modules, tree: ast.Module
) -> str:
    if raised is None:
        return "again"
    name = last_name(raised)
    if name in modules.own:
        return "own"
    function = next((node.name for node in reversed(inside) if isinstance(node, FUNCTIONS)), "")
    whole = ast.unparse(raised.func if isinstance(raised, ast.Call) else raised)
    if (
        whole in DEMANDED_ANYWHERE
        or function in DEMANDED.get(name, ())
        or (name == "ValueError" and function in checks)
    ):
        return "demanded"
    if not isinstance(raised, ast.Call):
        is_class = isinstance(raised, (ast.Name, ast.Attribute)) and name.lstrip("_")[:1].isupper()
        return "foreign" if is_class else "again"
    return "own" if _makes_own(raised.func, inside, modules, tree) else "foreign"


def _makes_own(called: ast.expr, inside: tuple[ast.AST, ...], modules: Modules, tree: ast.Module) -> bool:
    """Whether the function that makes an error is annotated to return own ones alone.  It is looked for in the class
    around the `raise`, in the module, in the module that it is imported from, then by its name in all modules."""
    name = last_name(called)
    holder = called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
    around: ast.AST | None = None
    if holder == "self":
        around = next((node for node in reversed(inside) if isinstance(node, ast.ClassDef)), None)
    elif holder or isinstance(called, ast.Name):
        around = _imported(holder or name, modules, tree) or (tree if not holder else None)
    near = [node for node in ast.iter_child_nodes(around) if isinstance(node, FUNCTIONS)] if around is not None else []
    candidates = [node.returns for node in near if node.name == name] or modules.returns.get(name, [])
    return bool(candidates) and all(one is not None and _is_own(one, modules) for one in candidates)


def _imported(name: str, modules: Modules, tree: ast.Module) -> ast.Module | None:
    """The module that a name is, or comes from, by the imports of another module; None when it is not imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    place = node.module.replace(".", "/")
                    return modules.trees.get(f"{place}/{alias.name}.py") or modules.trees.get(f"{place}.py")
    return None


def _is_own(annotation: ast.expr, modules: Modules) -> bool:
    """Whether an annotation names own errors alone; None beside them is passed over."""
    if isinstance(annotation, ast.BinOp):
        return all(_is_own(side, modules) or _is_none(side) for side in (annotation.left, annotation.right))
    return last_name(annotation) in modules.own


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# --- callables and names -------------------------------------------------------------------------------------------


def callables(modules: Modules) -> dict[str, list[tuple[str, int, str]]]:
    """(path, line, name) of parameters that are annotated as a callable, of lambdas, and of functions in functions."""
    found: dict[str, list[tuple[str, int, str]]] = {"parameters": [], "lambdas": [], "nested functions": []}
    for path, tree in modules.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Lambda):
                found["lambdas"].append((path, node.lineno, ast.unparse(node)))
            elif isinstance(node, FUNCTIONS):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                found["parameters"] += [
                    (path, one.lineno, f"{node.name}({one.arg})")
                    for one in given
                    if one.annotation is not None and "Callable" in ast.unparse(one.annotation)
                ]
        found["nested functions"] += [(path, node.lineno, node.name) for node in _nested(tree, within=False)]
    return found


def _nested(node: ast.AST, *, within: bool) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if within and isinstance(child, FUNCTIONS):
            yield child
        yield from _nested(child, within=within or isinstance(child, FUNCTIONS))


def definitions(modules: Modules) -> dict[str, list[tuple[str, int]]]:
    """Where each name is defined as a function, a method or a class, without leading underscores; the names with most
    definitions first.  Names of the language (`__init__`) are left out."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, tree in modules.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("__"):
                found[node.name.lstrip("_")].append((path, node.lineno))
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def by_class(found: Iterable[Raise]) -> dict[str, list[Raise]]:
    """Raises by the class or expression that they raise, the most frequent first."""
    listed = list(found)
    counts = Counter(one.what for one in listed)
    return {what: [one for one in listed if one.what == what] for what, _ in counts.most_common()}
