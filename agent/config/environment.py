"""The environment: the only place of the program that reads it.

Variables become a layer of configuration (`layer`); children of this program get `host_environment`, which has what a
program needs to run and nothing that is secret by name.
"""

from __future__ import annotations

import json
import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.config import shape
from agent.config.base import may_be_empty, section_in
from agent.config.layers import MANY, Layer
from agent.config.settings import Settings, passwords_in
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from agent.config.layers import Merged

PUBLIC_HOSTS = {"github": ("api.github.com", "github.com"), "gitlab": ("gitlab.com",)}

_PLAIN = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_NETWORK = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")


def current() -> Mapping[str, str]:
    """The environment as it is."""
    return os.environ


def host_environment(environ: Mapping[str, str] | None = None, *, network: bool = True) -> dict[str, str]:
    """The environment for processes of this program (git, bwrap): search path, home, language, time zone, and with
    `network` proxies and certificates.  A proxy's address may hold a password: never hand it to what a model runs."""
    environ = os.environ if environ is None else environ
    names = (*_PLAIN, *_NETWORK, *_TRUST) if network else _PLAIN
    found = {name: environ[name] for name in names if environ.get(name)}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **found}


def network_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Proxies and certificates alone: what git needs of the environment to reach another host."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in (*_NETWORK, *_TRUST) if environ.get(name)}


def hidden_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Secrets that the environment holds for this program, in force or not: tokens, keys, passwords of proxies."""
    found = [environ.get(name, "") for names in _secret_variables() for name in names]
    for name in _NETWORK:
        found.extend(passwords_in(environ.get(name, "")))
    for name, value in environ.items():
        if name.startswith(shape.PREFIX):
            path = tuple(name.removeprefix(shape.PREFIX).lower().split("__"))
            _, field, _ = shape.find(Settings, path)
            if field is not None and shape.is_secret(field):
                found.append(value)
    return tuple(sorted({value for value in found if value}))


def _secret_variables() -> Iterator[tuple[str, ...]]:
    for path, names in shape.VARIABLES.items():
        _, field, _ = shape.find(Settings, path)
        if field is not None and shape.is_secret(field):
            yield names


def layer(environ: Mapping[str, str], merged: Merged) -> Layer:
    """What the environment sets, on top of `merged`.  A variable that is set to nothing counts as unset.

    ConfigError for an `AGENT__…` that names no key.
    """
    made = Layer("environment")
    for path, names in shape.VARIABLES.items():
        name = next((one for one in names if environ.get(one, "").strip()), None)
        if name is None:
            continue
        target = _token_path(path, merged) if path[0] in MANY else path
        if target is not None:
            _, field, _ = shape.find(Settings, path)
            assert field is not None
            made.put(target, _value(environ[name].strip(), field, name), label=f"environment {name}")
    for name in sorted(environ):
        if name.startswith(shape.PREFIX) and environ[name].strip():
            _put_agent_variable(made, name, environ[name], merged)
    return made


def _put_agent_variable(made: Layer, name: str, text: str, merged: Merged) -> None:
    written = name.removeprefix(shape.PREFIX).split("__")
    path = tuple(step.lower() for step in written)
    if path[0] == "llm" and path[-1] == "endpoint":
        path = (*path[:-1], "base_url")
    _, field, steps = shape.find(Settings, path)
    if field is not None and shape.is_mapping(field) and len(path) == steps + 1:
        path = (*path[:steps], written[steps])  # names in a free mapping are taken as they are written
    elif field is None or steps < len(path):
        raise _unknown(name, path)
    if path[0] in MANY:
        path = _entry_path(name, path, merged)
    value = text if shape.is_mapping(field) and len(path) > steps else _value(text, field, name)
    if isinstance(value, list) and shape.is_many(field):
        for number, entry in enumerate(value):
            made.put((path[0], str(number)), entry, label=f"environment {name}")
        return
    made.put(path, value, label=f"environment {name}")


def _unknown(name: str, path: shape.Path) -> ConfigError:
    known = {shape.variable(one): one for one, _ in shape.leaves(Settings)}
    plain = shape.variable(tuple(step for step in path if not step.isdigit()))
    near = get_close_matches(plain, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ConfigError(f"environment {name}: no key has this name{hint} (every key: docs/configuration.md)")


def _entry_path(name: str, path: shape.Path, merged: Merged) -> shape.Path:
    """`AGENT__GITHUB__OWNER` is about the only host; with several the number says which."""
    count = max(1, len(merged.entries(path[0])))
    if len(path) > 1 and path[1].isdigit():
        if int(path[1]) >= count:
            raise ConfigError(f"environment {name}: {path[0]} has {count} entries; the number is from 0 to {count - 1}")
        return (path[0], str(int(path[1])), *path[2:])
    if len(path) == 1:
        return (path[0], "0")
    if count > 1:
        first = shape.variable((path[0], "0", *path[1:]))
        raise ConfigError(f"environment {name}: {path[0]} has {count} entries; say which one, as in {first}")
    return (path[0], "0", *path[1:])


def _token_path(path: shape.Path, merged: Merged) -> shape.Path | None:
    """Where GITHUB_TOKEN goes: to the only host, or among several to the public one, never to another company's
    host; not to one that has an app."""
    entries = merged.entries(path[0]) or {"0": {}}
    for number, entry in entries.items():
        entry_map = entry if isinstance(entry, dict) else {}
        address = entry_map.get("base_url")
        public = address is None or urlsplit(str(address)).hostname in PUBLIC_HOSTS[path[0]]
        if (public or len(entries) == 1) and not entry_map.get("app"):
            return (path[0], number, *path[1:])
    return None


def _value(text: str, field: FieldInfo, name: str) -> Any:
    """A variable's text as the key wants it: lists as JSON or with commas, mappings as JSON, `null` for nothing."""
    if may_be_empty(field.annotation) and text.strip().lower() == "null":
        return None
    if shape.is_list(field) and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    if shape.is_list(field) or shape.is_mapping(field) or section_in(field.annotation) is not None:
        try:
            value = json.loads(text)
        except ValueError:
            raise ConfigError(
                f"environment {name}: found text that is not JSON; allowed is {shape.allowed(field)}"
            ) from None
        return value
    return text
