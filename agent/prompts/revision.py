"""Templates of the user as values: one revision of a template, and a set of revisions that is used as a whole.

A TemplateSet is immutable: one assignment replaces the set in use by another set (`rendering.set_replacements`), so no
text mixes templates of two sets.

    ConfigError
    └── TemplateRefused   a template or its file cannot be used; the text names file and field
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.error_text import named
from agent.errors import ConfigError
from agent.prompts import limited_environment
from agent.prompts.limited_environment import LimitedEnvironment
from agent.prompts.rendering import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jinja2 import Template

FORMAT = 1
_environments: dict[bool, LimitedEnvironment] = {}


class TemplateRefused(ConfigError):
    """A template of the user, or its file, cannot be used."""

    code = "template_refused"


@dataclass(frozen=True, slots=True)
class TemplateRevision:
    """One version of one template, of the user or of the program itself.

    `version` is the version that the template's author gave, or 12 digits of a hash of the template if there is none.
    `schema_ref` is the name of a JSON schema in the folder of the templates or in the document from `prompts.url`, ""
    for none. `variables` maps each variable of the template to its meaning. `loaded_at` is the time at which the
    template was loaded. `ttl_seconds` is None for the default (`prompts.ttl_seconds`). `sha256` is a hash, in hex; for
    a template of the user it covers the schema and all fields but `loaded_at` and a version that the author did not
    give.
    """

    name: str
    version: str
    schema_ref: str
    template: str
    variables: Mapping[str, str]
    loaded_at: str
    ttl_seconds: float | None
    sha256: str


def hash_of(value: Any) -> str:
    """The SHA-256 in hex of a JSON value in its canonical form."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def make_revision(fields: Mapping[str, Any], schema: Any, loaded_at: str) -> TemplateRevision:
    """Make a revision from checked fields: `name`, `template`, and the optional ones."""
    known = {
        "name": fields["name"],
        "schema_ref": fields.get("schema_ref") or "",
        "template": fields["template"],
        "variables": dict(fields.get("variables") or {}),
        "ttl_seconds": fields.get("ttl_seconds"),
    }
    given = fields.get("version") or None
    digest = hash_of([given, known, schema])
    version = given or digest[:12]
    return TemplateRevision(version=version, loaded_at=loaded_at, sha256=digest, **known)


def environment(*, published: bool) -> LimitedEnvironment:
    """The environment that compiles templates of the user; there is one for texts that are published and one for other
    texts, each made at its first use."""
    if published not in _environments:
        _environments[published] = LimitedEnvironment(published=published)
    return _environments[published]


@dataclass(frozen=True)
class TemplateSet:
    """A set of checked templates by name, with their schemas by `schema_ref`.

    `failed(name, error)` is called when the template `name` cannot be rendered for a task, once for each name; the
    program's own template is then used, if there is one. `sha256` is the hash of the whole set of templates.
    """

    revisions: Mapping[str, TemplateRevision]
    schemas: Mapping[str, Any] = field(default_factory=dict)
    failed: Callable[[str, str], None] = field(default=lambda _name, _error: None, compare=False)
    _compiled: dict[tuple[str, bool], Template] = field(default_factory=dict, compare=False, repr=False)
    _reported: set[str] = field(default_factory=set, compare=False, repr=False)

    @property
    def sha256(self) -> str:
        """The hash of the names and contents of all templates of the set, in hex."""
        return hash_of({name: one.sha256 for name, one in self.revisions.items()})

    def names(self) -> list[str]:
        """The names of all templates of the set, sorted."""
        return sorted(self.revisions)

    def version(self, name: str) -> str | None:
        """The version of the template `name`; None when this set does not have the template."""
        return self.revisions[name].version if name in self.revisions else None

    def digest(self, name: str) -> str | None:
        """The `sha256` of the revision of the template `name`; None when this set does not have the template."""
        return self.revisions[name].sha256 if name in self.revisions else None

    def fill(self, name: str, values: Mapping[str, object]) -> str | None:
        """The rendered text of the template `name`; None if this set does not have the template, or the template cannot
        be rendered with `values`.

        If `values` has the key WORDS, the function under the key is applied to each value, as `rendering.publish`
        describes.
        """
        if name not in self.revisions:
            return None
        try:
            text = limited_environment.fill(self._template(name, published=WORDS in values), values)
        except Exception as error:  # noqa: BLE001 - an error in a template must never end a task
            if name not in self._reported:
                self._reported.add(name)
                self.failed(name, named(error))
            return None
        return text

    def _template(self, name: str, *, published: bool) -> Template:
        key = (name, published)
        if key not in self._compiled:
            self._compiled[key] = environment(published=published).from_string(self.revisions[name].template)
        return self._compiled[key]

    def to_json(self) -> dict[str, Any]:
        """The set of templates as a JSON object, from which `from_json` makes an equal set."""
        return {
            "format": FORMAT,
            "sha256": self.sha256,
            "templates": [_fields_of(self.revisions[name]) for name in sorted(self.revisions)],
            "schemas": dict(self.schemas),
        }


def _fields_of(one: TemplateRevision) -> dict[str, Any]:
    return {
        "name": one.name,
        "version": one.version,
        "schema_ref": one.schema_ref,
        "template": one.template,
        "variables": dict(one.variables),
        "loaded_at": one.loaded_at,
        "ttl_seconds": one.ttl_seconds,
        "sha256": one.sha256,
    }


def from_json(data: Any, failed: Callable[[str, str], None] = lambda _name, _error: None) -> TemplateSet:
    """Make a set of templates from the object that `TemplateSet.to_json` made. Raises TemplateRefused if the stored set
    of templates is damaged."""
    try:
        if data["format"] != FORMAT:
            raise TemplateRefused(f"a set of templates has the format {data['format']!r}; known is {FORMAT}")
        revisions = {one["name"]: TemplateRevision(**one) for one in data["templates"]}
        found = TemplateSet(revisions, data["schemas"], failed)
        whole = all(_is_whole(one, found.schemas.get(one.schema_ref)) for one in revisions.values())
        if not whole or found.sha256 != data["sha256"]:
            raise TemplateRefused("a set of templates does not match its hash")
    except (KeyError, TypeError, AttributeError) as error:
        raise TemplateRefused(f"a set of templates is damaged ({error})") from error
    return found


def _is_whole(one: TemplateRevision, schema: Any) -> bool:
    """Whether the content of a revision of a template has the recorded hash; the version is part of the hash only if
    the author of the template gave a version."""
    fields = _fields_of(one)
    given = (one.version, None) if one.sha256.startswith(one.version) else (one.version,)
    return any(make_revision({**fields, "version": version}, schema, "").sha256 == one.sha256 for version in given)


def make_set(
    templates: Iterable[Mapping[str, Any]],
    schemas: Mapping[str, Any],
    loaded_at: str,
    failed: Callable[[str, str], None],
) -> TemplateSet:
    """Make a set of templates from checked fields (`template_check.check`)."""
    found = [make_revision(one, schemas.get(one.get("schema_ref") or ""), loaded_at) for one in templates]
    return TemplateSet({one.name: one for one in found}, dict(schemas), failed)
