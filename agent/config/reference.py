"""Generates the documentation of the configuration from the models: the list of keys and the commented config.yaml.

`scripts/write_docs.py` writes docs/configuration.md and the commented config.yaml; tests/docs checks that both are up
to date.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic_core import PydanticUndefined

from agent.config import key_tree, library_credentials
from agent.config.base import may_be_empty, section_in
from agent.config.settings import Settings, value_text

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

WIDTH = 116
"""The maximum line length of the generated config.yaml."""
PAGE_WIDTH = 120
"""The maximum line length of the generated page docs/configuration.md."""

_HEAD = """\
# Configuration

Everything can be set in `config.yaml`; most of it need not be. `./main.py config show` prints every value and where it
came from. This page is made from the program (`scripts/write_docs.py`); the commented `config.yaml` beside the README
has every key with its default.

## Where a value comes from

default < `config.yaml` < environment < command line.

- **config.yaml** is the one in the current folder, or the one named by `--config`. Without one, the defaults hold; one
  that is named must exist. Relative paths count from its folder. It is read with a safe loader; an unknown key, a
  wrong type, a key that is given twice or an empty required value is refused, with the line and the nearest known
  key.
- **`${NAME}`** in a value is replaced from the environment. When it is unset or empty that is an error in a section in
  use (the chosen `llm.provider`, the listed `task_sources`, everything that is not about one of these); elsewhere the
  default holds. `$${` is a literal `${`.
- **Environment**: the variables in the table. A variable set to nothing counts as unset; an `AGENT__…` that names no
  key is refused. Lists may be written with commas or as JSON, mappings as JSON or one entry a variable
  (`AGENT__LOCAL__REPOS__app=../app`), `null` means empty. Of several hosts a number names one:
  `AGENT__GITHUB__0__OWNER`.
- **`GITHUB_TOKEN`** (and `GITHUB_PERSONAL_ACCESS_TOKEN`, which comes first; likewise for GitLab; for Forgejo
  `FORGEJO_TOKEN`, then `GITEA_TOKEN`) sets the token of the only host. Among several it goes to the public one only,
  and never to a host that has an `app`.
- **Secrets** are never printed: `config show`, error messages, logs, comments and the files of a task have a mask where
  a declared secret of at least 8 characters would stand. Declared are secret keys, passwords in addresses, and what
  libraries find by themselves: @CREDENTIALS@,
  `FSSPEC_…`, and the values with a telling name in the files that @FILES@
  name, or in those below HOME that are read without them. No command gets any of them.

## The window of a model

How many tokens a request may have is, as far as it is configured, the first of:

1. `<MODEL>_MAX_CONTEXT_TOKENS` in the environment: the model's name in upper case, every sign other than A–Z and 0–9
   as `_` (`gpt-4o` → `GPT_4O_MAX_CONTEXT_TOKENS`);
2. `GEMINI_MAX_TOKENS` or `ANTHROPIC_MAX_TOKENS` when the model's name contains `gemini` or `claude`, then the
   provider's: `OPENAI_MAX_TOKENS`, `CHATGPT_MAX_TOKENS`; `OLLAMA_MAX_TOKENS`; `LMSTUDIO_MAX_TOKENS`;
   `ANTHROPIC_MAX_TOKENS`;
3. `context_length` of the provider, which is about the model configured beside it;
4. the known window of the model: the default ones (@KNOWN@), and with `openai`, `anthropic` and plug-ins those that
   their vendors serve under a name (GPT, Claude, Gemini, DeepSeek, Kimi, Qwen, Mistral, Grok; made in @MADE@);
5. `DEFAULT_MAX_TOKENS`;
6. 4096.

`MLC_MAX_CONTEXT_TOKENS` caps the result. What the server says is loaded, and what an error has taught, can only lower
what 1 to 4 say; it replaces 5 and 6. So 4096 tokens count only where neither you nor the server says more: a window
that is assumed too large breaks a task, one that is too small only compacts it more often.

A conversation is compacted above the least of `compression_threshold` × window and 0.9 × the room for the request
(window less answer and margin); `request UUID` shows both.

## Every key

Below each key: its default, the allowed values, and the environment variable that sets it. `[…]` means a list. The keys
of `github`, `gitlab` and `forgejo` are in one mapping, or in a list of mappings.
"""


def markdown() -> str:
    """The text of docs/configuration.md."""
    from agent.config.known_windows import MADE
    from agent.config.llm_section import KNOWN_WINDOWS

    known = ", ".join(f"{provider}: {model} {tokens}" for provider, (model, tokens) in KNOWN_WINDOWS.items())
    head = _HEAD.replace("@KNOWN@", known).replace("@MADE@", MADE)
    head = head.replace("@CREDENTIALS@", ", ".join(f"`{name}`" for name in library_credentials.VARIABLES))
    head = head.replace("@FILES@", ", ".join(f"`{name}`" for name in library_credentials.FILES))
    parts = [re.sub(r"(?m)^(- |\d\. )(.+(?:\n +\S.*)*)", _filled_item, head)]
    for name, field in Settings.model_fields.items():
        inner = section_in(field.annotation)
        parts.append(f"\n### `{name}`\n\n{field.description}\n")
        start = (name, key_tree.NAME) if key_tree.is_named(field) else (name,)
        rows = [((name,), field)] if inner is None else list(key_tree.leaves(inner, start))
        parts.append("\n")
        parts.extend(_item(path, one) for path, one in rows)
    return "".join(parts)


def _item(path: key_tree.Path, field: FieldInfo) -> str:
    """A configuration key with its description, and below it default, allowed values and environment variables."""
    names = key_tree.VARIABLES.get(path, ()) or (key_tree.variable(path),)
    if key_tree.NAME in path:
        # one environment variable has all entries of the mapping, as JSON
        names = (key_tree.variable(path[: path.index(key_tree.NAME)]),)
    default = "" if field.is_required() else _default(field)
    facts = [
        "required" if field.is_required() else f"default `{default}`" if default else "default: empty",
        f"allowed: {key_tree.allowed(field)}",
        " or ".join(f"`{name}`" for name in names),
    ]
    lines = (f"- `{'.'.join(path)}`: {field.description or ''}", f"  - {'; '.join(facts)}")
    return "".join(f"{_filled(line, '  ' * (number + 1))}\n" for number, line in enumerate(lines))


def _filled_item(found: re.Match[str]) -> str:
    """A list item of docs/configuration.md, wrapped to the line length after names were inserted into its text."""
    return _filled(found[1] + " ".join(found[2].split()), " " * len(found[1]))


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(text, PAGE_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _default(field: FieldInfo) -> str:
    text = value_text(_to_yaml_types(field.get_default(call_default_factory=True)), is_size=key_tree.is_size(field))
    return text if len(text) <= 60 else text.partition("\\n")[0] + " …"


def _to_yaml_types(value: Any) -> Any:
    """A default value in YAML's types, for example a path as text."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {key: _to_yaml_types(inner) for key, inner in value.items()}
    return value


def example() -> str:
    """The text of the commented config.yaml: every key with its description and default; loading this file gives the
    defaults."""
    lines = [
        "# Makimono's configuration: every key with its default.  All of them may be left out.",
        "# Precedence: default < this file < environment < command line.  ${NAME} is taken from the environment.",
        "# Where nothing stands after the colon the value is empty.  More: docs/configuration.md",
    ]
    for name, field in Settings.model_fields.items():
        lines.append("")
        lines.extend(_entry(name, field, 0))
    return "\n".join(lines) + "\n"


def _entry(name: str, field: FieldInfo, depth: int) -> list[str]:
    pad = "  " * depth
    inner = section_in(field.annotation)
    if inner is not None and key_tree.is_named(field):
        return [
            *_comment(field, pad),
            f"{pad}#   {key_tree.NAME}: {{{', '.join(inner.model_fields)}}}",
            f"{pad}{name}: {{}}",
        ]
    if inner is not None and may_be_empty(field.annotation):
        shown = [f"{name}:", *(f"  {line}" for key, one in inner.model_fields.items() for line in _entry(key, one, 0))]
        return [*_comment(field, pad), f"{pad}{name}:", *(f"{pad}# {line}" for line in shown)]
    lines = [*_comment(field, pad), f"{pad}{name}:"]
    if inner is not None and not key_tree.is_inline(field):
        for key, one in inner.model_fields.items():
            lines.extend(_entry(key, one, depth + 1))
        return lines
    value = None if field.is_required() else _to_yaml_types(field.get_default(call_default_factory=True))
    if value is None or value is PydanticUndefined:
        return lines
    if isinstance(value, str) and "\n" in value:
        block = [f"{pad}  {line}".rstrip() for line in value.rstrip("\n").split("\n")]
        return [*lines[:-1], f"{pad}{name}: |", *block]
    return [*lines[:-1], f"{pad}{name}: {_scalar(value, is_size=key_tree.is_size(field))}"]


def _comment(field: FieldInfo, pad: str) -> list[str]:
    inner = section_in(field.annotation)
    text = field.description or ""
    if inner is None or key_tree.is_inline(field):
        text += f"  [{key_tree.allowed(field)}]"
    words, lines = text.split(" "), [f"{pad}#"]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(f"{pad}#")
        lines[-1] += f" {word}"
    return lines


def _scalar(value: Any, *, is_size: bool) -> str:
    if isinstance(value, str):
        # The YAML dumper quotes texts where necessary (`null`, but not `none`).
        return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    if isinstance(value, tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value_text(value, is_size=is_size)
