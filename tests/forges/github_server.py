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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from agent import clock
from forges.faults import Fault, answer_git, take
from forges.front import hand_on
from forges.github_state import State, now

MAX_BODY = 65_536
DOCS = "https://docs.github.com/rest"


class Refused(Exception):
    """An error answer."""

    def __init__(self, status, message, errors=None, headers=()):
        self.status = status
        self.body = {"message": message, "documentation_url": DOCS}
        if status < 500 and status != 422:
            self.body["status"] = str(status)
        if errors is not None:
            self.body["errors"] = errors
        self.headers = dict(headers)


def missing():
    return Refused(404, "Not Found")


def invalid(resource, field, code="invalid", message=None):
    error = {"resource": resource, "field": field, "code": code} | ({"message": message} if message else {})
    return Refused(422, "Validation Failed", [error])


class GitHubServer:
    """Use as a context manager.  `state` is its data, `journal` the requests so far: (verb, path, status)."""

    def __init__(self, own="makimono"):
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.http.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.http.server_port}"
        self.state = State(self.base)
        self.git = None  # address of the git server for `owner/name.git`, behind this server's own address
        self.tokens = {"ghp_" + "t" * 36: own}  # token → login
        self.expires = {}  # token → Unix seconds
        self.permissions = {"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}
        self.apps = {}  # app id → (public key PEM, slug, {installation id: account})
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
        if path == "/graphql" and verb == "POST":
            return 200, self._graphql(body), {}
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

    def _graphql(self, body):
        if body["query"].startswith("query "):
            return self._edited(body)
        found = re.fullmatch(
            r"mutation Do\(\$input: (\w+)Input!\) \{ (\w+)\(input: \$input\) \{ pullRequest \{ isDraft \} \} \}",
            body["query"],
        )
        drafts = {"markPullRequestReadyForReview": False, "convertPullRequestToDraft": True}
        if not found or found[2] not in drafts or found[1] != found[2][0].upper() + found[2][1:]:
            return {"errors": [{"message": "Parse error"}]}
        node = body["variables"]["input"]["pullRequestId"]
        for repo in self.state.repos.values():
            for issue in repo.issues.values():
                if issue["pull"] and node == f"PR_{issue['id']}":
                    issue["pull"]["draft"] = drafts[found[2]]
                    issue["updated_at"] = now()
                    return {"data": {found[2]: {"pullRequest": {"isDraft": issue["pull"]["draft"]}}}}
        error = {"type": "NOT_FOUND", "message": f"Could not resolve to a node with the global id of '{node}'"}
        return {"data": {found[2]: None}, "errors": [error]}

    def _edited(self, body):
        """Time and author of the last edit of an issue's text."""
        fields = r"\{ lastEditedAt editor \{ login type: __typename \} \}"
        found = re.fullmatch(
            r"query \w+\(\$owner: String!, \$name: String!, \$number: Int!\) \{ "
            r"repository\(owner: \$owner, name: \$name\) \{ issueOrPullRequest\(number: \$number\) \{ "
            rf"\.\.\. on Issue {fields} \.\.\. on PullRequest {fields} \}} \}} \}}",
            " ".join(body["query"].split()),
        )
        if not found:
            return {"errors": [{"message": "Parse error"}]}
        wanted = body["variables"]
        repo = self.state.repos.get(f"{wanted['owner']}/{wanted['name']}".casefold())
        issue = repo.issues.get(wanted["number"]) if repo is not None else None
        if issue is None:
            error = {"type": "NOT_FOUND", "message": "Could not resolve to an issue or pull request"}
            return {"data": {"repository": None}, "errors": [error]}
        who = issue.get("editor")
        editor = (
            None if who is None else {"login": who.removesuffix("[bot]"), "type": "Bot" if "[bot]" in who else "User"}
        )
        return {
            "data": {"repository": {"issueOrPullRequest": {"lastEditedAt": issue.get("edited_at"), "editor": editor}}}
        }

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

    def _list_issues(self, repo, _parts, query, _body, _login, path):
        if not repo.has_issues:
            raise Refused(410, "Issues has been disabled in this repository.")
        wanted = [one.casefold() for one in query.get("labels", "").split(",") if one]
        found = [
            issue
            for issue in repo.issues.values()
            if query.get("state", "open") in (issue["state"], "all")
            and set(wanted) <= {one.casefold() for one in issue["labels"]}
            and query.get("assignee") in [None, *issue["assignees"]]
            and issue["updated_at"] >= query.get("since", "")
        ]
        order = "updated_at" if query.get("sort") == "updated" else "number"
        found.sort(key=lambda issue: (issue[order], issue["number"]), reverse=query.get("direction", "desc") == "desc")
        items, more = self._page(path, query, found)
        return 200, [self.state.show_issue(repo, issue) for issue in items], more

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

    def _open_issue(self, repo, _parts, _query, body, login, _path):
        if not repo.has_issues:
            raise Refused(410, "Issues has been disabled in this repository.")
        if not body.get("title"):
            raise invalid("Issue", "title", "missing_field")
        may_label = repo.people.get(login) in ("admin", "maintain", "write", "triage")  # labels of others are dropped
        labels = body.get("labels", ()) if may_label else ()
        return 201, self.state.show_issue(repo, repo.issue(body["title"], body.get("body"), login, labels)), {}

    def _get_issue(self, repo, parts, _query, _body, _login, _path):
        return 200, self.state.show_issue(repo, self._find(repo, parts[0])), {}

    def _list_labels(self, repo, parts, _query, _body, _login, _path):
        return 200, [self.state.show_label(repo, name) for name in self._find(repo, parts[0])["labels"]], {}

    def _add_labels(self, repo, parts, _query, body, login, _path):
        issue = self._find(repo, parts[0], "POST", "/labels")
        for name in body["labels"]:
            if len(name) > 50:
                raise invalid("Label", "name")
            repo.put_label(issue, name, login)
        return 200, [self.state.show_label(repo, name) for name in issue["labels"]], {}

    def _drop_label(self, repo, parts, _query, _body, login, _path):
        issue = self._find(repo, parts[0], "DELETE", f"/labels/{parts[1]}")
        if not repo.drop_label(issue, parts[1], login):
            raise Refused(404, "Label does not exist")
        return 200, [self.state.show_label(repo, name) for name in issue["labels"]], {}

    def _get_label(self, repo, parts, _query, _body, _login, _path):
        if parts[0].casefold() not in repo.labels:
            raise missing()
        return 200, self.state.show_label(repo, parts[0]), {}

    def _all_labels(self, repo, _parts, query, _body, _login, path):
        names = sorted(label["name"] for label in repo.labels.values())
        items, more = self._page(path, query, names)
        return 200, [self.state.show_label(repo, name) for name in items], more

    def _make_label(self, repo, _parts, _query, body, _login, _path):
        if body["name"].casefold() in repo.labels:
            raise invalid("Label", "name", "already_exists")
        if not re.fullmatch(r"[0-9a-f]{6}", body.get("color", "ededed")):
            raise invalid("Label", "color")
        repo.label(body["name"], body.get("color", "ededed"), body.get("description"))
        return 201, self.state.show_label(repo, body["name"]), {}

    def _list_events(self, repo, parts, query, _body, _login, path):
        items, more = self._page(path, query, self._find(repo, parts[0])["events"])
        return 200, [self.state.show_event(repo, one) for one in items], more

    def _list_comments(self, repo, parts, query, _body, _login, path):
        number = self._find(repo, parts[0])["number"]
        found = [one for one in repo.comments.values() if one["issue"] == number]
        found = [one for one in found if one["updated_at"] >= query.get("since", "")]
        items, more = self._page(path, query, found)
        return 200, [self.state.show_comment(repo, one) for one in items], more

    def _add_comment(self, repo, parts, _query, body, login, _path):
        number = self._find(repo, parts[0], "POST", "/comments")["number"]
        self._check_body(body)
        return 201, self.state.show_comment(repo, repo.comment(number, body["body"], login)), {}

    def _check_body(self, body):
        if not (body.get("body") or "").strip():
            raise invalid("IssueComment", "body", "missing_field")
        if len(body["body"]) > MAX_BODY:
            said = f"Body is too long (maximum is {MAX_BODY} characters)"
            raise invalid("IssueComment", "data", "unprocessable", said)

    def _get_comment(self, repo, parts, _query, _body, _login, _path):
        if int(parts[0]) not in repo.comments:
            raise missing()
        return 200, self.state.show_comment(repo, repo.comments[int(parts[0])]), {}

    def _edit_comment(self, repo, parts, _query, body, _login, _path):
        if int(parts[0]) not in repo.comments:
            raise missing()
        self._check_body(body)
        repo.comments[int(parts[0])] |= {"body": body["body"], "updated_at": now()}
        return 200, self.state.show_comment(repo, repo.comments[int(parts[0])]), {}

    def _remove_comment(self, repo, parts, _query, _body, login, _path):
        comment = repo.comments.get(int(parts[0]))
        if comment is None:
            raise missing()
        if comment["user"] != login and repo.people.get(login) not in ("admin", "maintain", "write"):
            raise Refused(403, "Must have admin rights to Repository.")
        del repo.comments[int(parts[0])]
        return 204, None, {}

    def _permission(self, repo, parts, _query, _body, _login, _path):
        from forges.github_shapes import make

        name = next((one for one in repo.people if one.casefold() == parts[0].casefold()), None)
        if name is None:
            raise missing()
        role = repo.people[name]
        old = {"maintain": "write", "triage": "read"}.get(role, role)
        user = self.state.user(name, "nullable-collaborator")
        return 200, make("repository-collaborator-permission", permission=old, role_name=role, user=user), {}

    def _list_pulls(self, repo, _parts, query, _body, _login, path):
        found = [issue for issue in repo.issues.values() if issue["pull"]]
        if "head" in query:
            found = [
                one
                for one in found
                if f"{(one['pull']['fork'] or repo).owner}:{one['pull']['head']}".casefold() == query["head"].casefold()
            ]
        found = [one for one in found if query.get("state", "open") in (one["state"], "all")]
        found.sort(key=lambda issue: issue["number"], reverse=query.get("direction", "desc") == "desc")
        items, more = self._page(path, query, found)
        return 200, [self.state.show_pull(repo, one, "pull-request-simple") for one in items], more

    def _open_pull(self, repo, _parts, _query, body, login, _path):
        head, base = body["head"].removeprefix(f"{repo.owner}:"), body["base"]
        for name, branch in (("base", base), ("head", head)):
            if not repo.has_branch(branch):
                raise invalid("PullRequest", name)
        if body.get("draft") and not repo.drafts:
            raise Refused(422, "Draft pull requests are not supported in this repository.", [])
        for issue in repo.issues.values():
            if issue["pull"] and issue["state"] == "open" and issue["pull"]["head"] == head:
                said = f"A pull request already exists for {repo.owner}:{head}."
                raise Refused(
                    422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": said}]
                )
        draft, sha = bool(body.get("draft")), repo.commit_of(head)
        issue = repo.pull(body["title"], body.get("body"), login, head, base, draft, sha=sha)
        return 201, self.state.show_pull(repo, issue), {}

    def _get_pull(self, repo, parts, _query, _body, _login, _path):
        return 200, self.state.show_pull(repo, self._find_pull(repo, parts[0])), {}

    def _edit_pull(self, repo, parts, _query, body, _login, _path):
        issue = self._find_pull(repo, parts[0])
        if "state" in body and issue["pull"]["merged_at"]:
            raise invalid("PullRequest", "state")
        issue.update({key: body[key] for key in ("title", "body", "state") if key in body}, updated_at=now())
        return 200, self.state.show_pull(repo, issue), {}

    def _list_review_comments(self, repo, parts, query, _body, _login, path):
        number = self._find_pull(repo, parts[0])["number"]
        found = [one for one in repo.review_comments.values() if one["pull"] == number]
        found = [one for one in found if one["updated_at"] >= query.get("since", "")]
        items, more = self._page(path, query, found)
        return 200, [self.state.show_review_comment(repo, one) for one in items], more

    def _list_reviews(self, repo, parts, query, _body, _login, path):
        number = self._find_pull(repo, parts[0])["number"]
        items, more = self._page(path, query, [one for one in repo.reviews.values() if one["pull"] == number])
        return 200, [self.state.show_review(repo, one) for one in items], more

    def _request_review(self, repo, parts, _query, body, _login, _path):
        issue = self._find_pull(repo, parts[0])
        for name in body["reviewers"]:
            if name == issue["user"]:
                raise Refused(422, "Review cannot be requested from pull request author.", [])
            if name not in repo.people:
                said = "Reviews may only be requested from collaborators."
                raise Refused(422, said, [])
        issue["reviewers"] = sorted({*issue.get("reviewers", ()), *body["reviewers"]})
        return 201, self.state.show_pull(repo, issue, "pull-request-simple"), {}

    routes = (
        ("POST", r"/pulls/(\d+)/requested_reviewers", _request_review),
        ("GET", "", _get_repo),
        ("GET", "/activity", _list_activity),
        ("GET", "/issues", _list_issues),
        ("POST", "/issues", _open_issue),
        ("GET", r"/issues/(\d+)", _get_issue),
        ("GET", r"/issues/(\d+)/labels", _list_labels),
        ("POST", r"/issues/(\d+)/labels", _add_labels),
        ("DELETE", r"/issues/(\d+)/labels/([^/]+)", _drop_label),
        ("GET", r"/issues/(\d+)/events", _list_events),
        ("GET", r"/issues/(\d+)/comments", _list_comments),
        ("POST", r"/issues/(\d+)/comments", _add_comment),
        ("GET", r"/issues/comments/(\d+)", _get_comment),
        ("PATCH", r"/issues/comments/(\d+)", _edit_comment),
        ("DELETE", r"/issues/comments/(\d+)", _remove_comment),
        ("GET", r"/labels/([^/]+)", _get_label),
        ("GET", "/labels", _all_labels),
        ("POST", "/labels", _make_label),
        ("GET", r"/collaborators/([^/]+)/permission", _permission),
        ("GET", "/pulls", _list_pulls),
        ("POST", "/pulls", _open_pull),
        ("GET", r"/pulls/(\d+)", _get_pull),
        ("PATCH", r"/pulls/(\d+)", _edit_pull),
        ("GET", r"/pulls/(\d+)/comments", _list_review_comments),
        ("GET", r"/pulls/(\d+)/reviews", _list_reviews),
    )


def now_at(seconds):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _handler(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # one write per answer: no wait for delayed ACKs

        def handle_any(self):
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            if server.git is not None and ".git/" in self.path:
                with server.state.lock:
                    fault = take(server.faults, self.command, self.path, len(raw), git=True)
                if fault is not None:
                    answer_git(self, fault)
                else:
                    hand_on(self, server.git, self.path, raw)  # one address for both
                return
            text = raw.decode()
            answer = server.answer(self.command, self.path, self.headers, text)
            if answer is None:
                self.close_connection = True
                return
            status, headers, body = answer
            data = body if isinstance(body, bytes) else body.encode()
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json; charset=utf-8"} | headers).items():
                if status not in (204, 304) or name != "Content-Type":
                    self.send_header(name, value)
            if status not in (204, 304):
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if status not in (204, 304):
                self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815 - names of the base class

        def date_time_string(self, timestamp=None):
            from email.utils import format_datetime

            return format_datetime(clock.now(), usegmt=True)

        def log_message(self, *_):
            pass

    return Handler
