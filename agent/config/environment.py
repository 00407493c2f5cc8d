"""Reads the process environment; no other module of the program reads it.

Environment variables become a layer of configuration (`layer`). Child processes get the environment `host_environment`:
the variables that a program needs to run, and no variable with a secret's name.
"""

from __future__ import annotations

import json
import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.config import key_tree, library_credentials
from agent.config.base import may_be_empty, section_in
from agent.config.layers import MANY, Layer
from agent.config.settings import Settings, passwords_in
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from agent.config.layers import Merged

PUBLIC_HOSTS = {"github": ("api.github.com", "github.com"), "gitlab": ("gitlab.com",), "forgejo": ()}

_PLAIN = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_NETWORK = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")


def current() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def host_environment(environ: Mapping[str, str] | None = None, *, network: bool = True) -> dict[str, str]:
    """The environment for child processes of this program (git, bwrap).

    The environment for child processes has the search path, home, language and time zone, and with `network` also
    proxies and certificates. The address of a proxy may contain a password, so this environment must never be passed to
    commands of a model.
    """
    environ = os.environ if environ is None else environ
    names = (*_PLAIN, *_NETWORK, *_TRUST) if network else _PLAIN
    found = {name: environ[name] for name in names if environ.get(name)}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **found}


def network_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables that git needs to reach another host: only proxies and certificates."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in (*_NETWORK, *_TRUST) if environ.get(name)}


def hidden_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Secrets of this program in the environment, including those that the configuration does not use.

    Secrets in the environment are tokens, keys, passwords of proxies, and the credentials that the program's libraries
    find there.
    """
    found = [environ.get(name, "") for names in _secret_variables() for name in names]
    for name in _NETWORK:
        found.extend(passwords_in(environ.get(name, "")))
    for name, value in environ.items():
        if name.startswith(key_tree.PREFIX):
            path = tuple(name.removeprefix(key_tree.PREFIX).lower().split("__"))
            _, field, _ = key_tree.find(Settings, path)
            if field is not None and key_tree.is_secret(field):
                found.append(value)
    found.extend(library_credentials.find_credentials(environ))
    return tuple(sorted({value for value in found if value}))


def _secret_variables() -> Iterator[tuple[str, ...]]:
    for path, names in key_tree.VARIABLES.items():
        _, field, _ = key_tree.find(Settings, path)
        if field is not None and key_tree.is_secret(field):
            yield names


def layer(environ: Mapping[str, str], merged: Merged) -> Layer:
    """The configuration keys that the environment sets, as a layer above `merged`. An empty environment variable counts
    as unset.

    Raises ConfigError for a variable `AGENT__…` that does not match a configuration key, and for a value that is not
    the JSON that its key needs.
    """
    made = Layer("environment")
    for path, names in key_tree.VARIABLES.items():
        name = next((one for one in names if environ.get(one, "").strip()), None)
        if name is None:
            continue
        target = _token_path(path, merged) if path[0] in MANY else path
        if target is not None:
            _, field, _ = key_tree.find(Settings, path)
            assert field is not None
            made.set_key(target, _value(environ[name].strip(), field, name), label=f"environment {name}")
    for name in sorted(environ):
        if name.startswith(key_tree.PREFIX) and environ[name].strip():
            _put_agent_variable(made, name, environ[name], merged)
    return made


def _put_agent_variable(made: Layer, name: str, text: str, merged: Merged) -> None:
    written = name.removeprefix(key_tree.PREFIX).split("__")
    path = tuple(step.lower() for step in written)
    if path[0] == "llm" and path[-1] == "endpoint":
        path = (*path[:-1], "base_url")
    _, field, steps = key_tree.find(Settings, path)
    if field is not None and key_tree.is_mapping(field) and len(path) == steps + 1:
        path = (*path[:steps], written[steps])  # names in a mapping with free keys keep their upper and lower case
    elif field is None or steps < len(path):
        raise _unknown(name, path)
    if path[0] in MANY:
        path = _entry_path(name, path, merged)
    value = text if key_tree.is_mapping(field) and len(path) > steps else _value(text, field, name)
    if isinstance(value, list) and key_tree.is_many(field):
        for number, entry in enumerate(value):
            made.set_key((path[0], str(number)), entry, label=f"environment {name}")
        return
    made.set_key(path, value, label=f"environment {name}")


def _unknown(name: str, path: key_tree.Path) -> ConfigError:
    known = {key_tree.variable(one): one for one, _ in key_tree.leaves(Settings)}
    plain = key_tree.variable(tuple(step for step in path if not step.isdigit()))
    near = get_close_matches(plain, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ConfigError(f"environment {name}: no key has this name{hint} (every key: docs/configuration.md)")


def _entry_path(name: str, path: key_tree.Path, merged: Merged) -> key_tree.Path:
    """The path of a key with the index of the host's entry: `AGENT__GITHUB__OWNER` is `github.0.owner`; with several
    hosts the variable must contain the index."""
    count = max(1, len(merged.entries(path[0])))
    if len(path) > 1 and path[1].isdigit():
        if int(path[1]) >= count:
            raise ConfigError(f"environment {name}: {path[0]} has {count} entries; the number is from 0 to {count - 1}")
        return (path[0], str(int(path[1])), *path[2:])
    if len(path) == 1:
        return (path[0], "0")
    if count > 1:
        first = key_tree.variable((path[0], "0", *path[1:]))
        raise ConfigError(f"environment {name}: {path[0]} has {count} entries; say which one, as in {first}")
    return (path[0], "0", *path[1:])


def _token_path(path: key_tree.Path, merged: Merged) -> key_tree.Path | None:
    """The path of the key that a variable such as GITHUB_TOKEN sets: the token of the only host, or of the public one
    of several hosts, but not of a host with an app; None if there is no such host.

    So, if several hosts are configured, only the public one gets the token in a variable such as GITHUB_TOKEN.
    """
    entries = merged.entries(path[0]) or {"0": {}}
    for number, entry in entries.items():
        entry_map = entry if isinstance(entry, dict) else {}
        address = entry_map.get("base_url")
        public = address is None or urlsplit(str(address)).hostname in PUBLIC_HOSTS[path[0]]
        if (public or len(entries) == 1) and not entry_map.get("app"):
            return (path[0], number, *path[1:])
    return None


def _value(text: str, field: FieldInfo, name: str) -> Any:
    """The text of an environment variable as a value of the key: lists as JSON or with commas, mappings as JSON, `null`
    for None."""
    if may_be_empty(field.annotation) and text.strip().lower() == "null":
        return None
    if key_tree.is_list(field) and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    if key_tree.is_list(field) or key_tree.is_mapping(field) or section_in(field.annotation) is not None:
        try:
            value = json.loads(text)
        except ValueError:
            raise ConfigError(
                f"environment {name}: found text that is not JSON; allowed is {key_tree.allowed(field)}"
            ) from None
        return value
    return text
