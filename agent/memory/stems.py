"""Stems of English words, by the Porter stemmer of SQLite.

The stems are needed outside of the index too: Python code computes coverage and similarity from them.  SQLite offers
the stemmer only as a tokenizer of FTS5.  To get the stems of words, this module inserts the words into an FTS5 table in
memory and reads the stems from the `fts5vocab` table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.store import db

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST = 40
"""Maximum length of a word that is stemmed, in characters.  The stem of a longer word is the word itself."""


class Stemmer:
    """`Stemmer()(words)` maps each lower-case word to its stem; a word with other characters than ASCII letters and
    digits is its own stem.  Only one thread may use a Stemmer at a time."""

    def __init__(self) -> None:
        self._connection = db.module().connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.execute("CREATE VIRTUAL TABLE words USING fts5(w, tokenize='porter ascii', content='')")
        self._connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(words, 'instance')")

    def __call__(self, words: Sequence[str]) -> Mapping[str, str]:
        found = {word: word for word in words}
        plain = [word for word in found if word.isascii() and word.isalnum() and len(word) <= LONGEST]
        if plain:
            self._connection.execute("INSERT INTO words (rowid, w) VALUES (1, ?)", (" ".join(plain),))
            rows = self._connection.execute("SELECT offset, term FROM stems").fetchall()
            self._connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
            found.update((plain[offset], term) for offset, term in rows)
        return found

    def close(self) -> None:
        """Close the database in memory."""
        self._connection.close()
