"""Checks a template of the user before it is used: its fields, its variables, and whether it can be rendered with
sample values.

`template_check.py` reads no file of the user. `check` raises TemplateRefused with a message that names the file or
address of the template, what is wrong, and what is allowed.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError, meta, nodes

from agent.prompts import limited_environment
from agent.prompts.limited_environment import TEMPLATE_LIMIT
from agent.prompts.rendering import WORDS, describe, program_templates, source
from agent.prompts.revision import TemplateRefused, environment
from agent.prompts.sample_values import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIELDS = ("name", "version", "schema_ref", "template", "variables", "ttl_seconds")
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MUST_USE = {
    "briefing": ("title", "body"),
    "deliberation": ("parts", "tool"),
    "extraction": ("events",),
    "malformed_call": ("mark",),
    "text_tools": ("mark", "tools"),
}
"""Name of a template → the variables that the template must use, since no task can be done without their text."""

_REFUSED = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.Block, nodes.ScopedEvalContextModifier)
_SHORT = 200
SECONDS = 5.0
"""The CPU time in seconds after which no further sample is rendered, and the template is refused."""


def check(where: str, fields: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Check the fields of a template from the file or address `where`, and return the fields; `schemas` are the JSON
    schemas that were read with the template. Raises TemplateRefused for the first fault of the template."""
    _check_fields(where, fields)
    name, text = fields["name"], fields["template"]
    known = _packaged_variables(name)
    ref = fields.get("schema_ref") or ""
    if ref and ref not in schemas:
        raise TemplateRefused(f"{where}: schema_ref {ref[:_SHORT]!r} was not found; name a file in the folder")
    tree = _parsed(where, text)
    used = meta.find_undeclared_variables(tree)
    declared = set(fields.get("variables") or {})
    if "variables" in fields and used != declared:
        _refuse_difference(where, used, declared)
    if known is None and "variables" not in fields:
        known_names = ", ".join(program_templates())
        raise TemplateRefused(
            f"{where}: the program has no template {name!r}; known are {known_names}. A new one needs `variables`"
        )
    if known is not None and (foreign := used - known):
        allowed = ", ".join(sorted(known)) or "none"
        raise TemplateRefused(f"{where}: {_listed(foreign)} is not given to {name!r}; its variables are {allowed}")
    if missing := set(MUST_USE.get(name, ())) - used:
        raise TemplateRefused(f"{where}: {name!r} must show {_listed(missing)}; without it no task can be done")
    _check_live(where, name, tree)
    _render(where, name, text, {one: str(fields["variables"][one]) for one in declared} if known is None else None)
    return dict(fields)


def _listed(found: set[str]) -> str:
    return ", ".join(f"`{one}`" for one in sorted(found))


def _packaged_variables(name: str) -> set[str] | None:
    """The variables of the program's own template `name`; None if the program has no such template."""
    return {one.name for one in describe(name)[1]} if name in program_templates() else None


def _check_fields(where: str, fields: Mapping[str, Any]) -> None:
    unknown = sorted(set(map(str, fields)) - set(FIELDS))
    if unknown:
        raise TemplateRefused(f"{where}: {unknown[0][:_SHORT]!r} is no field; allowed are {', '.join(FIELDS)}")
    for one in ("name", "template"):
        if not isinstance(fields.get(one), str) or not fields[one].strip():
            raise TemplateRefused(f"{where}: {one} is required, and is text; found {_kind(fields.get(one))}")
    if not NAME.fullmatch(fields["name"]):
        raise TemplateRefused(
            f"{where}: name {fields['name'][:_SHORT]!r}; allowed are a small letter, then small letters, digits and _"
        )
    for one in ("version", "schema_ref"):
        if not isinstance(fields.get(one, ""), str | None):
            raise TemplateRefused(f"{where}: {one} is text, in quotes if it looks like a number")
    if len(fields["template"]) > TEMPLATE_LIMIT:
        raise TemplateRefused(
            f"{where}: the template has {len(fields['template'])} characters; {TEMPLATE_LIMIT} are allowed"
        )
    for text in (fields["template"], fields.get("version") or "", fields.get("schema_ref") or ""):
        if any("\ud800" <= sign <= "\udfff" or sign == "\0" for sign in text):
            raise TemplateRefused(f"{where}: it has a NUL or half a surrogate pair; save it as UTF-8 text")
    variables = fields.get("variables", {})
    if not isinstance(variables, dict) or not all(
        isinstance(key, str) and key.isidentifier() and isinstance(value, str) for key, value in variables.items()
    ):
        raise TemplateRefused(f"{where}: variables is a mapping of the name of each variable to its meaning, a text")
    ttl = fields.get("ttl_seconds")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= 10**9):
        raise TemplateRefused(f"{where}: ttl_seconds is a number above 0; found {_kind(ttl)}")


def _kind(value: object) -> str:
    if isinstance(value, str):
        return f"the text {value[:40]!r}" if value.strip() else "an empty text"
    kind = {bool: "the value", int: "the number", float: "the number"}.get(type(value), type(value).__name__)
    return "nothing" if value is None else f"{kind} {str(value)[:40]!r}"


def _refuse_difference(where: str, used: set[str], declared: set[str]) -> None:
    said = []
    if extra := used - declared:
        said.append(f"the template uses {_listed(extra)}, which `variables` does not name")
    if extra := declared - used:
        said.append(f"`variables` names {_listed(extra)}, which the template does not use")
    raise TemplateRefused(f"{where}: {'; '.join(said)}")


def _parsed(where: str, text: str) -> nodes.Template:
    try:
        tree = environment(published=False).parse(text)
        environment(published=False).compile(text)
    except TemplateSyntaxError as error:
        raise TemplateRefused(f"{where}, line {error.lineno} of the template: {error.message}") from None
    except Exception as error:
        raise TemplateRefused(f"{where}: the template cannot be compiled: {type(error).__name__}") from error
    for kind in _REFUSED:
        if (found := tree.find(kind)) is not None:
            what = type(found).__name__.lower()
            raise TemplateRefused(f"{where}, line {found.lineno} of the template: {what} is not allowed")
    return tree


def _render(where: str, name: str, text: str, meanings: dict[str, str] | None) -> None:
    """Render the template with each sample of the program's template `name`; if there is no sample, with "text" as each
    variable. If the program itself has no template of that name, `meanings` is given, and the value of each variable is
    its meaning there. Raises TemplateRefused."""
    samples = SAMPLES.get(name) if meanings is None else None
    if samples is None:
        samples = (dict.fromkeys(_packaged_variables(name) or {}, "text") if meanings is None else meanings,)
    plain, published = (environment(published=one).from_string(text) for one in (False, True))
    longest, until = "", time.thread_time() + SECONDS
    for sample in samples:
        if time.thread_time() > until:
            raise TemplateRefused(f"{where}: it takes longer than {SECONDS:g} s to render all samples")
        try:
            shown = limited_environment.fill(plain, sample)
            limited_environment.fill(published, {**sample, WORDS: str})
        except Exception as error:
            raise TemplateRefused(
                f"{where}: it cannot be rendered with sample values: {type(error).__name__}: {str(error)[:_SHORT]}"
            ) from error
        longest = max(longest, shown, key=len)
    if not longest.strip():
        raise TemplateRefused(f"{where}: its text is empty with every sample")


# --- the filter `live` ---------------------------------------------------------------------------------------------


def _check_live(where: str, name: str, tree: nodes.Template) -> None:
    """Refuse a template that uses the filter `live` on a value, unless the program's own template also uses it on that
    value.

    The forge acts on a text with the filter `live` (mentions, closing keywords), so this filter must not be used on a
    text of the model or of an issue.
    """
    if name in program_templates():
        own = environment(published=False).parse(source(name))
        allowed = {path for _, paths in _live_paths(own) for path in paths}
    else:
        allowed = set()
    for line, paths in _live_paths(tree):
        if foreign := paths - allowed:
            known = _listed(allowed) or "constant text alone"
            raise TemplateRefused(
                f"{where}, line {line} of the template: live is not allowed for {_listed(foreign)}; allowed: {known}"
            )


def _live_paths(tree: nodes.Template) -> Iterator[tuple[int, set[str]]]:
    """Yields (line, dotted paths of the values) for each use of the filter `live` in a template, and (line, {"map"})
    for each use of `map` that may call `live`."""
    aliases: dict[str, set[str]] = {}
    for one in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock, nodes.AssignBlock, nodes.With)):
        for name in _bound(one):
            aliases.setdefault(name, set()).add(f"a local value ({name})")
    for _ in range(4):  # several rounds, since an alias in a template may refer to another alias
        for one in tree.find_all(nodes.Assign):
            for name in _names(one.target):
                aliases.setdefault(name, set()).update(_paths(one.node, aliases))
    for found in tree.find_all(nodes.Filter):
        if found.name == "live":
            yield found.lineno, _paths(found.node, aliases) if found.node is not None else {"a filter block"}
        elif found.name == "map" and found.args and not _is_harmless(found.args[0]):
            yield found.lineno, {"map"}


def _bound(node: Any) -> Iterator[str]:
    """The names to which a loop, a macro, a `with` or a block of a template assigns a value."""
    for one in (*getattr(node, "args", ()), *getattr(node, "targets", ())):
        yield from _names(one)
    if (target := getattr(node, "target", None)) is not None:
        yield from _names(target)


def _names(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, nodes.Name):
        yield node.name
    yield from (one.name for one in node.find_all(nodes.Name))


def _is_harmless(argument: nodes.Expr) -> bool:
    return isinstance(argument, nodes.Const) and argument.value != "live"


def _paths(node: nodes.Node, aliases: Mapping[str, set[str]]) -> set[str]:
    """The values that an expression of a template uses, as dotted paths; an alias counts as the values that were
    assigned to it."""
    path = _path(node)
    if path is not None:
        root, dot, rest = path.partition(".")
        return {f"{one}{dot}{rest}" for one in aliases[root]} if root in aliases else {path}
    found: set[str] = set()
    for child in node.iter_child_nodes():
        found |= _paths(child, aliases)
    return found


def _path(node: nodes.Node) -> str | None:
    """The dotted path of an expression in a template, for example `a.b` for `a.b`, `a["b"]` and `a.get("b")`; None for
    an expression of another form."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        inner, last = _path(node.node), node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        inner, last = _path(node.node), str(node.arg.value)
    elif (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Getattr)
        and node.node.attr == "get"
        and node.args
        and isinstance(node.args[0], nodes.Const)
    ):
        inner, last = _path(node.node.node), str(node.args[0].value)
    else:
        return None
    return None if inner is None else f"{inner}.{last}"
