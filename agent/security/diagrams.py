"""Keeps a forge from drawing diagrams of a published text on its server.

GitLab replaces a code block of certain languages by a picture that a PlantUML or Kroki server makes of the block, if
the host has such a server.  The server may fetch what the block names (`!include https://…` in PlantUML, `data.url` in
Vega), so a text of a model could make the host send requests, also to internal addresses.  An invisible character
before the language makes it unknown, and the block is shown as code.  Mermaid is not among the languages, since the
browser of the reader draws it.

Sources: lib/banzai/filter/{code_language,plantuml,kroki}_filter.rb and lib/gitlab/kroki.rb of GitLab (the language ends
at white space or a colon, and may be in `lang` of `pre` or `code`); SUPPORTED_DIAGRAM_NAMES of asciidoctor-kroki;
docs.gitlab.com/administration/integration/plantuml, "Configure PlantUML security".
"""

from __future__ import annotations

import re

from agent.security.links import APART

LANGUAGES = (
    *("actdiag", "blockdiag", "bpmn", "bytefield", "c4plantuml", "d2", "dbml", "diagramsnet", "ditaa", "erd"),
    *("excalidraw", "graphviz", "nomnoml", "nwdiag", "packetdiag", "pikchr", "plantuml", "rackdiag", "seqdiag"),
    *("structurizr", "svgbob", "symbolator", "tikz", "umlet", "vega", "vegalite", "wardleymap", "wavedrom", "wireviz"),
)
_NAME = rf"(?=(?:{'|'.join(LANGUAGES)})(?![\w-]))"
_FENCE = re.compile(rf"(?:`(?<=```)(?!`)|~(?<=~~~)(?!~))(?>(?:[^\S\n]|&\w{{1,32}}+;)*){_NAME}", re.IGNORECASE)
"""Matches a code fence, and white space behind it (also as an entity, `&nbsp;`), if one of LANGUAGES follows."""
_ATTRIBUTE = re.compile(
    rf"(?:g(?<=lang)\s*+=\s*+[\"']?|-(?<=language-))(?>(?:\s|&\w{{1,32}}+;)*){_NAME}", re.IGNORECASE
)
"""Matches the end of `lang=` or `language-`, and a quote or white space behind it, if one of LANGUAGES follows, as in
`<pre lang="plantuml">` and `<code class="language-plantuml">`."""


def undrawn(text: str) -> tuple[str, int]:
    """(`text` with an invisible character between each language of a diagram and the code fence or attribute before it,
    the number of inserted characters)."""
    text, fences = _FENCE.subn(rf"\g<0>{APART}", text)
    text, attributes = _ATTRIBUTE.subn(rf"\g<0>{APART}", text)
    return text, fences + attributes
