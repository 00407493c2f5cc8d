"""Templates of the texts that this program writes to a model, a forge or git, versioned by their content.

`render(name, **values)` fills `{name}.md.j2`. The comment at the beginning of each template documents its variables;
docs/prompts.md is made from these comments. `publish` fills a template for a text that other people will read
(`issue/publish_filter.py`). The templates in this package are part of the program, and are rendered in Jinja's sandbox
nevertheless. Templates of the user may replace the program's own (`set_replacements`; docs/templates.md). Values are
never compiled as templates, so text from outside cannot become a template. `agent/security/` fences and cleans the
values before they are passed to this package.
"""

from agent.prompts.rendering import (
    Live,
    accepted_names,
    describe,
    digest,
    markdown,
    preload,
    program_templates,
    publish,
    publish_text,
    render,
    set_replacements,
    using,
    using_in_thread,
    version,
    versions,
)

__all__ = [
    "Live",
    "accepted_names",
    "describe",
    "digest",
    "markdown",
    "preload",
    "program_templates",
    "publish",
    "publish_text",
    "render",
    "set_replacements",
    "using",
    "using_in_thread",
    "version",
    "versions",
]
