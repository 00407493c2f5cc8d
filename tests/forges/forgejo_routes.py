"""The handlers of our loopback Forgejo's API: (server, repository, path parts, query, body, login) → (status, data,
headers).  Each follows the function of the server's code that its table names (`routers/api/v1/repo/`, 11.0)."""

from __future__ import annotations

import json
from datetime import datetime

from forges.forgejo_document import make
from forges.forgejo_state import now, shown_time

NOBODY = "user does not exist [uid: 0, name: {}]"


class Refused(Exception):
    """An error answer; without a message it has no body, as `ctx.Status` of the server writes it."""

    def __init__(self, status, message=None, headers=()):
        self.status = status
        self.text = (
            "" if message is None else json.dumps({"message": message, "url": "https://forge.example.org/api/swagger"})
        )
        self.headers = dict(headers)


def missing():
    return Refused(404, "The target couldn't be found.")


def find_issue(repo, number, login):
    """An issue, or a pull request, that is shown to the account."""
    issue = repo.find(number)
    if issue is None or not (repo.has_pulls if issue["pull"] else repo.has_issues) or repo.level(login) == "none":
        raise missing()
    return issue


def find_pull(repo, number):
    issue = repo.find(number)
    if issue is None or not issue["pull"] or not repo.has_pulls:
        raise missing()
    return issue


def not_archived(repo):
    if repo.archived:
        raise Refused(423, f"<Repository {repo.id}:{repo.full_name}> is archived")  # api.go `mustNotBeArchived`


def must_write(repo, login):
    if not repo.writes(login):
        raise Refused(403)


def since_of(query):
    """services/context/utils.go `GetQueryBeforeSince`: a time that is no RFC 3339 is a 422."""
    text = query.get("since", "")
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Refused(422, f'parsing time "{text}"')
    return found


# --- the account and the server ---------------------------------------------------------------------------------


def get_user(server, _repo, _parts, _query, _body, login):
    return 200, server.shown.user(login), {}


def get_version(server, _repo, _parts, _query, _body, _login):
    return 200, make("ServerVersion", version=server.version), {}


def my_repos(server, _repo, _parts, query, _body, login):
    found = [repo for repo in server.state.repos.values() if not repo.gone and repo.writes(login)]
    items, more = server.page("/user/repos", query, found)
    return 200, [server.shown.repository(repo, login) for repo in items], more


def search_issues(server, _repo, _parts, query, _body, login):
    """issue.go `SearchIssues`: all repositories that the account sees; of several labels any, unknown ones count as
    none; an owner that does not exist is a 400."""
    owner = query.get("owner", "").casefold()
    repos = [repo for repo in server.state.repos.values() if not repo.gone and repo.level(login) != "none"]
    if owner and owner not in {repo.owner.casefold() for repo in server.state.repos.values()}:
        raise Refused(400, NOBODY.format(query["owner"]))
    repos = [repo for repo in repos if not owner or repo.owner.casefold() == owner]
    wanted = [name for name in query.get("labels", "").split(",") if name]
    known = {label["name"] for repo in server.state.repos.values() for label in all_labels(repo)}
    wanted = [name for name in wanted if name in known]
    found = []
    for repo in repos:
        for issue in repo.issues.values():
            if query.get("state", "open") not in (issue["state"], "all"):
                continue
            if wanted and not set(wanted) & set(repo.label_names(issue)):
                continue
            if query.get("assigned") == "true" and login not in issue["assignees"]:
                continue
            found.append((repo, issue))
    found.sort(key=lambda one: one[1]["id"], reverse=True)
    items, more = server.page("/repos/issues/search", query, found)
    return 200, [server.shown.issue(repo, issue) for repo, issue in items], more


def all_labels(repo):
    return [*repo.labels.values(), *repo.org_labels.values()]


def get_account(server, _repo, parts, _query, _body, login):
    """user.go `GetInfo`, services/convert/user.go `toUser`: without a login the no-reply address, to the account itself
    its private one."""
    name = next((one for one in (*server.state.users, server.own) if one.casefold() == parts[0].casefold()), None)
    if name is None:
        raise missing()
    mail = f"{name.lower()}@{server.no_reply}" if login is None else f"{name}@private.example"
    return 200, server.shown.user(name) | {"email": mail, "full_name": server.full_names.get(name, "")}, {}


# --- the repository, and people -----------------------------------------------------------------------------------


def get_repo(server, repo, _parts, _query, _body, login):
    return 200, server.shown.repository(repo, login), {}


def get_permission(server, repo, parts, _query, _body, login):
    """collaborators.go `GetRepoPermissions`: an administrator asks for everybody, others for themselves."""
    if parts[0] not in server.state.users:
        raise Refused(404, NOBODY.format(parts[0]))
    if parts[0] != login and repo.level(login) not in ("admin", "owner"):
        raise Refused(403, "Only admins can query all permissions, repo admins can query all repo permissions")
    level = repo.level(parts[0])
    shown = {"permission": level, "role_name": level, "user": server.shown.user(parts[0])}
    return 200, make("RepoCollaboratorPermission", **shown), {}


def get_assignees(server, repo, _parts, _query, _body, _login):
    return 200, [server.shown.user(name) for name in repo.assignees()], {}


def get_teams(server, repo, _parts, _query, _body, _login):
    """teams.go `ListTeams`."""
    if not repo.is_org:
        raise Refused(405, "repo is not owned by an organization")
    return 200, [server.shown.team(team) for team in repo.teams], {}


def get_status(server, repo, parts, query, _body, login):
    """routers/api/v1/repo/status.go: the newest status of each context, by pages and without `Link`; state and number
    are those of the page (services/convert/status.go)."""
    sha = parts[0] if len(parts[0]) == 40 else repo.commit_of(parts[0])
    newest = {one["context"]: one for one in repo.statuses.get(sha, [])}
    found, headers = server.page("", query, list(newest.values()), link=False)
    order = ("error", "failure", "warning", "pending", "success")
    state = min((one["status"] for one in found), key=order.index, default="")
    statuses = [make("CommitStatus", **one) for one in found]
    shown = {"sha": sha, "state": state, "statuses": statuses, "total_count": len(statuses)}
    return 200, make("CombinedStatus", **shown, repository=server.shown.repository(repo, login)), headers


# --- labels -----------------------------------------------------------------------------------------------------


def list_labels(server, repo, _parts, query, _body, _login):
    """label.go `ListLabels`: those of the repository only, by name."""
    found = sorted(repo.labels.values(), key=lambda one: (one["name"].lower(), one["id"]))
    items, more = server.page("", query, found, link=False)
    return 200, [server.shown.label(one) for one in items], more


def make_label(server, repo, _parts, _query, body, login):
    """label.go `CreateLabel`: a second label of one name is made like the first."""
    must_write(repo, login)
    color = body["color"].removeprefix("#")
    if len(color) not in (3, 6) or any(one not in "0123456789abcdefABCDEF" for one in color):
        raise Refused(422, f"invalid color: {body['color']}")
    made = repo.label(body["name"], color.lower(), body.get("description", ""), bool(body.get("exclusive")))
    return 201, server.shown.label(made), {}


def issue_labels(server, repo, parts, _query, _body, login):
    return 200, server.shown.labels(repo, find_issue(repo, parts[0], login)), {}


def add_labels(server, repo, parts, _query, body, login):
    """issue_label.go `AddIssueLabels`: labels by name or by number, not mixed; unknown ones are left out silently."""
    issue = find_issue(repo, parts[0], login)
    kinds = {type(one) for one in body["labels"]}
    if not kinds <= {str, int} or len(kinds) > 1:
        raise Refused(400, "labels should be an array of strings or integers")
    must_write(repo, login)
    for one in body["labels"]:
        found = [repo.any_label(one)] if kinds == {int} else [x for x in all_labels(repo) if x["name"] == one]
        for label in found:
            if label is not None:
                repo.put_label(issue, label, login)
    return 200, server.shown.labels(repo, issue), {}


def drop_label(server, repo, parts, _query, _body, login):
    """issue_label.go `DeleteIssueLabel`: 204 also for a label that the issue does not have; 422 for no label at all."""
    issue = find_issue(repo, parts[0], login)
    must_write(repo, login)
    label = repo.any_label(int(parts[1])) if parts[1].isdigit() else None
    if label is None:
        raise Refused(422, f"label does not exist [label_id: {parts[1]}]")
    repo.drop_label(issue, label, login)
    return 204, None, {}


# --- issues -----------------------------------------------------------------------------------------------------


def list_issues(server, repo, _parts, query, _body, _login):
    """issue.go `ListIssues`: labels of the repository only; unknown ones are discarded, and all of none are no filter;
    an unknown assignee is a 404."""
    if not (repo.has_issues or repo.has_pulls):
        raise missing()
    wanted = [name for name in query.get("labels", "").split(",") if name]
    wanted = {one["id"] for one in repo.labels.values() if one["name"] in wanted}
    assignee = query.get("assigned_by")
    if assignee and assignee not in server.state.users:
        raise missing()
    since, found = since_of(query), []
    for issue in repo.issues.values():
        kind = "pulls" if issue["pull"] else "issues"
        if query.get("type", kind) != kind or not (repo.has_pulls if issue["pull"] else repo.has_issues):
            continue
        if query.get("state", "open") not in (issue["state"], "all") or not wanted <= set(issue["labels"]):
            continue
        if assignee and assignee not in issue["assignees"]:
            continue
        if since is None or issue["updated_at"] >= since:
            found.append(issue)
    found.sort(key=lambda one: one["number"], reverse=query.get("sort") != "oldest")
    items, more = server.page(f"/repos/{repo.full_name}/issues", query, found)
    return 200, [server.shown.issue(repo, one) for one in items], more


def make_issue(server, repo, _parts, _query, body, login):
    """issue.go `CreateIssue`: everybody who may read makes one; labels count only of those who may write."""
    if not repo.has_issues or repo.level(login) == "none":
        raise missing()
    not_archived(repo)
    names = [label["name"] for label in all_labels(repo) if label["id"] in body.get("labels", ())]
    made = repo.issue(body["title"], body.get("body"), login, names if repo.writes(login) else ())
    return 201, server.shown.issue(repo, made), {}


def get_issue(server, repo, parts, _query, _body, login):
    return 200, server.shown.issue(repo, find_issue(repo, parts[0], login)), {}


def list_comments(server, repo, parts, query, _body, login):
    """issue_comment.go `ListIssueComments`: all of them at once, by time."""
    issue, since = find_issue(repo, parts[0], login), since_of(query)
    found = [one for one in issue["timeline"] if one["type"] == "comment"]
    found = [one for one in found if since is None or one["updated_at"] >= since]
    return 200, [server.shown.comment(repo, one) for one in found], {"X-Total-Count": str(len(found))}


def list_timeline(server, repo, parts, query, _body, login):
    """issue_comment.go `ListIssueCommentsAndTimeline`: comments on lines are left out after the page was cut."""
    issue, since = find_issue(repo, parts[0], login), since_of(query)
    found = [one for one in issue["timeline"] if since is None or one["updated_at"] >= since]
    if "page" in query:
        found, _ = server.page("", query, found, link=False)
    found = [one for one in found if one["type"] != "code"]
    return 200, [server.shown.event(repo, one) for one in found], {"X-Total-Count": str(len(found))}


def add_comment(server, repo, parts, _query, body, login):
    not_archived(repo)
    issue = find_issue(repo, parts[0], login)
    if issue["is_locked"] and not repo.writes(login):
        raise Refused(403, "You cannot comment on this locked issue.")
    if not body["body"].strip():
        raise Refused(422, "[Body]: Required")
    return 201, server.shown.comment(repo, repo.comment(issue["number"], body["body"], login)), {}


def the_comment(repo, number):
    if int(number) not in repo.comments:
        raise missing()
    return repo.comments[int(number)]


def get_comment(server, repo, parts, _query, _body, _login):
    return 200, server.shown.comment(repo, the_comment(repo, parts[0])), {}


def edit_comment(server, repo, parts, _query, body, login):
    """issue_comment.go `editIssueComment`: the author, and everybody who may write."""
    not_archived(repo)
    comment = the_comment(repo, parts[0])
    if comment["user"] != login:
        must_write(repo, login)
    repo.edit_comment(comment, body["body"])
    return 200, server.shown.comment(repo, comment), {}


def remove_comment(server, repo, parts, _query, _body, login):
    if the_comment(repo, parts[0])["user"] != login:
        must_write(repo, login)
    repo.remove_comment(int(parts[0]))
    return 204, None, {}


def add_reaction(server, repo, thing, body, login):
    """issue_reaction.go `changeIssueReaction`, `changeIssueCommentReaction`: a reaction that is there is a 200, one that
    `[ui] REACTIONS` does not have a 403."""
    if body.get("content") not in ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes"):
        raise Refused(403, f"'{body.get('content')}' is not an allowed reaction")
    found = thing.setdefault("reactions", [])
    is_new = (login, body["content"]) not in found
    found += [(login, body["content"])] if is_new else []
    user = server.shown.user(login)
    return (
        201 if is_new else 200,
        make("Reaction", content=body["content"], user=user, created_at=shown_time(now())),
        {},
    )


def react_to_issue(server, repo, parts, _query, body, login):
    return add_reaction(server, repo, find_issue(repo, parts[0], login), body, login)


def react_to_comment(server, repo, parts, _query, body, login):
    """The comments on lines of reviews are comments too (`GetCommentByID` knows every type)."""
    lines = {one["id"]: one for review in repo.reviews.values() for one in review["lines"]}
    thing = lines.get(int(parts[0])) or the_comment(repo, parts[0])
    return add_reaction(server, repo, thing, body, login)


# --- pull requests ----------------------------------------------------------------------------------------------


def list_pulls(server, repo, _parts, query, _body, login):
    """pull.go `ListPullRequests`: there is no filter by branch; an unknown poster is a 400."""
    if not repo.has_pulls:
        raise missing()
    poster = query.get("poster")
    if poster and poster not in server.state.users:
        raise Refused(400, NOBODY.format(poster))
    found = [one for one in repo.issues.values() if one["pull"] and query.get("state", "open") in (one["state"], "all")]
    found = [one for one in found if poster in (None, one["user"])]
    order = "updated_at" if query.get("sort") == "recentupdate" else "number"
    found.sort(key=lambda one: (one[order], one["number"]), reverse=query.get("sort") != "oldest")
    items, more = server.page(f"/repos/{repo.full_name}/pulls", query, found)
    return 200, [server.shown.pull(repo, one, login) for one in items], more


def open_pull(server, repo, _parts, _query, body, login):
    """pull.go `CreatePullRequest`: 422 for one branch twice, 404 for a branch that is not there, 409 for a second one
    of both branches; the draft is the title's matter.  An empty title is a 422 (modules/structs/pull.go)."""
    not_archived(repo)
    if not repo.has_pulls:
        raise missing()
    if not body["title"]:
        raise Refused(422, "[Title]: Required")
    head, base = body["head"], body["base"]
    if head == base:
        raise Refused(422, "Invalid PullRequest: There are no changes between the head and the base")
    for branch in (base, head):
        if not repo.has_branch(branch):
            raise missing()
    for one in repo.issues.values():
        pull = one["pull"]
        if pull and one["state"] == "open" and (pull["head"], pull["base"], pull["fork"]) == (head, base, None):
            said = f"pull request already exists for these targets [id: {one['id']}, head_branch: {head}]"
            raise Refused(409, said)
    made = repo.pull(body["title"], body.get("body"), login, head, base, sha=repo.commit_of(head))
    return 201, server.shown.pull(repo, made, login), {}


def get_pull(server, repo, parts, _query, _body, login):
    return 200, server.shown.pull(repo, find_pull(repo, parts[0]), login), {}


def edit_pull(server, repo, parts, _query, body, login):
    """pull.go `EditPullRequest`: the answer is a 201; the state of a merged one is a 412; an empty title is none."""
    issue = find_pull(repo, parts[0])
    if issue["user"] != login:
        must_write(repo, login)
    repo.edit(issue, login, body.get("title") or None, body.get("body"))
    if "state" in body:
        if issue["pull"]["merged_at"]:
            raise Refused(412, "cannot change state of this pull request, it was already merged")
        repo.set_state(issue, login, body["state"])
    return 201, server.shown.pull(repo, issue, login), {}


def list_reviews(server, repo, parts, query, _body, _login):
    number = find_pull(repo, parts[0])["number"]
    found = [one for one in repo.reviews.values() if one["pull"] == number and one["state"] != "PENDING"]
    items, more = server.page("", query, found, link=False)
    return 200, [server.shown.review(repo, one) for one in items], more


def review_comments(server, repo, parts, _query, _body, _login):
    find_pull(repo, parts[0])
    if int(parts[1]) not in repo.reviews:
        raise missing()
    return 200, [server.shown.review_comment(repo, one) for one in repo.reviews[int(parts[1])]["lines"]], {}


def request_review(server, repo, parts, _query, body, login):
    """pull_review.go `apiReviewRequest`, services/issue/assignee.go `IsValidReviewRequest`."""
    issue = find_pull(repo, parts[0])
    for name in body["reviewers"]:
        if name not in server.state.users:
            raise Refused(404, f"User '{name}' not exist")
        if name == issue["user"] or repo.level(name) == "none" or not repo.writes(login):
            why = "poster of pr can't be reviewer" if name == issue["user"] else "Doer can't choose reviewer"
            raise Refused(422, f"{why} [user_id: 1, repo_id: {repo.id}]")
    if issue["state"] != "open":
        raise Refused(403, "cannot request a review on a closed pull request")
    made = []
    for name in body["reviewers"]:
        if name not in issue["pull"]["reviewers"]:
            issue["pull"]["reviewers"].append(name)
            repo.event(issue, "review_request", login, assignee=name)
            made.append(make("PullReview", user=server.shown.user(name), state="REQUEST_REVIEW"))
    return 201, made, {}


def set_status(repo, commit, context, state, description=""):
    """A CI system reports on a commit."""
    made = {"id": next(repo.ids), "context": context, "status": state, "created_at": shown_time(now())}
    made["description"] = description
    repo.statuses.setdefault(commit, []).append(made)


ROUTES = (
    ("GET", "/user", False, "user", get_user),
    ("GET", "/version", False, None, get_version),
    ("GET", r"/users/([^/]+)", False, "user", get_account),
    ("GET", "/user/repos", False, "repository", my_repos),
    ("GET", "/repos/issues/search", False, "issue", search_issues),
    ("GET", "", True, "repository", get_repo),
    ("GET", "/assignees", True, "repository", get_assignees),
    ("GET", "/teams", True, "repository", get_teams),
    ("GET", r"/collaborators/([^/]+)/permission", True, "repository", get_permission),
    ("GET", r"/commits/([^/]+)/status", True, "repository", get_status),
    ("GET", "/labels", True, "issue", list_labels),
    ("POST", "/labels", True, "issue", make_label),
    ("GET", "/issues", True, "issue", list_issues),
    ("POST", "/issues", True, "issue", make_issue),
    ("GET", r"/issues/(\d+)", True, "issue", get_issue),
    ("GET", r"/issues/(\d+)/comments", True, "issue", list_comments),
    ("POST", r"/issues/(\d+)/comments", True, "issue", add_comment),
    ("GET", r"/issues/(\d+)/timeline", True, "issue", list_timeline),
    ("GET", r"/issues/(\d+)/labels", True, "issue", issue_labels),
    ("POST", r"/issues/(\d+)/labels", True, "issue", add_labels),
    ("DELETE", r"/issues/(\d+)/labels/([^/]+)", True, "issue", drop_label),
    ("GET", r"/issues/comments/(\d+)", True, "issue", get_comment),
    ("PATCH", r"/issues/comments/(\d+)", True, "issue", edit_comment),
    ("DELETE", r"/issues/comments/(\d+)", True, "issue", remove_comment),
    ("POST", r"/issues/(\d+)/reactions", True, "issue", react_to_issue),
    ("POST", r"/issues/comments/(\d+)/reactions", True, "issue", react_to_comment),
    ("GET", "/pulls", True, "repository", list_pulls),
    ("POST", "/pulls", True, "repository", open_pull),
    ("GET", r"/pulls/(\d+)", True, "repository", get_pull),
    ("PATCH", r"/pulls/(\d+)", True, "repository", edit_pull),
    ("GET", r"/pulls/(\d+)/reviews", True, "repository", list_reviews),
    ("GET", r"/pulls/(\d+)/reviews/(\d+)/comments", True, "repository", review_comments),
    ("POST", r"/pulls/(\d+)/requested_reviewers", True, "repository", request_review),
)
"""(verb, path below the repository or below the API, whether it is below a repository, category of the scope,
handler)."""
