"""A GitHub server of our own on loopback: the API that an issue worker calls, with state, as strict as GitHub where it
matters.

It has features that other emulators lack: ETag and 304, primary and secondary rate limits, refused and expired tokens,
pull requests among the issues, 422 for a second pull request and for a missing branch, redirects of renamed
repositories and moved issues, and faults on demand: 5xx before or after execution, cut connections.  Prism checks its
answers against GitHub's own document (`github_prism.py`), so it cannot be more permissive than the document.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from agent import clock
from forges.faults import Fault, take
from forges.github_blobs import Blobs
from forges.github_check_routes import CheckRoutes
from forges.github_errors import DOCS, Refused, missing
from forges.github_git_routes import GitRoutes
from forges.github_graphql import GraphQL
from forges.github_issue_routes import IssueRoutes
from forges.github_pull_routes import PullRoutes
from forges.github_state import State
from forges.github_talk_routes import TalkRoutes
from forges.loopback import handler_of


class GitHubServer(IssueRoutes, PullRoutes, CheckRoutes, TalkRoutes, GitRoutes, GraphQL):
    """Use as a context manager.  `state` is its data, `journal` the requests so far: (verb, path, status)."""

    def __init__(self, own="makimono"):
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.http.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.http.server_port}"
        self.state = State(self.base)
        self.git = None  # address of the git server for `owner/name.git`, behind this server's own address
        self.tokens = {"ghp_" + "t" * 36: own}  # token → login
        self.expires = {}  # token → Unix seconds
        self.permissions = {"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}
        self.apps = {}  # app id → (public key PEM, slug, {installation id: account})
        self.withheld = set()  # permissions that the tokens lack: checks, statuses, actions
        self.blobs = Blobs()
        self.journal = []
        self.queries = []
        self.faults = []
        self.scopes, self.expiry = "repo", None  # of the tokens: the content of their headers; no scopes: fine-grained
        self.limit = self.remaining = 5000
        self.reset = None
        self.page_limit = 100
        self.made_tokens = 0
        self.on_token = lambda _token: None  # called with each new token

    def __enter__(self):
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()
        self.blobs.close()

    def fault(self, verb, path, *, message="", body=None, **more):
        """See `faults.Fault`; without a `body` it is GitHub's, with `message`."""
        shown = body if body is not None else json.dumps({"message": message, "documentation_url": DOCS})
        self.faults.append(Fault(verb, path, body=shown, **more))

    def asked(self, verb=None, pattern=""):
        """The requests so far that match, as (verb, path, status)."""
        return [one for one in self.journal if verb in (None, one[0]) and re.search(pattern, one[1])]

    # --- one request ------------------------------------------------------------------------------------------

    def answer(self, verb, target, headers, text):
        """(status, headers, body text), None for a cut connection."""
        parts = urlsplit(target)
        with self.state.lock:
            fault = take(self.faults, verb, parts.path, len(text))
            if fault is None or fault.after:
                status, more, body = self._answer(verb, parts, headers, text)
            if fault is not None:
                return self._faulty(fault, verb, target)
            self.journal.append((verb, target, status))
            return status, more, body

    def _faulty(self, fault, verb, target):
        self.journal.append((verb, target, 0 if fault.cut else fault.status))
        if fault.call is not None:
            fault.call()
        return None if fault.cut else (fault.status, fault.headers, fault.body)

    def _answer(self, verb, parts, headers, text):
        try:
            login = self._login(parts.path, headers)
            if self.remaining <= 0 and not self._refilled():
                raise Refused(403, "API rate limit exceeded for user ID 1.", headers=self._rates())
            try:
                body = json.loads(text) if text else {}
            except ValueError:
                raise Refused(400, "Problems parsing JSON") from None
            query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            status, data, more = self._route(verb, parts, query, body, login)
        except Refused as refused:
            self.remaining -= 1
            return refused.status, self._rates() | refused.headers, json.dumps(refused.body)
        shown = "" if data is None else json.dumps(data)
        if verb == "GET" and status == 200:
            etag = f'W/"{hashlib.sha256((login or "").encode() + shown.encode()).hexdigest()}"'
            if headers.get("If-None-Match") == etag:
                return 304, self._rates() | {"ETag": etag}, ""
            more = more | {"ETag": etag}
        self.remaining -= 1
        return status, self._rates() | more, shown

    def _refilled(self):
        if self.reset is not None and clock.now().timestamp() >= self.reset:
            self.remaining, self.reset = self.limit, None
        return self.remaining > 0

    def _rates(self):
        if self.reset is None:
            self.reset = int(clock.now().timestamp()) + 3600
        of_token = {"X-OAuth-Scopes": self.scopes, "GitHub-Authentication-Token-Expiration": self.expiry}
        return {name: value for name, value in of_token.items() if value is not None} | {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(0, self.remaining)),
            "X-RateLimit-Used": str(self.limit - max(0, self.remaining)),
            "X-RateLimit-Reset": str(self.reset),
            "X-RateLimit-Resource": "core",
        }

    def _login(self, path, headers):
        scheme, _, token = (headers.get("Authorization") or "").partition(" ")
        if not token:
            raise Refused(401, "Requires authentication")
        if path == "/app" or path.startswith("/app/") or path.endswith("/installation"):
            return self._app(token)
        login = self.tokens.get(token) if scheme in ("Bearer", "token") else None
        if login is None or self.expires.get(token, float("inf")) <= clock.now().timestamp():
            raise Refused(401, "Bad credentials")
        return login

    def _app(self, token):
        import jwt

        for number, (key, _, _) in self.apps.items():
            try:
                claims = jwt.decode(token, key, algorithms=["RS256"], options={"verify_iat": False})
            except jwt.InvalidTokenError:
                continue
            if str(claims["iss"]) == str(number) and claims["exp"] - claims["iat"] <= 660:
                return f"app:{number}"
        raise Refused(401, "A JSON web token could not be decoded")

    # --- routes -----------------------------------------------------------------------------------------------

    def _route(self, verb, parts, query, body, login):
        path = parts.path
        if path == "/user" and verb == "GET":
            return 200, self._me(login), {}
        # https://docs.github.com/en/rest/users/users ("Get a user"): the account of an App is a user too
        if (found := re.fullmatch(r"/users/([^/]+)", path)) and verb == "GET":
            return 200, self.state.user(unquote(found[1]), "public-user"), {}
        if path == "/rate_limit" and verb == "GET":
            return 200, self._limits(), {}
        if path == "/graphql" and verb == "POST":
            return 200, self._graphql(body, login), {}
        if path in ("/user/repos", "/installation/repositories") and verb == "GET":
            found = [self.state.show_repo(repo) for repo in self.state.repos.values()]
            return 200, found if path == "/user/repos" else {"total_count": len(found), "repositories": found}, {}
        if path == "/search/issues" and verb == "GET":
            return self._search(path, query)
        if login.startswith("app:"):
            return self._of_app(verb, path, int(login[4:]))
        match = re.fullmatch(r"/(?:repos/([^/]+)/([^/]+)|repositories/(\d+))((?:/.*)?)", path)
        if match is None:
            raise missing()
        owner, name, number, rest = match.groups()
        if number is not None:
            repo = next((one for one in self.state.repos.values() if one.id == int(number)), None)
        else:
            full = f"{unquote(owner)}/{unquote(name)}".casefold()
            repo = self.state.repos.get(full)
            if repo is None and full in self.state.old_names:
                self._redirect(verb, f"/repositories/{self.state.old_names[full].id}{rest}", parts.query)
        if repo is None or repo.gone:
            raise missing()
        if repo is not None and repo.archived and verb != "GET":
            raise Refused(403, "Repository was archived so is read-only.")
        repo.refresh()
        for method, pattern, handle in self.routes:
            if method == verb and (found := re.fullmatch(pattern, rest)):
                return handle(self, repo, [unquote(one) for one in found.groups()], query, body, login, path)
        raise missing()

    def _redirect(self, verb, path, query):
        url = f"{self.base}{path}" + (f"?{query}" if query else "")
        status, message = (301, "Moved Permanently") if verb == "GET" else (307, "Temporary Redirect")
        refused = Refused(status, message, headers={"Location": url})
        refused.body["url"] = url
        raise refused

    def _limits(self):
        from forges.github_shapes import make

        return make("rate-limit-overview")

    def _me(self, login):
        from forges.github_shapes import make

        return make("private-user") | self.state.user(login, "public-user") | {"user_view_type": "private"}

    def _of_app(self, verb, path, number):
        _, slug, installations = self.apps[number]
        if path == "/app" and verb == "GET":
            return 200, {"id": number, "slug": slug, "name": slug}, {}
        if (found := re.fullmatch(r"/(?:users|orgs)/([^/]+)/installation", path)) and verb == "GET":
            for one, account in installations.items():
                if account.casefold() == found[1].casefold():
                    return 200, {"id": one, "account": {"login": account}}, {}
        found = re.fullmatch(r"/app/installations/(\d+)/access_tokens", path)
        if found and verb == "POST" and int(found[1]) in installations:
            self.made_tokens += 1
            token = f"ghs_{self.made_tokens:036d}"
            until = clock.now().timestamp() + 3600
            self.tokens[token], self.expires[token] = f"{slug}[bot]", until
            self.on_token(token)
            stamp = now_at(until)
            return 201, {"token": token, "expires_at": stamp, "permissions": self.permissions}, {}
        raise missing()

    def _search(self, path, query):
        words = re.findall(r'[\w-]+:"[^"]*"|\S+', query.get("q", ""))
        self.queries.append(query.get("q", ""))
        wanted = dict(word.replace('"', "").split(":", 1) for word in words if ":" in word and "repo:" not in word)
        repos = [word[5:].casefold() for word in words if word.startswith("repo:")]
        found = []
        for name, repo in self.state.repos.items():
            of_owner = wanted.get("user", repo.owner).casefold() == repo.owner.casefold()
            if (repos and name not in repos) or not of_owner or (wanted.get("archived") == "false" and repo.archived):
                continue
            for issue in repo.issues.values():
                labels = [one.casefold() for one in issue["labels"]]
                if (
                    wanted.get("label", "").casefold() in ["", *labels]
                    and wanted.get("assignee") in [None, *issue["assignees"]]
                    and wanted.get("state", issue["state"]) == issue["state"]
                ):
                    found.append(self.state.show_issue(repo, issue, "issue-search-result-item"))
        items, more = self._page(path, query, found)
        data = {"total_count": len(found), "incomplete_results": False, "items": items, "search_type": "lexical"}
        return 200, data, more

    def _page(self, path, query, items):
        """(the items of the page, the Link header, which contains `/repositories/{id}/…` as on GitHub)."""
        size = min(int(query.get("per_page", 30)), self.page_limit)
        page = int(query.get("page", 1))
        last = max(1, -(-len(items) // size))
        match = re.fullmatch(r"/repos/([^/]+)/([^/]+)(/.*)", path)
        if match:
            path = f"/repositories/{self.state.repos[f'{match[1]}/{match[2]}'.casefold()].id}{match[3]}"
        links = []
        for name, number in (("prev", page - 1), ("next", page + 1), ("last", last), ("first", 1)):
            beyond = (name in ("next", "last") and page >= last) or (name in ("prev", "first") and page == 1)
            if not beyond:
                url = f"{self.base}{path}?{urlencode(query | {'page': number})}"
                links.append(f'<{url}>; rel="{name}"')
        return items[(page - 1) * size : page * size], {"Link": ", ".join(links)} if links else {}

    def _find(self, repo, number, verb="GET", rest=""):
        if not repo.has_issues:
            raise Refused(410, "Issues has been disabled in this repository.")
        number = int(number)
        if number in repo.moved:
            other, there = repo.moved[number]
            self._redirect(verb, f"/repositories/{other.id}/issues/{there}{rest}", "")
        if number in repo.deleted:
            raise Refused(410, "This issue was deleted")
        if number not in repo.issues:
            raise missing()
        return repo.issues[number]

    def _find_pull(self, repo, number):
        issue = repo.issues.get(int(number))
        if issue is None or not issue["pull"]:
            raise missing()
        return issue

    # --- handlers: (repo, path parts, query, body, login, path) → (status, data, headers) ------------------------

    def _get_repo(self, repo, _parts, _query, _body, _login, _path):
        return 200, self.state.show_repo(repo), {}

    def _list_activity(self, repo, _parts, query, _body, _login, path):
        """docs.github.com, REST, "List repository activities": newest first, pages by cursor."""
        if unknown := set(query) - {"direction", "per_page", "before", "after", "ref", "actor", "time_period"}:
            raise Refused(422, f"{sorted(unknown)} is not known to this test server", [])
        found = [one for one in repo.pushes if query.get("ref", one["ref"]) == one["ref"]]
        found.sort(key=lambda one: (one["timestamp"], one["id"]), reverse=query.get("direction", "desc") == "desc")
        start, size = int(query.get("after", 0)), min(int(query.get("per_page", 30)), self.page_limit)
        more = {}
        if start + size < len(found):
            url = f"{self.base}/repositories/{repo.id}/activity?{urlencode(query | {'after': start + size})}"
            more = {"Link": f'<{url}>; rel="next"'}
        shown = [one | {"actor": self.state.user(one["actor"])} for one in found[start : start + size]]
        return 200, shown, more

    def _permission(self, repo, parts, _query, _body, _login, _path):
        from forges.github_shapes import make

        name = next((one for one in repo.people if one.casefold() == parts[0].casefold()), None)
        if name is None:
            raise missing()
        role = repo.people[name]
        old = {"maintain": "write", "triage": "read"}.get(role, role)
        user = self.state.user(name, "nullable-collaborator")
        return 200, make("repository-collaborator-permission", permission=old, role_name=role, user=user), {}

    routes = (
        ("GET", "", _get_repo),
        ("GET", "/activity", _list_activity),
        ("GET", r"/collaborators/([^/]+)/permission", _permission),
        *IssueRoutes.issue_routes,
        *PullRoutes.pull_routes,
        *CheckRoutes.check_routes,
        *TalkRoutes.talk_routes,
        *GitRoutes.git_routes,
    )


def now_at(seconds):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
