"""The work of a long task: a repository with many scripts, the model's calls in it, and people's comments during it.

It contains everything that occurs in a day of an agent: whole files, several calls at once, searches, notes, edits, a
plan, failing and succeeding commands, answers in many languages, tables, JSON.  The tools accept every call.
"""

import json

WORDS = {
    "en": "The scroll is written once, from the right to the left, and unrolled again whenever somebody needs it.",
    "ja": "メモリは会話とともに増えません。すべてはディスクの上にあり、必要なときに読み直します。",
    "hi": "कुल योग को एक ही बार पूर्णांकित करना है; हर मूल्य को अलग से पूर्णांकित करने पर अंतर बढ़ता जाता है।",
    "th": "ให้ปัดเศษผลรวมเพียงครั้งเดียว หากปัดเศษทุกราคาก่อนแล้วค่อยรวม ความคลาดเคลื่อนจะสะสมไปเรื่อย ๆ",
    "ko": "합계는 한 번만 반올림해야 합니다. 각 가격을 먼저 반올림하면 오차가 점점 쌓이게 됩니다.",
    "ar": "يجب تقريب المجموع مرة واحدة فقط، لأن تقريب كل سعر على حدة يجعل الفرق يكبر مع كل سطر جديد.",
}
TABLE = "│ {:>4} │ {:<18} │ {:>9} │\n├──────┼────────────────────┼───────────┤\n"
COMMENTS = (
    "Please leave legacy/billing.py as it is.",
    "端数処理は四捨五入でお願いします。",
    "नोट्स हिंदी में भी रखें।",
    "ใช้ชื่อไฟล์ภาษาอังกฤษเท่านั้น",
    "금액은 원 단위로 적어 주세요.",
    "لا تغيّر أسماء الدوال العامة.",
)
"""The requests of people, one after the other; other messages follow each."""

THANKS = ("thanks", "ok", "👍", "ありがとう")


def files():
    """path → content, 1 to 9 KB each."""
    found = {"README.md": "# Parts\n", "src/counter.py": "COUNT = 0\n"}
    for part in range(6):
        lines = (f"value_{n} = {n * part}  # line {n} of part {part}: 価格の合計を計算する\n" for n in range(90))
        found[f"src/part{part}.py"] = "".join(lines)
    for name, words in WORDS.items():
        found[f"docs/{name}.md"] = "".join(f"{n}. {words}\n" for n in range(1, 26))
    found["docs/table.txt"] = "".join(TABLE.format(n, f"part {n % 7}", n * 1_017) for n in range(40))
    rows = [
        {"id": n, "name": f"part {n}", "price": n * 1.17, "tags": ["a", "合計"], "open": n % 2 == 0} for n in range(60)
    ]
    found["data/parts.json"] = json.dumps(rows, ensure_ascii=False)
    found["data/pretty.json"] = json.dumps(rows[:30], indent=2, ensure_ascii=False)
    found["tests/__init__.py"] = ""
    found["tests/test_total.py"] = (
        "import unittest\n\n\nclass Total(unittest.TestCase):\n    def test_total_is_rounded_once(self):\n"
        "        self.assertEqual(3, round(1.4) + round(1.4))\n"
    )
    return found


READ = sorted(path for path in files() if path.endswith((".py", ".md", ".txt", ".json")) and "/" in path)


class Work:
    """`turns` answers, the last one `finish`.  `play` is the callback of a StrictServer; `said` has the comments so
    far."""

    def __init__(self, turns, say=lambda _words: None):
        self.turns = turns
        self.say = say
        self.said = []
        self.failed = 0  # commands with a non-zero exit code
        self.calls = 0

    def play(self, _messages, number):
        if number >= self.turns - 1:
            calls = [("finish", {"title": "Notes", "summary": "Every file has its note."})]
            return "All notes are kept.", self.counted(calls)
        self.talk(number)
        return self.text(number), self.counted(self.step(number))

    def text(self, number):
        """The model's text beside its calls."""
        return f"{number}: {list(WORDS.values())[number % len(WORDS)]}" if number % 3 == 0 else ""

    def counted(self, calls):
        self.calls += len(calls)
        return calls

    def talk(self, number):
        """Write the comments during the first two thirds; each is followed by a thank-you message."""
        every = max(2, self.turns * 2 // 3 // len(COMMENTS))
        at, rest = divmod(number, every)
        if rest == 1 and at < len(COMMENTS):
            self.said.append(COMMENTS[at])
            self.say(COMMENTS[at])
        elif rest == every - 1:
            self.say(THANKS[at % len(THANKS)])

    def step(self, number):
        kind = number % 9
        if kind == 0:
            return [("read_file", {"path": READ[number // 9 % len(READ)]})]
        if kind == 1:
            words = WORDS[list(WORDS)[number % len(WORDS)]]
            return [("write_file", {"path": f"notes/{number % 25}.md", "content": f"{number}: {words}\n" * 3})]
        if kind == 2:
            return [self.one(number, more) for more in range(3 + number // 9 % 8)]
        if kind == 3:
            return [("search_text", {"pattern": f"line {number % 90} ", "path": "src"})]
        if kind == 4:
            self.failed += 1
            return [("run_command", {"command": f"echo check {number}; python3 -m unittest -q tests.test_total"})]
        if kind == 5:
            return [("update_plan", {"items": self.plan(number)})]
        if kind == 6:
            count = number // 9
            edit = {"old_text": f"COUNT = {count}\n", "new_text": f"COUNT = {count + 1}\n"}
            return [("edit_file", {"path": "src/counter.py", **edit})]
        if kind == 7:
            self.failed += 1
            return [
                ("run_command", {"command": f"cat docs/table.txt | tail -n {20 + number % 30}; exit {3 + number % 90}"})
            ]
        return [("run_command", {"command": f"sed -n '{1 + number % 40},+12p' docs/*.md data/pretty.json"})]

    def one(self, number, more):
        """One of several simultaneous calls."""
        which = (number + more) % 4
        if which == 3:
            return ("list_files", {"path": ".", "pattern": f"*{(number + more) % 9}*"})
        if which == 2:
            return ("search_text", {"pattern": f"value_{(number * 3 + more) % 90}", "path": "src"})
        return ("read_file", {"path": READ[(number + 5 * more) % len(READ)]})

    def plan(self, number):
        """Seven steps, one of them in progress."""
        at = number // 9 % 7
        states = ["done" if n < at else "in_progress" if n == at else "pending" for n in range(7)]
        return [{"text": f"Take notes of part {n} ({number})", "status": state} for n, state in enumerate(states)]
