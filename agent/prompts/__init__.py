"""Templates of every text that this program writes to a model, a forge or git, versioned by their content.

`render(name, **values)` fills `{name}.md.j2`.  The comment at the head of each template documents its variables, and
docs/prompts.md is made from those comments.  `publish` fills a template for other people to read
(`issue/publish_filter.py`).  These templates are part of the program, and are sandboxed nevertheless.  Templates of
people may replace the program's own (`use`; docs/templates.md).  Values are never compiled, so text from outside cannot
become a template.  The room `security` fences and cleans values before they come here.
"""

from agent.prompts.rendering import (
    Live,
    describe,
    digest,
    known,
    markdown,
    names,
    preload,
    publish,
    publish_text,
    render,
    use,
    using,
    using_in_thread,
    version,
    versions,
)

__all__ = [
    "Live",
    "describe",
    "digest",
    "known",
    "markdown",
    "names",
    "preload",
    "publish",
    "publish_text",
    "render",
    "use",
    "using",
    "using_in_thread",
    "version",
    "versions",
]
