"""An honest summariser: it reads the request in the program's form, and answers as requested.

It copies one entry for each call and each sentence into the sections of the prompt.  The entries of the previous summary
come first; the number of the newest entries depends on the length in the prompt.  A `share` below 1 drops entries.
"""

import json
import re

SECTIONS = ("What the person asked for and forbade", "Code changes made", "State of the work", "Next step")


def records(text):
    """The records of a request, in order."""
    found = re.search(r"^<<<UNTRUSTED (\w+) [^\n]*>>>\n(.*?)^<<<END UNTRUSTED \1>>>$", text, re.DOTALL | re.MULTILINE)
    return [json.loads(line) for line in found[2].splitlines()]


def words_asked(text):
    return int(re.findall(r"at most ([\d,]+) words", text)[-1].replace(",", ""))


def entries(record):
    if "summary_so_far" in record:
        return [line for line in record["summary_so_far"].splitlines() if line.startswith("- ")]
    made = []
    if record.get("role") in ("assistant", "user") and record.get("content"):
        made.append(f"- {record['role']}: {record['content'].splitlines()[0][:160]}")
    calls = record.get("calls", ())
    return made + [f"- {one['name']} {json.dumps(one['arguments'], ensure_ascii=False)[:160]}" for one in calls]


def honest(text, share=1.0):
    """The answer to the request `text`."""
    found = list(dict.fromkeys(entry for record in records(text) for entry in entries(record)))
    if share < 1:
        found = found[:: round(1 / share)]
    most = words_asked(text) * 2 // 3
    kept, length = [], 0
    for entry in reversed(found):
        length += max(len(entry.split()), len(entry) // 7)
        if length > most:
            break
        kept.append(entry)
    kept.reverse()
    cut = len(kept) // 2
    parts = [["- see the task"], kept[:cut], kept[cut:], ["- go on with the newest of these"]]
    return "\n".join(
        f"## {number}. {name}\n" + "\n".join(part or ["-"])
        for number, (name, part) in enumerate(zip(SECTIONS, parts, strict=True), 1)
    )
