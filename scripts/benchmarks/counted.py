"""Texts of every kind that the estimate of tokens is measured on: class → documents.  Nothing is downloaded.

Files of Python and of installed packages, texts that are made from a fixed seed, and our own sentences in the languages
that are written most (`languages.txt`: what people say about software, a line each, no text that a vocabulary or a fit
was made on).  With the same packages every machine has the same texts.
"""

from __future__ import annotations

import base64
import csv
import difflib
import hashlib
import io
import json
import random
import re
import string
import sysconfig
import traceback
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

DOCUMENTS = 10
"""Of a class."""

LENGTHS = (200, 600, 1500, 4000, 12_000)
"""Characters of a document."""

ENOUGH = 10_000
"""Characters of files that a class needs; it is left out where packages that have them are not installed."""

LARGEST = 2_000_000
"""Bytes of a file that is read."""

STDLIB = Path(sysconfig.get_path("stdlib"))
PACKAGES = Path(sysconfig.get_path("purelib"))

FILES = {
    "c": (Path(sysconfig.get_path("include")), PACKAGES), "js": (PACKAGES,), "json": (PACKAGES,), "md": (PACKAGES,),
    "html": (PACKAGES,), "css": (PACKAGES,), "toml": (PACKAGES,),
}  # fmt: skip
"""Class by the end of a name → folders."""

TEXTS = dict(
    line.split("\t") for line in Path(__file__).with_name("languages.txt").read_text(encoding="utf-8").splitlines()
)
"""Language → 200 to 500 characters.  Mixed into a class of their own too."""

WORDS = re.findall(r"[a-z]{2,}", TEXTS["en"].lower())


def classes() -> dict[str, list[str]]:
    """Every class that this machine has texts for: kinds of text, then languages."""
    makers: dict[str, Callable[[random.Random], list[str]]] = {
        **{name: partial(_of_files, texts) for name, texts in _from_files().items()},
        **MADE,
        **{code: partial(_of_language, code) for code in TEXTS},
    }
    return {name: _documents(name, maker) for name, maker in makers.items()}


def _documents(name: str, maker: Callable[[random.Random], list[str]]) -> list[str]:
    """DOCUMENTS texts of a class, of each of LENGTHS alike; shorter where the text is."""
    rng = random.Random(f"counted {name}")
    pieces = [_piece(text, LENGTHS[place % len(LENGTHS)], rng) for place, text in enumerate(maker(rng)[:DOCUMENTS])]
    return [piece for piece in pieces if piece]


def _of_files(texts: list[str], _rng: random.Random) -> list[str]:
    return texts


def is_language(name: str) -> bool:
    """Whether a class is a language, and not a kind of text."""
    return name in TEXTS


def _piece(text: str, length: int, rng: random.Random) -> str:
    """A part of that length, from the start of a line where one is near."""
    start = rng.randrange(max(1, len(text) - length + 1))
    line = text.rfind("\n", max(0, start - 500), start) + 1
    return text[line or start :][:length]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size < LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _from_files() -> dict[str, list[str]]:
    ends = {name: [path for folder in folders for path in folder.rglob(f"*.{name}")] for name, folders in FILES.items()}
    ends["c"] += [path for folder in FILES["c"] for path in folder.rglob("*.h")]
    ends["python"] = list(STDLIB.glob("*.py")) + list(STDLIB.glob("*/*.py"))
    ends["english"] = list(PACKAGES.glob("*.dist-info/licenses/*")) + list(PACKAGES.glob("*.dist-info/METADATA"))
    ends["minified"] = list(PACKAGES.rglob("*.min.js")) + list(PACKAGES.rglob("*.min.css"))
    ends["js"] = [path for path in ends["js"] if ".min." not in path.name]
    ends["json"] = [path for path in ends["json"] if "iconv" not in str(path) and not path.name.startswith("tekken")]
    return {name: texts for name, paths in ends.items() if (texts := _drawn(name, paths))}


def _drawn(name: str, paths: Iterable[Path]) -> list[str]:
    """Texts of some of the files; none where there are too few."""
    rng = random.Random(f"files {name}")
    known = sorted(set(paths))
    texts = [
        text for path in rng.sample(known, min(len(known), 4 * DOCUMENTS)) if len(text := _read(path)) >= LENGTHS[0]
    ]
    return (texts * DOCUMENTS)[:DOCUMENTS] if sum(map(len, texts)) >= ENOUGH else []


def _of_language(code: str, rng: random.Random) -> list[str]:
    """Documents of the first half of its sentences, then as many of the second."""
    sentences = [one for one in re.split(r"(?<=[.。।۔։።]) ?", TEXTS[code]) if one]
    between = "" if code.startswith(("ja", "zh")) else " "
    half = (len(sentences) + 1) // 2
    parts = [sentences[:half], sentences[half:] or [TEXTS[code]]]
    return [between.join(rng.choices(part, k=200)) for part in parts for _ in range(DOCUMENTS // 2)]


def _lines(one: Callable[[random.Random], str]) -> Callable[[random.Random], list[str]]:
    """Documents of lines that `one` makes."""

    def made(rng: random.Random) -> list[str]:
        return ["\n".join(_until(lambda: one(rng), LENGTHS[place % len(LENGTHS)])) for place in range(DOCUMENTS)]

    return made


def _until(one: Callable[[], str], length: int) -> Iterator[str]:
    while length > 0:
        line = one()
        length -= len(line) + 1
        yield line


def _word(rng: random.Random) -> str:
    return rng.choice(WORDS)


def _path(rng: random.Random) -> str:
    return "/".join(_word(rng) for _ in range(rng.randint(1, 4))) + rng.choice((".py", ".ts", ".json", ".md", ".go"))


def _log(rng: random.Random) -> str:
    second, level = rng.randrange(86_400), rng.choice(("INFO", "DEBUG", "WARNING", "ERROR"))
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02},{rng.randrange(1000):03}"
    last = rng.choice((_path(rng), str(rng.random()), _word(rng)))
    where = f"{_word(rng)}.{_word(rng)}[{rng.randrange(40_000)}]"
    return f"2026-11-{rng.randint(1, 29):02} {clock} {level:7} {where}: {_word(rng)} {_word(rng)} {last}"


def _listing(rng: random.Random) -> str:
    size = rng.randrange(10 ** rng.randint(2, 7))
    date = f"Nov {rng.randint(1, 29):>2} {rng.randrange(24):02}:{rng.randrange(60):02}"
    return f"-rw-r--r-- 1 {_word(rng)} users {size:>8} {date} {_path(rng)}"


def _tree(rng: random.Random) -> str:
    return "│   " * rng.randrange(4) + rng.choice(("├── ", "└── ")) + _path(rng).rpartition("/")[2]


def _call(rng: random.Random) -> str:
    one = {
        "id": str(uuid.UUID(int=rng.getrandbits(128))),
        "path": _path(rng),
        "size": rng.randrange(10**6),
        "ok": rng.random() < 0.5,
        "tags": [_word(rng) for _ in range(rng.randrange(4))],
        "at": f"2026-11-{rng.randint(1, 29):02}T10:{rng.randrange(60):02}:00Z",
    }
    return json.dumps(one, indent=rng.choice((None, 2)))


def _row(rng: random.Random, edge: str, wide: int = 16) -> str:
    cells = (_word(rng), str(rng.randrange(10**5)), f"{rng.random():.2f} %", _word(rng))
    return edge + edge.join(f" {cell:<{wide - 2}} " for cell in cells) + edge


def _box(rng: random.Random) -> str:
    if rng.random() < 0.2:
        left, middle, right = rng.choice(("├┼┤", "┌┬┐", "└┴┘"))
        return left + middle.join(["─" * 16] * 4) + right
    return _row(rng, "│")


def _ascii_table(rng: random.Random) -> str:
    return "+" + "+".join(["-" * 16] * 4) + "+" if rng.random() < 0.2 else _row(rng, "|")


def _bar(rng: random.Random, full: str, empty: str) -> str:
    wide = rng.choice((20, 30, 40, 60))
    done = rng.randrange(wide + 1)
    bar = full * done + empty * (wide - done)
    return f"{_word(rng)} {100 * done // wide:>3}%|{bar}| {done}/{wide} [00:{done:02}<00:{wide - done:02}]"


def _numbers(rng: random.Random) -> str:
    out = io.StringIO()
    numbers = [round(rng.uniform(-100, 100), 4) for _ in range(5)]
    csv.writer(out, lineterminator="").writerow([rng.randrange(10**6), *numbers])
    return out.getvalue()


def _emoji(rng: random.Random) -> str:
    more = "".join(rng.choices("😀😂👍🙏🎯🧪⏳🌍", k=rng.randrange(4)))
    return f"{rng.choice('✅❌⚠️🚀🐛📦🔥💡🎉✨🔒📝')} {_word(rng)} {_word(rng)} {more}"


FAULTS: tuple[Callable[[], object], ...] = (
    lambda: int("x"),
    lambda: {}["key"],
    [].pop,
    lambda: json.loads("{"),
    lambda: Path("/nowhere").read_text(encoding="utf-8"),
)


def _trace(rng: random.Random) -> str:
    try:
        rng.choice(FAULTS)()
    except (ValueError, LookupError, OSError):
        return re.sub(r'"/[^"]*/(\w+/\w+\.py)"', rf'"/home/{_word(rng)}/\1"', traceback.format_exc())
    return ""


def _markup(rng: random.Random) -> str:
    value = rng.choice(("true", "12", "30s", "~", "[a, b]"))
    return f"{_word(rng)}_{_word(rng)}:\n  - name: {_word(rng)}\n    {_word(rng)}: {value}  # {_word(rng)} {_word(rng)}"


def _shell(rng: random.Random) -> str:
    name = _word(rng)
    return rng.choice(
        (
            f'if [ -f "${{{name.upper()}}}" ]; then\n  {_word(rng)} --{_word(rng)}={rng.randrange(99)}\nfi',
            f"{name} | grep -v '{_word(rng)}' >> \"$1\"",
            f"export {name.upper()}_{_word(rng).upper()}=$(cat {_path(rng)})",
            f'for {name} in *.{_word(rng)[:3]}; do\n  {_word(rng)} "${name}"\ndone',
            f"# {name} {_word(rng)} {_word(rng)}",
        )
    )


def _diffs(rng: random.Random) -> list[str]:
    found = []
    for text in _drawn("diffs", STDLIB.glob("*.py"))[:DOCUMENTS]:
        before = text.splitlines(keepends=True)
        after = [line for line in before if rng.random() > 0.03]
        after = [line.replace("self", "this") if rng.random() < 0.05 else line for line in after]
        found.append("".join(difflib.unified_diff(before, after, "a/module.py", "b/module.py")))
    return found


def _numbered(rng: random.Random) -> list[str]:
    return [
        "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(text.splitlines(), rng.randrange(900)))
        for text in _drawn("numbered", STDLIB.glob("*.py"))
    ]


def _runs(rng: random.Random) -> list[str]:
    return [rng.choice("=-*#_.~xX0 \n─═█") * LENGTHS[place % len(LENGTHS)] for place in range(DOCUMENTS)]


def _run(rng: random.Random) -> str:
    return rng.choice("=-*#_─═") * rng.randint(8, 100) + f"\n{_word(rng)} {_word(rng)}"


def _random(signs: str, rng: random.Random) -> list[str]:
    return ["".join(rng.choices(signs, k=LENGTHS[-1])) for _ in range(DOCUMENTS)]


def _again(parts: Sequence[str], rng: random.Random) -> list[str]:
    return [rng.choice(parts) * LENGTHS[-1] for _ in range(DOCUMENTS)]


def _mixed(rng: random.Random) -> list[str]:
    return [" ".join(rng.choices([text[:160] for text in TEXTS.values()], k=80)) for _ in range(DOCUMENTS)]


def _digest(rng: random.Random) -> str:
    return rng.choice((str(uuid.UUID(int=rng.getrandbits(128))), hashlib.sha256(rng.randbytes(9)).hexdigest()))


def _base64(rng: random.Random) -> list[str]:
    return [base64.encodebytes(rng.randbytes(LENGTHS[-1])).decode() for _ in range(DOCUMENTS)]


MADE: dict[str, Callable[[random.Random], list[str]]] = {
    "yaml": _lines(_markup),
    "shell": _lines(_shell),
    "diffs": _diffs,
    "logs": _lines(_log),
    "listings": _lines(_listing),
    "tree": _lines(_tree),
    "tracebacks": _lines(_trace),
    "json of an api": _lines(_call),
    "numbers csv": _lines(_numbers),
    "numbered lines": _numbered,
    "table ascii": _lines(_ascii_table),
    "table box": _lines(_box),
    "bar ascii": _lines(partial(_bar, full="#", empty=".")),
    "bar block": _lines(lambda rng: _bar(rng, *rng.choice(("█░", "━╸", "▓ ", "█ ")))),
    "emoji": _lines(_emoji),
    "base64": _base64,
    "hex uuid": _lines(_digest),
    "runs of one sign": _runs,
    "runs in text": _lines(_run),
    "random ascii": partial(_random, string.printable),
    "random letters": partial(_random, string.ascii_lowercase),
    "repeated word": partial(_again, [f"{word} " for word in WORDS]),
    "repeated pattern": partial(_again, ("-=", "0, ", "ab", "[] ", "*-")),
    "mixed scripts": _mixed,
}
"""Class → what makes its documents."""
