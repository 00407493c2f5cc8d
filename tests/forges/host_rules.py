"""Reactions of real hosts to texts: issues that a merge closes, and people who are notified of a mention.

GitHub: docs.github.com "Linking a pull request to an issue using a keyword" (nine keywords, a colon may follow; in the
description and in commit messages; a squash makes the title one).  Mentions notify in descriptions, comments and commit
messages, not in code ("Basic writing and formatting syntax", dependabot/dependabot-core#2820).

GitLab: docs.gitlab.com "Manage issues", default closing pattern, applied to title, description and commit messages as
raw text (`Gitlab::ClosingIssueExtractor`); mentions as on GitHub, and `@all`.

Forgejo: forgejo.org/docs "Automatically Linked References": nine keywords, a colon may follow and one space must; in
title, description and comments of a pull request, and in commit messages on the default branch.
"""

import html
import re

GITHUB_WORDS = r"(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)"
GITLAB_WORDS = r"(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)"
BLOCK = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)")


def shown(text):
    """Markdown as a parser of references reads it: entities are decoded, code is left out."""
    parts = BLOCK.sub("\n", text or "").split("\n\n")
    return html.unescape(
        "\n\n".join(part if part.lstrip().startswith("<") else SPAN.sub(" code ", part) for part in parts)
    )


def github_closes(text, host, repository, *, is_markdown=True):
    """Numbers of this repository's issues that a merge of `text` closes."""
    text = shown(text) if is_markdown else text or ""
    reference = rf"(?:(?:{re.escape(repository)})?#|GH-|https?://{re.escape(host)}/{re.escape(repository)}/issues/)"
    return {int(number) for number in re.findall(rf"(?i)\b{GITHUB_WORDS}:?\s+{reference}([0-9]+)", text)}


def gitlab_closes(text, host, project):
    """The same for GitLab, which parses raw text; one keyword may come before several references."""
    reference = rf"(?:(?:{re.escape(project)})?#|https?://{re.escape(host)}/{re.escape(project)}/-/(?:issues|work_items)/)[0-9]+"
    found = re.findall(
        rf"(?i)\b{GITLAB_WORDS}:? +((?:(?:issues? +)?{reference}(?:(?: *,? +and +)|(?: *,? *)))+)", text or ""
    )
    return {int(number) for part in found for number in re.findall(r"([0-9]+)(?![^\s,])", part)}


def forgejo_closes(text, address, repository, *, is_markdown=True):
    """The same for Forgejo at `address`; the last number of a keyword with several references is the only one."""
    text = shown(text) if is_markdown else text or ""
    reference = (
        rf"(?:[#!]|{re.escape(repository)}[#!]|{re.escape(address)}/{re.escape(repository)}/(?:issues|pulls)/)([0-9]+)"
    )
    ends = r"(?=\s|$|\)|\]|'|\"|[:;,.?!]\s|[:;,.?!]$)"
    return {int(number) for number in re.findall(rf"(?i)(?:\s|^|\(|\[){GITHUB_WORDS}:? {reference}{ends}", text)}


def rung(text, *, is_markdown=True):
    """Names of people and teams that a mention in `text` notifies."""
    text = shown(text) if is_markdown else text or ""
    return set(re.findall(r"(?<![A-Za-z0-9/@.])@([A-Za-z0-9][A-Za-z0-9-]*(?:/[A-Za-z0-9-]+)?)", text))


def skips_checks(message):
    """Whether a commit message skips the checks: docs.github.com "Skipping workflow runs"; GitLab has the first two."""
    return (
        re.search(r"(?i)\[(skip ci|ci skip|no ci|skip actions|actions skip)\]|^skip-checks: *true", message) is not None
    )
