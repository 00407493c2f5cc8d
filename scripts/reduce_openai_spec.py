"""Make tests/specs/openai-chat.json: the schemas of chat completions and all they refer to, out of the whole document.

    scripts/reduce_openai_spec.py openai-openapi.json > tests/specs/openai-chat.json

The whole document (github.com/openai/openai-openapi, MIT) has 3.4 MB; tests need a hundredth.  Prose and examples are
left out, and `nullable` is written as JSON Schema writes it; nothing else is changed.
"""

import json
import sys

ROOTS = (
    "CreateChatCompletionRequest",
    "CreateChatCompletionResponse",
    "CreateChatCompletionStreamResponse",
    "ErrorResponse",
)
PROSE = ("description", "example", "examples", "externalDocs", "title")
PREFIX = "#/components/schemas/"


def bare(value, *, names=False):
    """`value` without prose; below `properties` every key is a name and stays."""
    if isinstance(value, list):
        return [bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if names or not (key in PROSE or key.startswith("x-"))}
    made = {key: bare(item, names=key == "properties" and not names) for key, item in kept.items()}
    if not names and made.pop("nullable", False) is True:
        return {"anyOf": [made, {"type": "null"}]}
    return made


def references(value):
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        if isinstance(value.get("$ref"), str) and value["$ref"].startswith(PREFIX):
            yield value["$ref"].removeprefix(PREFIX)
        for item in value.values():
            yield from references(item)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    schemas = document["components"]["schemas"]
    wanted, waiting = {}, list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted[name] = bare(schemas[name])
            waiting.extend(references(wanted[name]))
    info = {"title": document["info"]["title"], "version": document["info"]["version"], "license": {"name": "MIT"}}
    reduced = {"openapi": document["openapi"], "info": info, "components": {"schemas": dict(sorted(wanted.items()))}}
    print(json.dumps(reduced, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
