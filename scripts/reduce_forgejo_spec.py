"""Make tests/specs/forgejo-subset.json: the paths of Forgejo's API that an issue worker calls, and what they refer to.

    scripts/reduce_forgejo_spec.py 11.0.1 < templates/swagger/v1_json.tmpl > tests/specs/forgejo-subset.json

The document is a template of the server, with its version and its sub-path as place-holders.  Prose is left out, and so
are the names that only Go needs (`x-go-…`); nothing else is changed.
"""

import json
import re
import sys

REPO = "/repos/{owner}/{repo}"
ISSUE = f"{REPO}/issues/{{index}}"
PULL = f"{REPO}/pulls/{{index}}"
PATHS = {
    "/user": ("get",),
    "/user/repos": ("get",),
    "/users/{username}": ("get",),
    "/version": ("get",),
    "/repos/issues/search": ("get",),
    REPO: ("get",),
    f"{REPO}/assignees": ("get",),
    f"{REPO}/teams": ("get",),
    f"{REPO}/collaborators/{{collaborator}}/permission": ("get",),
    f"{REPO}/commits/{{ref}}/status": ("get",),
    f"{REPO}/labels": ("get", "post"),
    f"{REPO}/issues": ("get", "post"),
    ISSUE: ("get",),
    f"{ISSUE}/comments": ("get", "post"),
    f"{ISSUE}/labels": ("get", "post"),
    f"{ISSUE}/labels/{{id}}": ("delete",),
    f"{ISSUE}/reactions": ("post",),
    f"{ISSUE}/timeline": ("get",),
    f"{REPO}/issues/comments/{{id}}": ("get", "patch", "delete"),
    f"{REPO}/issues/comments/{{id}}/reactions": ("post",),
    f"{REPO}/pulls": ("get", "post"),
    PULL: ("get", "patch"),
    f"{PULL}/requested_reviewers": ("post",),
    f"{PULL}/reviews": ("get",),
    f"{PULL}/reviews/{{id}}/comments": ("get",),
}
PROSE = ("description", "summary", "tags", "operationId", "title", "example", "examples", "produces", "consumes")


def bare(value, *, names=False):
    """`value` without prose; below `properties` every key is a name and stays."""
    if isinstance(value, list):
        return [bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if names or not (key in PROSE or key.startswith("x-"))}
    return {key: bare(item, names=key == "properties" and not names) for key, item in kept.items()}


def references(value):
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield tuple(value["$ref"].removeprefix("#/").split("/"))
        for item in value.values():
            yield from references(item)


def main():
    text = re.sub(r"\{\{[^}]*AppSubUrl[^}]*\}\}", "", sys.stdin.read()).replace("{{AppVer | JSEscape}}", sys.argv[1])
    document = json.loads(text)
    paths = {path: {verb: bare(document["paths"][path][verb]) for verb in verbs} for path, verbs in PATHS.items()}
    kinds = {"definitions": {}, "responses": {}}
    waiting = list(references(paths))
    while waiting:
        kind, name = waiting.pop()
        if name not in kinds[kind]:
            kinds[kind][name] = bare(document[kind][name])
            waiting.extend(references(kinds[kind][name]))
    info = {key: document["info"][key] for key in ("title", "version", "license")}
    reduced = {"swagger": document["swagger"], "info": info, "basePath": document["basePath"], "paths": paths}
    reduced |= {kind: dict(sorted(found.items())) for kind, found in kinds.items()}
    print(json.dumps(reduced, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
