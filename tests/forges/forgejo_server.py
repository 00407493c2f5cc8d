"""A Forgejo server of our own on loopback: the API that an issue worker calls, with state, as strict as Forgejo.

Each request and each answer is checked against Forgejo's own document (`forgejo_document.py`): a request that the
document does not know is a fault of the adapter, and an answer that it does not know is one of this server; both are in
`undocumented`.  Its rules come from the server's code (codeberg.org/forgejo/forgejo, 11.0, `routers/api/v1/`) and from
forgejo.org/docs; each names its source.  The handlers of the paths are in `forgejo_routes.py`.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from forges.faults import Fault, take
from forges.forgejo_document import answer_faults, request_faults
from forges.forgejo_routes import ROUTES, Refused, missing
from forges.forgejo_shown import Shown
from forges.forgejo_state import State
from forges.loopback import handler_of

API = "/api/v1"
TOKEN = "f" * 40
SCOPES = ("write:issue", "write:repository", "read:user")
ROOT_URL = "https://forge.example.org"
"""What the server may call itself (app.ini `ROOT_URL`): it need not be the address at which it is reached."""
PAGE = 30  # app.ini `api.DEFAULT_PAGING_NUM`
MOST = 50  # app.ini `api.MAX_RESPONSE_ITEMS`


class ForgejoServer:
    """Use as a context manager.  `state` is its data, `journal` the requests so far: (verb, path, status).

    `prefix` is its sub-path; `root` is what it calls itself, None for its own address; `tokens` is token → (login, scopes), with None for a token without scopes, as of OAuth.
    """

    def __init__(self, own="makimono", prefix="", root=None):
        self.prefix = prefix
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.http.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.http.server_port}{prefix}"
        root = self.base if root is None else f"{root}{prefix}"
        self.state = State(root)
        self.shown = Shown(self.state, root)
        self.own = own
        self.git = None  # address of the git server for `owner/name.git`, behind this server's own address
        self.tokens = {TOKEN: (own, SCOPES)}
        self.files = {}  # path of an attachment → (content type, bytes)
        self.journal = []
        self.faults = []
        self.undocumented = []
        self.no_reply = "noreply.forge.example.org"  # NO_REPLY_ADDRESS of the server's app.ini
        self.full_names = {}  # login → name
        self.signed_in_only = False  # REQUIRE_SIGNIN_VIEW: nothing without a login
        self.page_limit = MOST
        self.version = "11.0.1+gitea-1.22.0"

    def __enter__(self):
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def fault(self, verb, path, *, message="", body=None, **more):
        """See `faults.Fault`; without a `body` it is Forgejo's, with `message`."""
        shown = body if body is not None else json.dumps({"message": message, "url": f"{self.base}/api/swagger"})
        self.faults.append(Fault(verb, path, body=shown, **more))

    def asked(self, verb=None, pattern=""):
        """The requests so far that match, as (verb, path, status)."""
        return [one for one in self.journal if verb in (None, one[0]) and re.search(pattern, one[1])]

    # --- one request ------------------------------------------------------------------------------------------

    def answer(self, verb, target, headers, text):
        """(status, headers, body), None for a cut connection."""
        parts = urlsplit(target)
        with self.state.lock:
            fault = take(self.faults, verb, parts.path, len(text))
            if fault is None or fault.after:
                status, more, body = self._answer(verb, parts, headers, text)
            if fault is not None:
                self.journal.append((verb, target, 0 if fault.cut else fault.status))
                if fault.call is not None:
                    fault.call()
                return None if fault.cut else (fault.status, fault.headers, fault.body)
            self.journal.append((verb, target, status))
            return status, more, body

    def _answer(self, verb, parts, headers, text):
        try:
            if not parts.path.startswith(f"{self.prefix}{API}/"):
                return self._web(verb, parts, headers)
            path = parts.path.removeprefix(f"{self.prefix}{API}")
            login, scopes = self._login(headers, path)
            try:
                body = json.loads(text) if text else None
            except ValueError:
                raise Refused(422, "[]: Deserialization: invalid") from None  # modules/web/middleware/binding.go
            query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            for one in list(self.state.repos.values()):
                one.look_at_git(self.own, list(self.state.repos.values()))
            self.undocumented += [f"{verb} {path}: {fault}" for fault in request_faults(verb, path, query, body)]
            status, data, more = self._route(verb, parts, path, query, body or {}, login, scopes)
        except Refused as refused:
            return refused.status, refused.headers, refused.text
        self.undocumented += [f"{verb} {path}: {fault}" for fault in answer_faults(verb, path, status, data)]
        return status, more, "" if data is None else json.dumps(data)

    def _login(self, headers, path=""):
        """services/auth: `Authorization: token …` or `Bearer …`.  Without a login some things are shown, here accounts
        (routers/api/v1/api.go, `/users/{username}`)."""
        if not headers.get("Authorization") and path.startswith("/users/") and not self.signed_in_only:
            return None, None
        scheme, _, token = (headers.get("Authorization") or "").partition(" ")
        if scheme.lower() not in ("token", "bearer") or token not in self.tokens:
            raise Refused(401, "token is required" if not token else "invalid username, password or token")
        return self.tokens[token]

    def _web(self, verb, parts, headers):
        """Pages for people: only attachments are served here, and only these take a token (services/auth/auth.go,
        `isAttachmentDownload`); everything else is the page to sign in."""
        path = parts.path.removeprefix(self.prefix)
        if verb == "GET" and path in self.files and path.startswith("/attachments/"):
            self._login(headers)
            kind, data = self.files[path]
            return 200, {"Content-Type": kind}, data
        if verb == "GET" and path in self.files:  # `/owner/name/attachments/…` leads to the other address
            return 303, {"Location": f"{self.prefix}/attachments/{path.rpartition('/')[2]}"}, ""
        return 200, {"Content-Type": "text/html; charset=utf-8"}, "<!DOCTYPE html><html><body>Sign in</body></html>"

    def _route(self, verb, parts, path, query, body, login, scopes):
        match = re.fullmatch(r"/repos/([^/]+)/([^/]+)((?:/.*)?)", path)
        repo, rest = None, path
        if match and match[1] != "issues":
            full = f"{unquote(match[1])}/{unquote(match[2])}".casefold()
            repo, rest = self.state.repos.get(full), match[3]
            if repo is None and full in self.state.old_names:
                self._moved(self.state.old_names[full], rest, parts.query)
            if repo is None or repo.gone or repo.level(login) == "none":
                raise missing()  # routers/api/v1/api.go `repoAssignment`: as if it were not there
        for method, pattern, of_repo, category, handle in ROUTES:
            if method == verb and of_repo == (repo is not None) and (found := re.fullmatch(pattern, rest)):
                self._check_scope(verb, category, scopes)
                return handle(self, repo, [unquote(one) for one in found.groups()], query, body, login)
        raise missing()

    def _check_scope(self, verb, category, scopes):
        """routers/api/v1/api.go `tokenRequiresScopes`; a scope to write is one to read too."""
        if scopes is None or category is None:
            return
        wanted = f"{'read' if verb == 'GET' else 'write'}:{category}"
        if not {wanted, f"write:{category}", "all"} & set(scopes):
            raise Refused(403, f"token does not have at least one of required scope(s): [{wanted}]")

    def _moved(self, repo, rest, query):
        """services/context/repo.go `RedirectToRepo`: 301 for every verb, with the query; the path only."""
        location = f"{self.prefix}{API}/repos/{repo.full_name}{rest}" + (f"?{query}" if query else "")
        raise Refused(301, "", headers={"Location": location})

    def page(self, path, query, items, *, link=True):
        """(the items of the page, headers).  services/context/api.go: `Link` has `ROOT_URL`; a list that is read from
        the table of comments has none."""
        size = int(query.get("limit") or 0)
        size = PAGE if size <= 0 else min(size, self.page_limit)
        page = max(1, int(query.get("page") or 1))
        more = {"X-Total-Count": str(len(items))}
        if link and page * size < len(items):
            url = f"{self.state.address}{API}{path}?{urlencode(query | {'page': page + 1})}"
            more["Link"] = f'<{url}>; rel="next"'
        return items[(page - 1) * size : page * size], more
