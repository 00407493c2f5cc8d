"""A GitLab server of our own on loopback, as strict as the real one where it matters, with faults on demand.

It has projects in groups, issues, merge requests, notes, discussions, label events, members, branches, paging by page
and by keyset, ETag and 304, quick actions, rate limits.  The shapes are GitLab's; `gitlab_document.py` and two
independent clients check them.  An unknown parameter is a 400 here (GitLab ignores it), so that a misspelt one is
noticed.  People act through the methods of `GitLab`, the program through HTTP.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from agent import clock
from forges.faults import Fault, answer_git, take
from forges.front import hand_on
from forges.host_rules import gitlab_closes, rung

NOTHING = "0" * 40
"""The hash of no commit."""
GUEST, REPORTER, DEVELOPER, MAINTAINER = 10, 20, 30, 40
MAX_NOTE = 1_000_000
MAX_DESCRIPTION = 1_048_576
ACTIONS = re.compile(r"^/(close|reopen|label|unlabel|assign|unassign|merge|title)(?: ([^\n]*))?[ \t]*$", re.MULTILINE)
CODE = re.compile(r"^```.+?\n```[ \t]*$", re.MULTILINE | re.DOTALL)


class Refused(Exception):
    """An error answer."""

    def __init__(self, status, body, headers=None):
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers or {}


def missing(what=""):
    return Refused(404, {"message": f"404 {what} Not Found" if what else "404 Not found"})


def forbidden():
    return Refused(403, {"message": "403 Forbidden"})


class GitLab:
    """The server.  `prefix` is the sub-path; `close()` ends it."""

    def __init__(self, prefix="", *, tls=None, per_page=None):
        self.prefix = prefix
        self.git = None  # address of the git server for `group/project.git`, behind this server's own address
        self.per_page = per_page  # most items per page, to get many pages with few items
        self.lock = threading.RLock()
        self.forget()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer is one write
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def _any(self):
                server.answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _any  # noqa: N815 - the names of the base class

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # the client has closed the connection

        self.http = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        self.host = f"{'localhost' if tls else '127.0.0.1'}:{self.http.server_port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}{prefix}"

    def forget(self):
        """Reset the state, without people and projects."""
        with self.lock:
            self.users, self.tokens, self.projects, self.moved = {}, {}, {}, {}
            self.groups = set()
            self.scopes, self.expires_at = ["api"], None
            self.faults, self.journal = [], []
            self.rate = None  # [remaining, limit, seconds to the reset]
            self.ticks = 0
            self.began, self.zone = None, UTC  # `began`: a fixed start time instead of the clock's
            self.ids = 1000
            self.branch_lag = 0  # look-ups of a new branch that still fail
            self.clock_ahead = timedelta(0)

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    # --- what people do -------------------------------------------------------------------------------------

    def user(self, name, *, token=None, bot=False, display="A Person"):
        with self.lock:
            known = next((user for user in self.users.values() if user["username"] == name), None)
            if known is None:
                number = len(self.users) + 1
                known = self.users[number] = {"id": number, "username": name, "name": display, "bot": bot}
            if token:
                self.tokens[token] = known["id"]
            return known

    def project(self, path, *, members=None, group=True, **more):
        with self.lock:
            number = len(self.projects) + 1
            owner = path.rpartition("/")[0]
            if group:
                self.groups |= {owner.rsplit("/", depth)[0] for depth in range(owner.count("/") + 1)}
            self.projects[number] = {
                "id": number,
                "path": path,
                "group": group,
                "members": {self.user(name)["id"]: level for name, level in (members or {}).items()},
                "branches": {"main"},
                "protected": {"main"},
                "default_branch": "main",
                "archived": False,
                "issues_on": True,
                "merges_on": True,
                "issues": {},
                "merge_requests": {},
                "labels": {},
                **more,
            }
            return self.projects[number]

    def issue(self, project, author, *, title="Fix it", description="It is broken.", labels=(), assignees=()):
        with self.lock:
            return self._make(project, "issues", self.user(author), title, description, labels, assignees)

    def merge_request(self, project, author, *, source, target="main", labels=(), source_project=None, **more):
        with self.lock:
            item = self._make(project, "merge_requests", self.user(author), more.get("title", "A change"), "", (), ())
            item |= {"source_branch": source, "target_branch": target, "reviewers": []}
            item["source_project_id"] = (source_project or project)["id"]
            self._version(item, more.get("sha", NOTHING))
            self._relabel(item, self.user(author), labels, ())
            return item

    def push_commit(self, item, author, commit):
        """Somebody pushes a commit to the source branch of a merge request.

        GitLab itself then makes a version of the merge request, moves `refs/merge-requests/N/head` and writes a system
        note (docs.gitlab.com, "Merge request diff versions").
        """
        with self.lock:
            words = f"added 1 commit\n\n<ul><li>{commit[:8]} - A change</li></ul>"
            self._note(item, self.user(author), words, system=True)
            self._version(item, commit)
            if "git" in item["project"]:
                ref = f"refs/merge-requests/{item['iid']}/head"
                argv = ["git", "--git-dir", item["project"]["git"], "update-ref", ref, commit]
                subprocess.run(argv, check=True)

    def _version(self, item, commit):
        item["sha"] = commit
        made = {"id": self._id(), "head_commit_sha": commit, "created_at": self.now()}
        item.setdefault("versions", []).append(made)

    def merge(self, item, commits=()):
        """A person merges; returns the issues that the merge closes (`host_rules.py`).  `commits` are messages."""
        with self.lock:
            item["state"], item["updated_at"] = "merged", self.now()
            project, host = item["project"], self.url.split("://", 1)[1]
            closed = set()
            for text in (item["title"], item["description"], *commits):
                closed |= gitlab_closes(text, host, project["path"])
            closed &= {one for one, issue in project["issues"].items() if issue["state"] == "opened"}
            for one in closed:
                project["issues"][one]["state"] = "closed"
            return closed

    def rung(self, own):
        """The people who were notified by the account's texts."""
        texts = [
            text
            for project in self.projects.values()
            for item in (*project["issues"].values(), *project["merge_requests"].values())
            for text in (
                *([item["description"]] if item["author"]["username"] == own else []),
                *(note["body"] for note in item["notes"] if note["author"]["username"] == own and not note["system"]),
            )
        ]
        return set().union(*map(rung, texts)) - {own}

    def note(self, item, author, body, *, thread=None, **more):
        """A person writes a note; `thread` is the id of the discussion that it answers, `position` a place in the
        change."""
        with self.lock:
            return self._note(item, self.user(author), body, thread=thread, **more)

    def edit(self, item, number, body):
        with self.lock:
            note = next(note for note in item["notes"] if note["id"] == int(number))
            note["body"] = body
            note["updated_at"] = item["updated_at"] = self.now()
            return note

    def label(self, item, author, *, add=(), remove=()):
        with self.lock:
            self._relabel(item, self.user(author), add, remove)

    def assign(self, item, author, names):
        with self.lock:
            self._assign(item, self.user(author), [self.user(name)["id"] for name in names])

    def state(self, item, state):
        with self.lock:
            item["state"], item["updated_at"] = state, self.now()

    def push(self, project, branch):
        with self.lock:
            project["branches"].add(branch)

    def fault(self, verb, path, **more):
        with self.lock:
            self.faults.append(Fault(verb, path, **more))

    def asked(self, verb=None, path=None):
        """The requests so far that match, as (verb, path)."""
        with self.lock:
            return [
                (one["verb"], one["path"])
                for one in self.journal
                if verb in (None, one["verb"]) and (path is None or re.search(path, one["path"]))
            ]

    # --- state ----------------------------------------------------------------------------------------------

    def now(self):
        self.ticks += 1
        if self.began is not None:
            moment = self.began + timedelta(seconds=self.ticks)
        else:  # no two are the same
            moment = clock.now() + timedelta(milliseconds=self.ticks)
        moment = moment.astimezone(self.zone)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _id(self):
        self.ids += 1
        return self.ids

    def _make(self, project, kind, author, title, description, labels, assignees):
        number = max(project[kind], default=0) + 1
        now = self.now()
        item = project[kind][number] = {
            "id": self._id(),
            "iid": number,
            "kind": kind,
            "project": project,
            "title": title,
            "description": description,
            "state": "opened",
            "author": author,
            "labels": [],
            "assignees": [],
            "notes": [],
            "events": [],
            "created_at": now,
            "updated_at": now,
        }
        self._relabel(item, author, labels, ())
        if assignees:
            self._assign(item, author, [self.user(name)["id"] for name in assignees])
        return item

    def _relabel(self, item, who, add, remove):
        for action, names in (("add", add), ("remove", remove)):
            for name in names:
                if (name in item["labels"]) == (action == "add"):
                    continue
                (item["labels"].append if action == "add" else item["labels"].remove)(name)
                label = item["project"]["labels"].setdefault(name, self._id())
                item["updated_at"] = self.now()
                item["events"].append(
                    {
                        "id": self._id(),
                        "user": who,
                        "created_at": item["updated_at"],
                        "action": action,
                        "label": {"id": label, "name": name},
                    }
                )

    def _assign(self, item, who, ids):
        gained = [number for number in ids if number not in item["assignees"]]
        lost = [number for number in item["assignees"] if number not in ids]
        item["assignees"] = list(ids)

        def mentioned(numbers):
            return " and ".join(f"@{self.users[number]['username']}" for number in numbers)

        words = [f"assigned to {mentioned(gained)}"] if gained else []
        words += [f"unassigned {mentioned(lost)}"] if lost else []
        if words:
            self._note(item, who, " and ".join(words), system=True)

    def _note(self, item, author, body, *, thread=None, system=False, position=None, internal=False, kind=None):
        now = self.now()
        note = {
            "id": self._id(),
            "type": kind or ("DiffNote" if position else "DiscussionNote" if thread else None),
            "body": body,
            "author": author,
            "system": system,
            "internal": internal,
            "created_at": now,
            "updated_at": now,
            "thread": thread or hashlib.sha1(f"{item['id']}:{now}".encode()).hexdigest(),
        }
        if position:
            note["position"] = position
        item["notes"].append(note)
        item["updated_at"] = now
        return note

    def _quick_actions(self, item, who, text):
        """Execute the quick actions of a text as GitLab does; returns the rest."""
        outside = CODE.sub("", text)
        for match in ACTIONS.finditer(outside):
            word, value = match[1], (match[2] or "").strip()
            if word in ("close", "merge"):
                item["state"] = "closed" if word == "close" else "merged"
            elif word == "title":
                item["title"] = value
            elif word in ("label", "unlabel"):
                names = [value.strip('~"')]
                self._relabel(item, who, *((names, ()) if word == "label" else ((), names)))
        return text if ACTIONS.search(outside) is None else ACTIONS.sub("", text).strip()

    # --- one request ----------------------------------------------------------------------------------------

    def answer(self, handler):
        length = int(handler.headers.get("content-length") or 0)
        raw = handler.rfile.read(length)
        parts = urlsplit(handler.path)
        if self.git is not None and ".git/" in parts.path:
            with self.lock:
                fault = take(self.faults, handler.command, parts.path, len(raw), git=True)
            if fault is not None:
                answer_git(handler, fault)
            else:
                hand_on(handler, self.git, handler.path.removeprefix(self.prefix), raw)  # one address for both
            return
        with self.lock:
            record = {
                "verb": handler.command,
                "path": parts.path,
                "query": dict(parse_qsl(parts.query, keep_blank_values=True)),
                "headers": {name.lower(): value for name, value in handler.headers.items()},
                "body": raw,
            }
            self.journal.append(record)
            fault = take(self.faults, handler.command, parts.path, len(raw))
            if fault is None or fault.after:
                status, headers, body = self._result(record)
                if fault is not None:
                    status, headers, body = fault.status, dict(fault.headers), fault.body
            else:
                status, headers, body = fault.status, dict(fault.headers), fault.body
            if self.rate is not None:
                self.rate[0] = max(0, self.rate[0] - 1)
                reset = int(self._server_time().timestamp()) + self.rate[2]
                headers |= {
                    "RateLimit-Name": "throttle_authenticated_api",
                    "RateLimit-Limit": str(self.rate[1]),
                    "RateLimit-Remaining": str(self.rate[0]),
                    "RateLimit-Observed": str(self.rate[1] - self.rate[0]),
                    "RateLimit-Reset": str(reset),
                }
        if fault is not None and fault.call is not None:
            fault.call()
        if fault is not None and fault.cut:
            handler.close_connection = True
            return
        self._write(handler, record, status, headers, body)

    def _server_time(self):
        return datetime.now(UTC) + self.clock_ahead

    def _write(self, handler, record, status, headers, body):
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if record["verb"] == "GET" and status == 200:
            etag = f'W/"{hashlib.md5(data).hexdigest()}"'
            headers["ETag"] = etag
            if record["headers"].get("if-none-match") == etag:
                status, data = 304, b""
        handler.send_response_only(status)
        handler.send_header("Date", format_datetime(self._server_time(), usegmt=True))
        if status not in (204, 304):
            handler.send_header("Content-Type", headers.pop("Content-Type", "application/json"))
            handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)

    def _result(self, record):
        try:
            prefix = f"{self.prefix}/api/v4"
            if not record["path"].startswith(f"{prefix}/"):
                if record["path"].startswith(f"{self.prefix}/api/v3"):
                    raise Refused(410, {"error": "API V3 is no longer supported. Use API V4 instead."})
                raise Refused(404, b"<html>Not here</html>", {"Content-Type": "text/html"})
            who = self._account(record["headers"])
            path = record["path"].removeprefix(prefix)
            body = json.loads(record["body"]) if record["body"] else {}
            for verb, pattern, method in ROUTES:
                match = re.fullmatch(pattern, path)
                if verb == record["verb"] and match:
                    groups = [unquote(group) for group in match.groups()]
                    call = Call(self, who, record, dict(record["query"]), body)
                    return getattr(call, method)(*groups)
            raise Refused(404, {"error": "404 Not Found"})
        except Refused as refused:
            return refused.status, dict(refused.headers), refused.body

    def _account(self, headers):
        token = headers.get("private-token") or headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            raise Refused(401, {"message": "401 Unauthorized"})
        return self.users[self.tokens[token]]


class Call:
    """One request of an account; its methods return (status, headers, body)."""

    def __init__(self, server, who, record, query, body):
        self.server, self.who, self.record, self.query, self.body = server, who, record, query, body

    # --- shapes ---------------------------------------------------------------------------------------------

    def basic(self, user):
        return {
            "id": user["id"],
            "username": user["username"],
            "public_email": None,
            "name": user["name"],
            "state": "active",
            "locked": False,
            "avatar_url": None,
            "web_url": f"{self.server.url}/{user['username']}",
        }

    def shape(self, item):
        project = item["project"]
        merge = item["kind"] == "merge_requests"
        sign = "!" if merge else "#"
        shown = {
            "id": item["id"],
            "iid": item["iid"],
            "project_id": project["id"],
            "title": item["title"],
            "description": item["description"],
            "state": item["state"],
            "created_at": item["created_at"],
            "updated_at": item["updated_at"],
            "closed_at": item["updated_at"] if item["state"] == "closed" else None,
            "labels": sorted(item["labels"]),
            "milestone": None,
            "assignees": [self.basic(self.server.users[number]) for number in item["assignees"]],
            "assignee": self.basic(self.server.users[item["assignees"][0]]) if item["assignees"] else None,
            "author": self.basic(item["author"]),
            "user_notes_count": sum(not note["system"] for note in item["notes"]),
            "upvotes": 0,
            "downvotes": 0,
            "web_url": f"{self.server.url}/{project['path']}/-/{item['kind']}/{item['iid']}",
            "references": {
                "short": f"{sign}{item['iid']}",
                "relative": f"{sign}{item['iid']}",
                "full": f"{project['path']}{sign}{item['iid']}",
            },
        }
        if merge:
            draft = re.match(r"(draft:|\[draft\]|\(draft\))", item["title"], re.IGNORECASE) is not None
            return shown | {
                "source_branch": item["source_branch"],
                "target_branch": item["target_branch"],
                "source_project_id": item["source_project_id"],
                "target_project_id": project["id"],
                "reviewers": [self.basic(self.server.users[number]) for number in item["reviewers"]],
                "draft": draft,
                "work_in_progress": draft,
                "merged_at": item["updated_at"] if item["state"] == "merged" else None,
                "sha": item["sha"],
                "has_conflicts": False,
            }
        return shown | {
            "type": "ISSUE",
            "issue_type": "issue",
            "confidential": item.get("confidential", False),
            "due_date": None,
            "weight": None,
            "moved_to_id": item.get("moved_to_id"),
        }

    def note_shape(self, item, note):
        shown = {
            "id": note["id"],
            "type": note["type"],
            "body": note["body"],
            "attachment": None,
            "author": self.basic(note["author"]),
            "created_at": note["created_at"],
            "updated_at": note["updated_at"],
            "system": note["system"],
            "noteable_id": item["id"],
            "noteable_type": "MergeRequest" if item["kind"] == "merge_requests" else "Issue",
            "project_id": item["project"]["id"],
            "resolvable": note["type"] in ("DiffNote", "DiscussionNote") and item["kind"] == "merge_requests",
            "confidential": note["internal"],
            "internal": note["internal"],
            "imported": False,
            "imported_from": "none",
            "noteable_iid": item["iid"],
            "commands_changes": {},
        }
        if shown["resolvable"]:
            shown |= {"resolved": note.get("resolved", False), "resolved_by": None, "resolved_at": None}
        return shown | ({"position": note["position"]} if "position" in note else {})

    def project_shape(self, project):
        level = project["members"].get(self.who["id"], 0)
        access = {"access_level": level, "notification_level": 3} if level else None
        owner = project["path"].rpartition("/")[0]
        return {
            "id": project["id"],
            "description": None,
            "name": project["path"].rpartition("/")[2],
            "name_with_namespace": project["path"].replace("/", " / "),
            "path": project["path"].rpartition("/")[2],
            "path_with_namespace": project["path"],
            "created_at": "2026-01-01T00:00:00.000Z",
            "default_branch": project["default_branch"],
            "ssh_url_to_repo": f"git@gitlab.internal:{project['path']}.git",
            "http_url_to_repo": f"http://gitlab.internal/{project['path']}.git",
            "web_url": f"http://gitlab.internal/{project['path']}",
            "visibility": project.get("visibility", "private"),
            "namespace": {
                "id": 1,
                "name": owner.rpartition("/")[2],
                "path": owner.rpartition("/")[2],
                "kind": "group" if project["group"] else "user",
                "full_path": owner,
            },
            "archived": project["archived"],
            "empty_repo": not project["branches"],
            "issues_enabled": project["issues_on"],
            "merge_requests_enabled": project["merges_on"],
            "issues_access_level": "enabled" if project["issues_on"] else "disabled",
            "merge_requests_access_level": "enabled" if project["merges_on"] else "disabled",
            "repository_access_level": project.get("repository_access_level", "enabled"),
            "permissions": {"project_access": access, "group_access": None},
        }

    # --- what every call needs --------------------------------------------------------------------------------

    def take(self, *names, of="query"):
        """Refuse unknown parameters."""
        given = self.query if of == "query" else self.body
        paging = ("page", "per_page", "pagination", "order_by", "sort", "id_after") if of == "query" else ()
        if unknown := set(given) - set(names) - set(paging):
            raise Refused(400, {"error": f"{', '.join(sorted(unknown))} is not known to this test server"})
        return given

    def choice(self, name, *allowed):
        value = self.query.get(name)
        if value is not None and value not in allowed:
            raise Refused(400, {"error": f"{name} does not have a valid value"})
        return value

    def find_project(self, name, write=None):
        server = self.server
        if name in server.moved:
            new = quote(server.moved[name], safe="")
            where = self.record["path"].replace(quote(name, safe=""), new, 1)
            if self.record["verb"] != "GET":
                raise missing("Project")
            host = self.record["headers"]["host"]
            scheme = server.url.partition("://")[0]
            query = f"?{urlencode(self.query)}" if self.query else ""
            raise Refused(301, {"message": "301"}, {"Location": f"{scheme}://{host}{where}{query}"})
        found = next(
            (one for one in server.projects.values() if name in (str(one["id"]), one["path"])),
            None,
        )
        level = found["members"].get(self.who["id"], 0) if found else 0
        if found is None or level == 0:
            raise missing("Project")
        if write is not None and (level < write or found["archived"]):
            raise forbidden()
        return found

    def find_item(self, name, kind, number, write=None):
        project = self.find_project(name, write)
        if kind == "merge_requests" and not project["merges_on"]:
            raise forbidden()
        item = project[kind].get(int(number)) if number.isdigit() else None
        if item is None or (kind == "issues" and not project["issues_on"]):
            raise missing()
        return item

    def paged(self, items, shape):
        """A page of `items` with GitLab's headers."""
        server, query = self.server, self.query
        size = min(int(query.get("per_page") or 20), 100)
        size = min(size, server.per_page or size)
        base = f"{server.url}{self.record['path'].removeprefix(server.prefix)}"
        if query.get("pagination") == "keyset":
            if self.record["path"].rpartition("/")[2] != "projects":
                error = "Keyset pagination is not yet available for this type of request"
                raise Refused(405, {"error": error})
            if query.get("order_by", "id") != "id":
                raise Refused(405, {"error": "Keyset pagination is not yet available with this order"})
            rest = [item for item in items if item["id"] > int(query.get("id_after") or 0)]
            page = rest[:size]
            headers = {"X-Per-Page": str(size)}
            if len(rest) > size:
                more = urlencode({**query, "id_after": page[-1]["id"]})
                headers["Link"] = f'<{base}?{more}>; rel="next"'
            return 200, headers, [shape(item) for item in page]
        number = int(query.get("page") or 1)
        last = max(1, -(-len(items) // size))
        page = items[(number - 1) * size : number * size]

        def link(to, rel):
            return f'<{base}?{urlencode({**query, "page": to, "per_page": size})}>; rel="{rel}"'

        links = [link(number + 1, "next")] if number < last else []
        links += [link(1, "first"), link(last, "last")]
        headers = {
            "Link": ", ".join(links),
            "X-Page": str(number),
            "X-Per-Page": str(size),
            "X-Next-Page": str(number + 1) if number < last else "",
            "X-Prev-Page": str(number - 1) if number > 1 else "",
            "X-Total": str(len(items)),
            "X-Total-Pages": str(last),
        }
        return 200, headers, [shape(item) for item in page]

    # --- people and projects ----------------------------------------------------------------------------------

    def version(self):
        return 200, {}, {"version": "18.6.0-ee", "revision": "0badcafe"}

    def me(self):
        return 200, {}, {**self.basic(self.who), "bot": self.who["bot"]}

    def token(self):
        told = {"id": 1, "name": "makimono", "revoked": False, "active": True, "user_id": self.who["id"]}
        return 200, {}, told | {"scopes": self.server.scopes, "expires_at": self.server.expires_at}

    def person(self, number):
        found = self.server.users.get(int(number))
        if found is None:
            raise missing("User")
        return 200, {}, {**self.basic(found), "bot": found["bot"]}

    def member(self, name, number):
        project = self.find_project(name)
        level = project["members"].get(int(number))
        if level is None:
            raise missing()
        user = self.basic(self.server.users[int(number)])
        return 200, {}, {**user, "access_level": level, "expires_at": None, "membership_state": "active"}

    def one_project(self, name):
        return 200, {}, self.project_shape(self.find_project(name))

    def all_projects(self):
        self.take("membership", "min_access_level", "archived", "simple")
        least = int(self.query.get("min_access_level") or 1)
        found = [
            project
            for project in self.server.projects.values()
            if project["members"].get(self.who["id"], 0) >= least
            and (self.query.get("archived") is None or project["archived"] == (self.query["archived"] == "true"))
        ]
        return self.paged(found, self.project_shape)

    # --- lists of issues and merge requests -------------------------------------------------------------------

    def listed(self, projects, kind):
        self.take(
            "state",
            "labels",
            "scope",
            "assignee_username",
            "search",
            "source_branch",
            "author_id",
            "iids",
            "updated_after",
        )
        state = self.choice("state", "opened", "closed", "merged", "locked", "all")
        scope = self.choice("scope", "created_by_me", "assigned_to_me", "all")
        order = self.choice("order_by", "created_at", "updated_at") or "created_at"
        wanted = [name for name in (self.query.get("labels") or "").split(",") if name]
        after = datetime.fromisoformat(self.query.get("updated_after") or "0001-01-01T00:00:00Z")
        found = []
        for project in projects:
            for item in project[kind].values():
                if datetime.fromisoformat(item["updated_at"]) < after:
                    continue
                if state not in (None, "all", item["state"]) or not all(name in item["labels"] for name in wanted):
                    continue
                if scope == "assigned_to_me" and self.who["id"] not in item["assignees"]:
                    continue
                if self.query.get("source_branch") not in (None, item.get("source_branch")):
                    continue
                words = self.query.get("search")
                if words and words.lower() not in f"{item['title']} {item['description']}".lower():
                    continue
                found.append(item)
        found.sort(
            key=lambda item: (datetime.fromisoformat(item[order]), item["id"]),
            reverse=self.query.get("sort", "desc") == "desc",
        )
        return self.paged(found, self.shape)

    def of_project(self, name, kind):
        project = self.find_project(name)
        if kind == "merge_requests" and not project["merges_on"]:
            raise forbidden()
        return self.listed([project] if kind == "merge_requests" or project["issues_on"] else [], kind)

    def of_group(self, name, kind):
        inside = [one for one in self._visible() if one["path"].startswith(f"{name}/")]
        if name not in self.server.groups or not inside:
            raise missing("Group")
        return self.listed([one for one in inside if not one["archived"]], kind)

    def of_all(self, kind):
        if self.query.get("scope") is None:
            self.query["scope"] = "created_by_me"
        return self.listed(self._visible(), kind)

    def _visible(self):
        return [one for one in self.server.projects.values() if one["members"].get(self.who["id"])]

    def related(self, name, number):
        item = self.find_item(name, "issues", number)
        word = re.compile(rf"#{item['iid']}(?!\d)")
        merges = item["project"]["merge_requests"].values()
        return self.paged([one for one in merges if word.search(one["description"] or "")], self.shape)

    # --- one issue or merge request ---------------------------------------------------------------------------

    def one(self, name, kind, number):
        return 200, {}, self.shape(self.find_item(name, kind, number))

    def change(self, name, kind, number):
        item = self.find_item(name, kind, number, REPORTER if kind == "issues" else DEVELOPER)
        known = ("title", "description", "state_event", "add_labels", "remove_labels", "assignee_ids")
        body = self.take(*known, *(("reviewer_ids",) if kind == "merge_requests" else ()), of="body")
        if not body:
            raise Refused(400, {"error": "title, description, … are missing, at least one parameter must be provided"})
        self._check_title(body)
        if body.get("state_event") not in (None, "close", "reopen"):
            raise Refused(400, {"error": "state_event does not have a valid value"})
        if "description" in body:
            item["description"] = self.server._quick_actions(item, self.who, body["description"])
        if "title" in body:
            item["title"] = body["title"]
        if body.get("state_event") and item["state"] != "merged":
            item["state"] = "closed" if body["state_event"] == "close" else "opened"
        self.server._relabel(item, self.who, self._names("add_labels"), self._names("remove_labels"))
        if "reviewer_ids" in body:
            item["reviewers"] = [one for one in body["reviewer_ids"] if one in item["project"]["members"]]
        if "assignee_ids" in body:
            self.server._assign(item, self.who, body["assignee_ids"])
        item["updated_at"] = self.server.now()
        return 200, {}, self.shape(item)

    def _names(self, key):
        value = self.body.get(key) or []
        return [part.strip() for one in ([value] if isinstance(value, str) else value) for part in one.split(",")]

    def _check_title(self, body):
        if len(body.get("title", "x")) > 255:
            raise Refused(400, {"message": {"title": ["is too long (maximum is 255 characters)"]}})
        if not body.get("title", "x").strip():
            raise Refused(400, {"message": {"title": ["can't be blank"]}})
        if len(body.get("description") or "") > MAX_DESCRIPTION:
            raise Refused(400, {"message": {"description": [f"is too long (maximum is {MAX_DESCRIPTION} characters)"]}})

    def open_issue(self, name):
        project = self.find_project(name)
        if not project["issues_on"]:
            raise forbidden()
        body = self.take("title", "description", "labels", of="body")
        if not body.get("title"):
            raise Refused(400, {"error": "title is missing"})
        may_label = project["members"].get(self.who["id"], 0) >= REPORTER  # labels of others are dropped
        labels = [one.strip() for one in body.get("labels", "").split(",") if may_label and one.strip()]
        made = self.server._make(project, "issues", self.who, body["title"], body.get("description"), labels, ())
        return 201, {}, self.shape(made)

    def open_merge(self, name):
        project = self.find_project(name, DEVELOPER)
        if not project["merges_on"]:
            raise forbidden()
        body = self.take("title", "description", "source_branch", "target_branch", "reviewer_ids", of="body")
        if absent := [key for key in ("title", "source_branch", "target_branch") if key not in body]:
            raise Refused(400, {"error": ", ".join(f"{key} is missing" for key in absent)})
        self._check_title(body)
        source, target = body["source_branch"], body["target_branch"]
        if not self._has_branch(project, source):
            raise Refused(422, {"message": [f'Source branch "{source}" does not exist']})
        if target not in project["branches"] and not _in_git(project, target):
            raise Refused(422, {"message": [f'Target branch "{target}" does not exist']})
        if source == target:
            raise Refused(422, {"message": ["You can't use same project/branch for source and target"]})
        for one in project["merge_requests"].values():
            same = (one["source_branch"], one["target_branch"], one["source_project_id"])
            if one["state"] == "opened" and same == (source, target, project["id"]):
                message = f"Another open merge request already exists for this source branch: !{one['iid']}"
                raise Refused(409, {"message": [message]})
        item = self.server._make(project, "merge_requests", self.who, body["title"], "", (), ())
        item |= {"source_branch": source, "target_branch": target, "source_project_id": project["id"]}
        self.server._version(item, _in_git(project, source) or NOTHING)
        item["reviewers"] = [number for number in body.get("reviewer_ids", ()) if number in project["members"]]
        item["description"] = self.server._quick_actions(item, self.who, body.get("description") or "")
        return 201, {}, self.shape(item)

    def versions(self, name, number):
        """docs.gitlab.com, Merge requests API, "Get merge request diff versions": newest first."""
        item = self.find_item(name, "merge_requests", number)
        self.take()
        of = {"base_commit_sha": NOTHING, "start_commit_sha": NOTHING, "merge_request_id": item["id"]}
        of |= {"state": "collected", "real_size": "1", "patch_id_sha": NOTHING}
        return self.paged(item["versions"][::-1], lambda one: one | of)

    # --- branches ---------------------------------------------------------------------------------------------

    def _has_branch(self, project, branch):
        if branch not in project["branches"] and not _in_git(project, branch):
            return False
        if branch != project["default_branch"] and self.server.branch_lag > 0:
            self.server.branch_lag -= 1
            return False
        return True

    def branch(self, name, branch):
        project = self.find_project(name)
        if not self._has_branch(project, branch):
            raise missing("Branch")
        commit = {"id": "0" * 40, "short_id": "0" * 8, "title": "Begin"}
        protected = branch in project["protected"]
        return 200, {}, {"name": branch, "commit": commit, "merged": False, "protected": protected, "default": False}

    def protected(self, name):
        project = self.find_project(name)
        return self.paged([{"id": 1, "name": one} for one in sorted(project["protected"])], dict)

    # --- labels, notes, discussions ---------------------------------------------------------------------------

    def labels(self, name):
        found = [
            {"id": number, "name": label, "color": "#428bca", "text_color": "#FFFFFF", "description": None}
            | {"description_html": "", "is_project_label": True, "priority": None, "subscribed": False}
            | {"open_issues_count": 0, "closed_issues_count": 0, "open_merge_requests_count": 0}
            for label, number in sorted(self.find_project(name)["labels"].items())
        ]
        return self.paged(found, dict)

    def label_events(self, name, kind, number):
        item = self.find_item(name, kind, number)

        def shape(event):
            label = {**event["label"], "color": "#428bca", "description": None}
            of = {"resource_type": "Issue" if kind == "issues" else "MergeRequest", "resource_id": item["id"]}
            return event | {"user": self.basic(event["user"]), "label": label} | of

        return self.paged(item["events"], shape)

    def notes(self, name, kind, number):
        item = self.find_item(name, kind, number)
        self.take("activity_filter")
        kinds = self.choice("activity_filter", "all_notes", "only_comments", "only_activity")
        order = self.choice("order_by", "created_at", "updated_at") or "created_at"
        found = [
            note
            for note in item["notes"]
            if kinds in (None, "all_notes") or note["system"] == (kinds == "only_activity")
        ]
        found.sort(
            key=lambda note: (datetime.fromisoformat(note[order]), note["id"]),
            reverse=self.query.get("sort", "desc") == "desc",
        )
        return self.paged(found, lambda note: self.note_shape(item, note))

    def discussions(self, name, kind, number):
        item = self.find_item(name, kind, number)
        self.take()
        threads = {}
        for note in item["notes"]:
            threads.setdefault(note["thread"], []).append(note)

        def shape(entry):
            alone = len(entry[1]) == 1 and entry[1][0]["type"] is None
            return {
                "id": entry[0],
                "individual_note": alone,
                "notes": [self.note_shape(item, note) for note in entry[1]],
            }

        return self.paged(list(threads.items()), shape)

    def write_note(self, name, kind, number):
        item = self.find_item(name, kind, number, GUEST)
        text = self._note_text()
        rest = self.server._quick_actions(item, self.who, text)
        if not rest:
            return 202, {}, {"commands_changes": {}, "summary": ["Applied."]}
        return 201, {}, self.note_shape(item, self.server._note(item, self.who, rest))

    def _note_text(self):
        text = self.take("body", of="body").get("body")
        if not isinstance(text, str) or not text.strip():
            raise Refused(400, {"message": '400 Bad request - Note {:note=>["can\'t be blank"]}'})
        if len(text) > MAX_NOTE:
            reason = f'400 Bad request - Note {{:note=>["is too long (maximum is {MAX_NOTE} characters)"]}}'
            raise Refused(400, {"message": reason})
        return text

    def _own_note(self, name, kind, number, note_id):
        item = self.find_item(name, kind, number)
        note = next((one for one in item["notes"] if str(one["id"]) == note_id), None)
        if note is None:
            raise missing()
        return item, note

    def one_note(self, name, kind, number, note_id):
        return 200, {}, self.note_shape(*self._own_note(name, kind, number, note_id))

    def edit_note(self, name, kind, number, note_id):
        item, note = self._own_note(name, kind, number, note_id)
        if note["author"]["id"] != self.who["id"]:
            raise forbidden()
        note["body"] = self.server._quick_actions(item, self.who, self._note_text())
        note["updated_at"] = item["updated_at"] = self.server.now()
        return 200, {}, self.note_shape(item, note)

    def remove_note(self, name, kind, number, note_id):
        item, note = self._own_note(name, kind, number, note_id)
        if note["author"]["id"] != self.who["id"]:  # a maintainer may edit it; our account is not one
            raise forbidden()
        item["notes"].remove(note)
        item["updated_at"] = self.server.now()
        return 204, {}, None


def _in_git(project, branch):
    """The commit of a branch in the real repository of the project (`git`); "" if one of them does not exist."""
    if "git" not in project:
        return ""
    argv = ["git", "--git-dir", project["git"], "rev-parse", "--verify", "-q", f"refs/heads/{branch}"]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True).stdout.strip()


_P = "/projects/([^/]+)"
_KIND = "(issues|merge_requests)"
ROUTES = [
    ("GET", "/version", "version"),
    ("GET", "/user", "me"),
    ("GET", "/personal_access_tokens/self", "token"),
    ("GET", r"/users/(\d+)", "person"),
    ("GET", "/projects", "all_projects"),
    ("GET", _P, "one_project"),
    ("GET", rf"{_P}/members/all/(\d+)", "member"),
    ("GET", f"/{_KIND}", "of_all"),
    ("GET", f"/groups/([^/]+)/{_KIND}", "of_group"),
    ("GET", f"{_P}/{_KIND}", "of_project"),
    ("POST", f"{_P}/issues", "open_issue"),
    ("POST", f"{_P}/merge_requests", "open_merge"),
    ("GET", f"{_P}/issues/([^/]+)/related_merge_requests", "related"),
    ("GET", f"{_P}/{_KIND}/([^/]+)", "one"),
    ("PUT", f"{_P}/{_KIND}/([^/]+)", "change"),
    ("GET", f"{_P}/merge_requests/([^/]+)/versions", "versions"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/notes", "notes"),
    ("POST", f"{_P}/{_KIND}/([^/]+)/notes", "write_note"),
    ("GET", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)", "one_note"),
    ("PUT", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)", "edit_note"),
    ("DELETE", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)", "remove_note"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/discussions", "discussions"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/resource_label_events", "label_events"),
    ("GET", f"{_P}/labels", "labels"),
    ("GET", f"{_P}/repository/branches/([^/]+)", "branch"),
    ("GET", f"{_P}/protected_branches", "protected"),
]
