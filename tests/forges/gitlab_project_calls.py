"""People, projects and branches of our loopback GitLab."""

from __future__ import annotations

from forges.gitlab_call import Call
from forges.gitlab_errors import missing


class ProjectCalls(Call):
    """A part of `gitlab_routes.Routed`."""

    def version(self):
        return 200, {}, {"version": "18.6.0-ee", "revision": "0badcafe"}

    def me(self):
        # https://docs.gitlab.com/api/users/: the own account has `commit_email`
        chosen = {"commit_email": self.who["commit_email"]} if "commit_email" in self.who else {}
        return 200, {}, {**self.basic(self.who), "bot": self.who["bot"], **chosen}

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
