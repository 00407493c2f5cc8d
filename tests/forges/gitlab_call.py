"""One request to our loopback GitLab: the shapes of its answers, and what every request needs."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from forges.gitlab_errors import Refused, forbidden, missing
from forges.gitlab_lifecycle import is_draft


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
            "closed_at": item.get("closed_at") if item["state"] == "closed" else None,
            "closed_by": self.basic(item["closed_by"]) if item.get("closed_by") else None,
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
            draft = is_draft(item)
            merger = item.get("merge_user")
            return shown | {
                "source_branch": item["source_branch"],
                "target_branch": item["target_branch"],
                "source_project_id": item["source_project_id"],
                "target_project_id": project["id"],
                "reviewers": [self.basic(self.server.users[number]) for number in item["reviewers"]],
                "draft": draft,
                "work_in_progress": draft,
                "merged_at": item.get("merged_at") if item["state"] == "merged" else None,
                "merge_user": self.basic(merger) if merger else None,
                "merged_by": self.basic(merger) if merger else None,
                "merge_when_pipeline_succeeds": "auto_merge" in item and item["state"] == "opened",
                "sha": item["sha"],
                "merge_status": "unchecked",
                "detailed_merge_status": "unchecked",
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
            by = note.get("resolver")
            shown |= {"resolved": note.get("resolved", False), "resolved_by": self.basic(by) if by else None}
            shown["resolved_at"] = note["updated_at"] if by else None
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
