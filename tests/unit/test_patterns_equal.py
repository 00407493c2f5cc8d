"""Patterns that were made linear find what they found before, and take what they took."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from length import either

from agent import gitcmd
from agent.forge import issue_url
from agent.llm import error_body, error_wordings, text_call_formats, tool_calls_as_text
from agent.memory import likely_files, terms
from agent.sandbox.network import request
from agent.security import hidden_diff_lines, host_paths, inert_text, invisible_characters, links
from agent.tools import encodings, repetition
from agent.window import command_kinds, identifiers, output_lines, shell_parser, text_structure
from agent.work import check_outline, remote, verify
from agent.work.setup_outage import is_of_the_host, is_of_the_network

COUNTS = re.compile(r"(\d+)\s+(fail|error)|\b(fail|error)(?:ure)?s\s*[=:]\s*(\d+)", re.IGNORECASE)
VOLATILE = re.compile(
    r"[0-9o](?:(?<=[0-9])[0-9]*\.[0-9]+ ?(?:m?s|sec|seconds)\b|(?<=\b[0-9])[0-9]* ?ms\b"
    r"|(?<=0)x[0-9a-f]{6,16}\b|(?<=o)utputs/[0-9]{4,9}\.txt)"
)
LABELLED = re.compile(r"(?P<label>[^:：]{1,40}?)[ \t]*(?:：|:(?=\s|$))[ \t]*(?P<content>.*)")
VALUE = re.compile(
    r"""(?<![\w.,])\d[\d.,]*\d(?![\w])
    | `([^`\n]{2,40})` | 「([^」\n]{1,40})」 | 『([^』\n]{1,40})』 | “([^”\n]{2,40})” | «([^»\n]{2,40})»
    | (?<![\w\\])"([^"\\\n]{2,40})"(?!\w)""",
    re.VERBOSE,
)

FAILING = re.compile(
    r"""^(?:
        (?:FAILED|ERROR)\ (?P<pytest>\S+?::[^\[]+?(?:\[.*?\])?)(?:\ -\ .*)?
      | (?:FAIL|ERROR):\ (?P<unittest>[\w.]+\ \([\w.]+\).*)
      | \s*---\ FAIL:\ (?P<go>\S+)\ \(.*
      | test\ (?P<cargo>.+?)\ \.\.\.\ FAILED
      | \s*(?:●|✕|✗|✘|×|✖)\ (?P<jest>.+?)(?:\ \(?[\d.]+\ ?m?s\)?)?
      | \s*not\ ok\ \d+\ (?:-\ )?(?P<tap>.+?)(?:\ \#\ time=.*)?
      | rspec\ (?P<rspec>\./\S+).*
      | \[ERROR\]\s+(?P<maven>[\w$.]+\.[\w$]+(?:\[.*?\])?):\d+.*
      | (?P<gradle>\S.*?\ >\ .+?)\ FAILED
      | \s*Failed\ (?P<dotnet>\S+)\ \[.*
      | \d+\)\ (?P<phpunit>[\w\\]+::\w+.*)
      | \s*\d+\ -\ (?P<ctest>.+?)\ \((?:Failed|Timeout|SEGFAULT|Not\ Run).*\).*
    )\s*$""",
    re.VERBOSE,
)
MESSAGE = re.compile(r"^(\S+\.py|\S+?::[^\[]*?(?:\[.*?\])?)\s--?\s.*$")
FENCE = re.compile(r"\A\s*(?:```|~~~)[^\n]*\n(.*?)(?:\n\s*(?:```|~~~)\s*)?\Z", re.DOTALL)
EARLY = re.compile(r"-[a-z]*x[a-z]*|-f|--(?:exitfirst|maxfail(?:=\d+)?|fail-?fast|bail(?:=\d+)?)")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
MISSING = re.compile(
    r"does not appear to be a git repository|repository .*not found|project .*could not be found"
    r"|returned error: 404|not a git repository|invalid gitfile format",
    re.IGNORECASE,
)
THREAD = re.compile(r"unable to create (?:\w+ )*thread", re.IGNORECASE)
OUTAGE = (
    r"\bE(?:CONNREFUSED|CONNRESET|CONNABORTED|TIMEDOUT|NETUNREACH|NETDOWN|HOSTUNREACH|HOSTDOWN|AI_AGAIN)\b"
    r"|\b(?:ENOTFOUND|ESOCKETTIMEDOUT|ERR_SOCKET_TIMEOUT|UND_ERR_\w*TIMEOUT)\b"
    r"|\b(?:E|ERR_PNPM_FETCH_)(?:429|502|503|504)\b|\bi/o timeout\b"
    r"|\b(?:NewConnectionError|ConnectTimeoutError|ReadTimeoutError|NameResolutionError|ProxyError)\b"
    r"|\b(?:UnknownHost|NoRouteToHost|SocketTimeout|ConnectTimeout)Exception\b|ConnectException\b"
    r"|\bNet::(?:Open|Read)Timeout\b|\bSocketError\b|\b(?:429|502|503|504) (?:client|server) error\b"
    r"|\b(?:http(?:/[\d.]+)?|status(?: code)?|error|got|returned)\W{0,3}(?:error\W{0,2})?(?:429|502|503|504)\b"
)
TRANSFER = re.compile(r"transfer closed with .* remaining", re.IGNORECASE)
NUMBER = r"([1-9][0-9]{0,9})(?:/.*)?"
GITHUB = re.compile(rf"([^/]+)/([^/]+)/(?:issues|pull)/{NUMBER}")
GITLAB = re.compile(rf"(.+)/((?!-/)[^/]+)(?:/-)?/(issues|work_items|merge_requests)/{NUMBER}")


def texts(*pieces):
    return st.lists(st.sampled_from(pieces), max_size=14).map("".join)


def found(pattern, text):
    return [(one.span(), one.groups()) for one in pattern.finditer(text)]


@pytest.mark.parametrize(
    ("new", "old", "made"),
    [
        (
            check_outline._COUNTS,
            COUNTS,
            texts("1", "23", " ", "\n", "fail", "Errors", "failures", "error", "=", ":", "x"),
        ),
        (
            repetition._VOLATILE,
            VOLATILE,
            texts(*"0195", ".", " ", "ms", "s", "sec", "x", "abcdef", "outputs/0001.txt", "a"),
        ),
        (identifiers._VALUE, VALUE, texts(*'`«»“”「」『』"\\', "ab", "1", "12.5", ",", " ", "\n", "x" * 19)),
    ],
    ids=["counts", "volatile", "value"],
)
def test_a_pattern_finds_what_it_found(new, old, made):
    @given(made)
    @settings(max_examples=either(125, 500), deadline=None)
    def same(text):
        assert found(new, text) == found(old, text)

    same()


@given(texts("a", "b c", ":", "：", " ", "\t", "x" * 19, "."))
@settings(max_examples=either(125, 500), deadline=None)
def test_a_label_is_what_it_was(text):
    line = text.strip()  # as `sections` asks
    new, old = text_structure._LABELLED.fullmatch(line), LABELLED.fullmatch(line)
    assert (new and new.groups()) == (old and old.groups())


def same(new, old, made):
    """Of one text after the other: what `new` says of it is what `old` says."""

    @given(made)
    @settings(max_examples=either(75, 300), deadline=None)
    def check(text):
        assert new(text) == old(text)

    check()


def groups(pattern):
    return lambda text: (found := pattern.match(text)) and found.groups()


@pytest.mark.parametrize(
    ("begin", "pieces"),
    [
        ("FAILED ", ["a", "::", ":", "[", "]", " ", "  ", " - ", "-", "\t", "a.py"]),
        ("\u25cf ", [" ", "(", "1.2", "ms", " s", ")", "a", "\t", "  "]),
        ("not ok 1 ", [" ", "- ", " # time=", "#", "a", "\t", "  "]),
        ("1 - ", [" ", " (Failed", "a", ")", " (Not Run", "(", ") "]),
        ("", [" ", ">", " > ", "a", " FAILED", "FAILED", " >"]),
        ("", ["[ERROR] ", "a.b", ":1", "test ", " ... FAILED", "1) ", "a::b", "FAIL: ", "(a)", " ", "Failed ", " ["]),
    ],
    ids=["pytest", "jest", "tap", "ctest", "gradle", "others"],
)
def test_a_failing_test_is_named_as_before(begin, pieces):
    same(groups(check_outline.FAILING), groups(FAILING), texts(*pieces).map(lambda text: begin + text))


def test_what_stands_behind_a_name_goes_as_before():
    made = texts("a", "::", ":", "[", "]", " ", "  ", " - ", "-", "\t", "a.py")
    same(lambda text: output_lines._MESSAGE.sub(r"\1", text), lambda text: MESSAGE.sub(r"\1", text), made)


def test_the_frame_of_a_text_goes_as_before():
    made = texts("```", "~~~", "\n", " ", "a", "`", "\n\n", "```\n").map("```\n{}".format)
    same(groups(text_structure._FENCE), groups(FENCE), made)


@pytest.mark.parametrize(
    ("new", "old", "pieces"),
    [
        (remote._MISSING, MISSING, ["repository ", "Repository", "not found", "not ", "found", "\n", "x"]),
        (remote._MISSING, MISSING, ["project ", "projecT", "could not be found", "could", " ", "\n", "x"]),
    ],
)
def test_a_sign_stands_where_it_stood(new, old, pieces):
    same(lambda text: bool(new.search(text)), lambda text: bool(old.search(text)), texts(*pieces))


@pytest.mark.parametrize(
    ("new", "old", "pieces"),
    [
        (is_of_the_host, THREAD, ["unable to create ", "unable to create", "thread", " ", "x", "to "]),
        (is_of_the_network, TRANSFER, ["transfer closed with ", "Transfer closed with", " remaining", " ", "remaining"]),
        (is_of_the_network, re.compile(OUTAGE, re.IGNORECASE), [
            "E", "ECONNRESET", "eai_again", "_", " ", "x", "ENOTFOUND", "UND_ERR_", "A", "Timeout", "ERR_PNPM_FETCH_",
            "429", "502", "Connect", "TimeoutError", "ProxyError", "SocketTimeout", "Exception", "Net::Open", "Timeout",
            "HTTP", "/1.1", "status", " code", ": ", "error", "got", "5", "client", "Socket", "Error", "i/o timeout",
        ]),
        (is_of_the_host, re.compile(r"\bE(?:NOMEM|AGAIN|MFILE|NFILE)\b|\bmemoryerror\b", re.IGNORECASE), [
            "E", "ENOMEM", "EAGAIN", "Memory", "MemoryError", "Error", " ", "x", "_", ":",
        ]),
    ],
)  # fmt: skip
def test_an_outage_is_seen_where_it_was(new, old, pieces):
    same(lambda text: new(text.encode()), lambda text: bool(old.search(text)), texts(*pieces))


def test_an_option_a_field_and_an_address_are_taken_as_before():
    for new, old, pieces in (
        (command_kinds._EARLY, EARLY, ["-", "x", "a", "z", "X", "1", "--bail", "=1"]),
        (request._FIELD, FIELD, [b"a", b":", b" ", b"\t", b"\0", b"b\xff"]),
    ):
        made = st.lists(st.sampled_from(pieces), max_size=9).map(type(pieces[0])().join)
        same(lambda text, one=new: (found := one.fullmatch(text)) and found.groups(),
             lambda text, one=old: (found := one.fullmatch(text)) and found.groups(), made)  # fmt: skip
    below = texts("a", "/", "-", "/-", "/issues/", "/pull/", "/merge_requests/", "1", "%0A", "0", "b")
    for new, old in ((issue_url.on_github, GITHUB), (issue_url.on_gitlab, GITLAB)):

        def numbered(path, one=old):
            found = one.fullmatch(issue_url._below(f"https://x.org/{path}", "x.org"))
            return found and (found[1], found[2], found[found.lastindex])

        def read(path, one=new):
            found = one(f"https://x.org/{path}", "x.org")
            return found and (found.owner, found.repo, found.number)

        same(read, numbered, below)


@pytest.mark.parametrize("url", ["a@b:c", "@@a:c", "a\\@b:", "@:", "a@:b:", "a/b@c:d", "ab@c/d:", "a@b@c:"])
def test_a_login_is_seen_where_it_was(url):
    new = remote._LOGIN.match(url)
    assert bool(new) == bool(re.match(r"^[^/\\]+@[^/]+:", url))


def test_a_wording_tells_the_numbers_that_it_told():
    flags = re.IGNORECASE | re.DOTALL
    first, then = r"limit of (?P<limit>\d(?:[\d,_.]{0,18}\d)?) tokens", r"asked (?P<requested>\d+)(?:.{0,9}?of (\d))?"
    new = re.compile(error_wordings._then(first, then), flags)
    old = re.compile(f"{first}.*?{then}", flags)
    made = texts("limit of ", "1", "2,3", " tokens", "asked ", "of ", " ", "\n", "Limit of 12 tokens")

    def told(pattern):
        return lambda text: (found := pattern.search(text)) and found.groups()

    same(told(new), told(old), made)


def test_a_page_says_what_it_said():
    def old(text):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return (title.group(1) if title else re.sub(r"<[^>]+>", " ", text)).strip()

    made = texts("<title", "<TITLE>", ">", "<", "</title>", "a", "</Title>", "\n", "<b>").map("<html>{}".format)
    same(lambda text: error_body.parse_error_body(502, text.encode()).message, old, made)


def test_a_block_holds_the_value_that_it_held():
    """As if the decoder had the whole text."""

    def of(decode):
        def tried(text):
            begins, until = 3, text.find("<", 4)
            try:
                return decode(text, begins, len(text) if until < 0 else until)
            except json.JSONDecodeError as error:
                return error.msg
            except ValueError as error:
                return str(error)

        return tried

    whole = of(lambda text, begins, until: json.JSONDecoder(strict=False).raw_decode(text, begins))
    pieces = ['{"a": ', "[", "]", "}", '"', "\\", "u0041", ",", ":", "1", "2" * 70, "true", "\n<call", " " * 70, "x"]
    same(of(tool_calls_as_text._decoded), whole, texts(*pieces).map("---{}".format))


# --- patterns that begin with the signs that they look for ----------------------------------------------------------

_CLOSING = r"\b(?:close|fix|resolve|implement)(?:s|d|es|ed|ing)?\b:?"
_MARKER = (
    r"<\|[^|<>\n]{1,60}\|>|<｜[^｜<>\n]{1,60}｜>"
    r"|</?(?:[\w.-]+:)?\w*(?i:(?:tool|function)[_-]?(?:calls?|use)s?)>"
    r"|</?(?:s|eos|bos|start_of_turn|end_of_turn)>(?:model\b)?"
    r"|</?｜?DSML｜(?:function_calls|tool_calls)>"
    r"|\[/?(?:TOOL_CALLS?|ARGS|CALL_ID)\]|functools(?=\s*\[)|Action(?: Input)?:|>>>|```[\w+-]*"
)
_PIECE = r"""
      (?P<quoted> '[^']*' | "(?:\\.|[^"\\])*" | \\. )
    | (?P<text> <<(?P<tabs>-?)[ \t]*(?P<mark>['"]?)(?P<end>[\w.-]+)(?P=mark) )
    | (?P<word> <<< )
    | (?P<comment> (?<![^\s;&|()])\#[^\n]* )
    | (?P<descriptor> (?<![^\s;&|()])\d+(?=[<>]) )
    | (?P<inner> \$\((?:[^()'"]|'[^']*'|"[^"]*"|\([^()]*\))*\) | `[^`]*` )
    """
CLOSES = ["close", "Fix", "f\u0131x", "\u0130MPLEMENTs", "\u0131mplement", "re\u017folved", "d", "ed", " ", ":", "ABC-"]
CLOSES += ["1", "x", "#", "!", "a/b", "GH-", "https:", "\n", "_", "-"]
TAGS = [
    "<",
    "/",
    "a",
    "area",
    "form",
    "frame",
    "i",
    "img",
    "\u0131mg",
    "\u017fvg",
    "p",
    "picture",
    "s",
    "style",
    ">",
    " ",
]
MARKERS = ["<", "</", "|", "\uff5c", ">", "a:", "s", "eos", "tool_call", "Function-calls", "tooluse", "DSML", "model"]
MARKERS += ["start_of_turn", "x", "functools", "[", "[TOOL_CALLS]", "function=", "invoke ", "\n", "use"]


@pytest.mark.parametrize(
    ("new", "old", "flags", "pieces"),
    [
        (inert_text._SIGNS, r"(?<![^\W_])@(?=\w)|(?<!&)[#!](?=[0-9])|\bG[HL]-(?=[0-9])", re.IGNORECASE,
         ["@", "a", "_", "\u00e9", "#", "1", "!", "&", "GH-", "gl-", "xGH-", " "]),
        (inert_text._MENTION, r"(?<![^\W_])@(?=\w)", 0, ["@", "a", "_", "\u00e9", " "]),
        (inert_text._CLOSING_KEY, rf"({_CLOSING}\s{{1,9}}[A-Z][A-Z0-9_]{{1,30}}-)(?=[0-9])", re.IGNORECASE, CLOSES),
        (inert_text._CLOSING_WORD,
         rf"({_CLOSING})(?=\s{{0,9}}(?:[\w./-]{{0,200}}[#!]|G[HL]-|https?:)[0-9]?)", re.IGNORECASE, CLOSES),
        (inert_text._OF_ITEM, r"/(?:issues|pulls?|merge_requests|work_items|epics|discussions)/(?=[0-9])", re.IGNORECASE,
         ["/", "issues", "\u0131ssues", "PULL", "s", "epics", "1", "discu\u017f\u017fions"]),
        (inert_text._SKIP,
         r"\[(?=[^\S\n]?(?:skip|no)[ -]\w+[^\S\n]?\]|[^\S\n]?\w+[ -]skip[^\S\n]?\])|\*{3}(?=NO_CI)|\bskip-(?=checks:)",
         re.IGNORECASE, ["[", "skip", "Skip ", "\u017fkip", "no ", "-", "ci", "]", " ", "***", "NO_CI", "skip-", "checks:", "*"]),
        (links._TAG,
         (r"<(?=/?(?:a|area|audio|base|embed|form|frame|iframe|image|img|input|link|meta|object|picture|portal|script"
         r"|source|style|svg|track|video)(?:[\s/>]|\Z))"), re.IGNORECASE, TAGS),
        (links._ADDRESS,
         r"(?:\b(?:https?|ftp)\\?:\\?/\\?/\\?|(?<![\w:/.\\])//|\bwww\\?\.)(?P<rest>[^\s<]+)", re.IGNORECASE,
         ["http", "HTTPS", "http\u017f", "ftp", ":", "//", "/", "\\", "www", "W", ".", "a", " ", "<"]),
        (invisible_characters.ESCAPES,
         (r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*"
         r"(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]"), 0,
         ["\x1b", "[", "\x9b", "0;1", "m", " ", "]", "\x9d", "\x90", "\x07", "\x9c", "\n", "a", "\\", "\x98", "_"]),
        (shell_parser._PIECE, _PIECE, re.VERBOSE | re.DOTALL,
         ["'", '"', "\\", "<<", "EOF", "-", "<", "#", "a", " ", "2", ">", "$(", ")", "(", "`", "\n", ";"]),
        (text_call_formats.MARKER, _MARKER, 0, MARKERS),
        (text_call_formats.BEGINS, rf"{_MARKER}|<(?=[\w.:-]*(?:function=|invoke ))", 0, MARKERS),
        (output_lines._NONE, r"\b0\s+(?:\w+\s)?(?:fail|error)\w*|\b(?:fail|error)\w*\s*[:=]\s*0\b", re.IGNORECASE,
         ["0", "fail", "Error", "ed", " ", ":", "=", "a", "_", "10", "ERRORS", "FAIL"]),
        (host_paths.HostPaths([("/root/x", "a"), ("/root/x/y", "b")])._pattern,
         r"(?<![\w.-])(?:/root/x/y|/root/x)(?![\w-]|\.\w)", 0, ["/root/x", "/y", "a", " ", ".", "-", "_", "/"]),
        (inert_text._ENTITY, inert_text._ENTITY.pattern.replace("(?=[#A-Za-z])", ""), 0,
         ["&", "#", "commat", "Tab", "NewLine", ";", "x", " "]),
        (terms._RUN, rf"[{terms._UNSPACED}]+|(?:(?![{terms._UNSPACED}])\w)+", 0,
         ["a", "_", "1", "\u00e9", "\u3042", "\u6f22", "\ud55c", " ", "@", "\u0300", "\u0663"]),
        (gitcmd._QUOTED, r'"(?:[^"\\]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*"', 0, ['"', "a", "\\", "n", "303", "1"]),
    ],
)  # fmt: skip
def test_what_begins_with_its_sign_finds_what_it_found(new, old, flags, pieces):
    before = re.compile(old, flags)
    same(lambda text: found(new, text), lambda text: found(before, text), texts(*pieces))


def test_a_line_says_what_it_said():
    passed = re.compile(
        r"""
        ^(?: ok\b | PASS(?:ED)?\b | [✓✔√☑]\s | ---\s(?:PASS|SKIP) | ===\s(?:RUN|CONT|PAUSE|NAME)\b
              | \[\s*(?:OK|PASSED|RUN|INFO|DEBUG)\s*\] | not\ ok\b.*\#\s*(?:TODO|SKIP)\b )
        | \.{3}\s*+(?i:ok|passed|skipped|ignored|expected\ failure)\b
        | \b(?:PASSED|SKIPPED|XFAIL|XPASS|Passed)\b\s*+(?:\[\s*+\d+%\]|[\d.]+\s*+sec)?\s*+$
        | ^\S+\.\w+\s[.sxX]+\s*+(?:\[\s*+\d+%\])?\s*+$
        """,
        re.VERBOSE,
    )
    pieces = [
        "ok",
        "PASS",
        "PASSED",
        "XPASS",
        "SKIPPED",
        "Passed",
        " ",
        "...",
        ".",
        "[",
        "OK",
        "]",
        "100%",
        "1.2",
        "sec",
    ]
    pieces += ["---", "a.py", "s", "not ok", "# TODO", "===", "RUN", "\u2713", "ignored", "XFAIL", "_"]
    same(output_lines._passed, lambda text: bool(passed.search(text)), texts(*pieces))
    fault = re.compile(
        r"\*\*\*\s|\b(?:\w*errors?|\w*exception|fail(?:s|ed|ing|ure|ures)?|fatal|panic(?:ked)?|assert\w*|undefined)\b",
        re.IGNORECASE,
    )
    pieces = [
        "*** ",
        "error",
        "Errors",
        "exception",
        "x",
        "_",
        " ",
        "fail",
        "failed",
        "assert",
        "panic",
        "ked",
        "fatal",
    ]
    same(lambda text: bool(output_lines._FAULT.search(text)), lambda text: bool(fault.search(text)), texts(*pieces))


def test_a_path_is_one_of_a_test_as_before():
    old = re.compile(
        r"(^|/)(tests?|__tests__|specs?|testing|testdata|__snapshots__)/"
        r"|(^|/)(test_[^/]+\.py|conftest\.py|[^/]+_test\.[a-z]+|[^/]+_spec\.[a-z]+)$"
        r"|(^|/)[^/]+\.(test|spec)\.[a-z]+$|(^|/)[^/]*Tests?\.(java|kt|cs|scala|groovy|swift|php)$"
    )
    pieces = [
        "a",
        "/",
        "test",
        "tests",
        "spec",
        "_",
        ".",
        "py",
        "conftest.py",
        "Test",
        "Tests",
        "java",
        "__tests__",
        "js",
    ]
    same(lambda path: bool(verify.touched_tests([path])), lambda path: bool(old.search(path)), texts(*pieces))


def test_a_command_is_parsed_as_before_where_it_is_not_too_long():
    def pipelines(count):
        text = "".join(f"cat <<A{number} > f{number}\n{number} | x\nA{number}\n" for number in range(count))
        found, operators = shell_parser.parse_command(f"{text}ls | wc", shell_parser.ShellState())
        return [member[0] for one in found for member in one.members], operators

    assert pipelines(shell_parser.MOST_TEXTS) == (["cat"] * shell_parser.MOST_TEXTS + ["ls", "wc"], pipelines(64)[1])
    words, operators = pipelines(shell_parser.MOST_TEXTS + 1)
    assert (set(words), operators) == ({"cat"}, "?")


def test_numbers_behind_a_path_and_odd_bytes_are_what_they_were():
    lines = re.compile(r"(?::\d+)+\Z")
    same(identifiers._without_lines, lambda text: lines.sub("", text), texts("a", ":", "1", "12", "/", ".", ":3"))
    odd = re.compile("[\udc80-\udcff\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")

    def is_odd(data):
        told = data.decode("utf-8", "surrogateescape")
        return len(odd.findall(told)) * 2 > len(told)

    pieces = [
        b"a",
        b"\x00",
        b"\xff",
        "\u00e9".encode(),
        b"\xc3",
        b"\xed\xa0\x80",
        "\U0001f600".encode(),
        b"\x1b",
        b"\x7f",
    ]
    same(encodings.is_mostly_binary, is_odd, st.lists(st.sampled_from(pieces), max_size=9).map(b"".join))


JOINER = re.compile(
    "(?<=[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff])\u200d(?=[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff])"
)
STYLE = re.compile("(?<=[\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)")


@given(st.text(st.sampled_from("a1#*\u2190\u203c\u200d\ufe0e\ufe0f\u20e3\U0001f600"), max_size=12))
def test_signs_of_emoji_are_found_as_before(text):
    assert invisible_characters.JOINER.sub("-", text) == JOINER.sub("-", text)
    assert hidden_diff_lines._STYLE.sub("-", text) == STYLE.sub("-", text)


HOUSEKEEPING = re.compile(
    r"(?:^|/)(?:(?:change-?log|changes|history|news|release-?notes|releases|authors|contributors)(?:\.\w+)?"
    r"|[\w.-]*\.lock|package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|go\.sum)$",
    re.IGNORECASE,
)


@given(
    st.lists(
        st.sampled_from(["a", "CHANGELOG.md", "news", "uv.lock", ".lock", "go.sum", "src", "history.py"]), min_size=1
    )
)
def test_change_logs_and_lock_files_are_found_as_before(parts):
    path = "/".join(parts)
    found = likely_files._HOUSEKEEPING.fullmatch(path.rpartition("/")[2])
    assert bool(found) == bool(HOUSEKEEPING.search(path))
