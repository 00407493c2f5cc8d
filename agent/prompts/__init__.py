"""Every text that this program writes to a model, a forge or git: templates, versioned by their content.

`render(name, **values)` fills `{name}.md.j2`; the comment at the head of each template names its variables, and
docs/prompts.md is made from those comments.  `publish` does the same for what others read (`run/publishable.py`).
Templates are ours and sandboxed all the same; values are never compiled, so text from outside cannot become a
template.  Fencing and cleaning are `security`'s and happen before.
"""

from agent.prompts.rendering import (
    Live,
    describe,
    markdown,
    names,
    preload,
    publish,
    publish_text,
    render,
    version,
    versions,
)

__all__ = [
    "Live",
    "describe",
    "markdown",
    "names",
    "preload",
    "publish",
    "publish_text",
    "render",
    "version",
    "versions",
]
