"""Decides whether a new memory goes into quarantine, where it stays until a person promotes it.

A memory is data, but a model may follow an instruction in it.  The text of a memory therefore goes into quarantine if
it contains a credential, the marker of a chat role, a phrase of prompt injection, or an instruction with an address.  A
useful memory needs no credential, no marker of a chat role, no phrase of prompt injection, and no instruction with an
address.
"""

from __future__ import annotations

import re
from collections import Counter

from agent.extraction.echoed_sentences import sentences
from agent.memory.events import shortened
from agent.security.finding_catalogue import RULES
from agent.security.sanitise import clean
from agent.security.token_masking import mask_tokens

_ROLE = re.compile(r"^[^\w\n]{0,8}+(?:system|assistant|developer|human|user)\W{0,4}:", re.IGNORECASE | re.MULTILINE)
_ADDRESS = re.compile(
    r"\b(?:https?|ftp|ssh|git|wss?|data|file)://|\bwww\.|\b\d{1,3}(?:\.\d{1,3}){3}\b|[\w.+-]@[\w-]+\.[a-z]{2,}\b"
    r"|[a-z0-9-]\.(?:com|net|org|xyz|ru|cn)\b|[a-z0-9-]\.(?:io|dev|sh|app|info|biz|cloud|site)(?:/|:\d)",
    re.IGNORECASE,
)
"""Matches addresses of hosts and mailboxes. The pattern matches only the end of a name, since a pattern of the whole
name takes quadratic time."""
_ORDER = re.compile(
    r"\b(?:always|never|must|shall|remember|make sure|ensure|before (?:you|each|every|any)|from now on|whenever"
    r"|curl|wget|fetch|download|upload|install|execute|run|send|post|pipe|paste|forward|report|clone|source)\b"
    r"|必ず|常に|実行|送信|ダウンロード|インストール|してください",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(
    r"\b(?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|credentials?|authorization|bearer)\b"
    r"\s*(?:[:=]|\bis\b)\s*\S{4,}|\*\*\*",
    re.IGNORECASE,
)
_PHRASES = ("PI-01", "PI-03", "PI-04", "PI-05", "PI-07", "PI-11", "PI-12", "PI-13", "PI-15")


def suspicion(text: str) -> str:
    """The reason for a quarantine of the text, "" for none. The text is judged in the form in which the store
    stores it (`memory.events.shortened`)."""
    text = shortened(text)
    for rule in clean(text).findings:
        if rule in _PHRASES:
            return f"{RULES[rule].noun} ({rule})"
    if _ROLE.search(text):
        return "a marker of a role"
    found: Counter[str] = Counter()
    mask_tokens(text, found)
    if found or _CREDENTIAL.search(text):
        return "a credential"
    if any(_ADDRESS.search(sentence) and _ORDER.search(sentence) for sentence in sentences(text)):
        return "an order with an address"
    return ""
