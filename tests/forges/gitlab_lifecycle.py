"""What GitLab does by itself with merge requests and issues when branches move, pipelines end, or somebody merges.

- a merge into the default branch closes the issues that title, description and commit messages name with a closing word
  (docs.gitlab.com/user/project/issues/managing_issues/#closing-issues-automatically); so does a commit there
- a merge request whose head is in its target is merged, unless it never had a commit of its own; one whose source
  branch is removed is closed (gitlab-org/gitlab, app/services/merge_requests/refresh_service.rb,
  `post_merge_manually_merged`, which leaves out empty ones, and `close_upon_missing_source_branch_ref`)
- a merge that removes its branch retargets up to four merge requests onto that branch (docs.gitlab.com/user/project/
  merge_requests/#update-merge-requests-when-target-branch-merges)
- `detailed_merge_status` is `checking` until GitLab has tried the merge (docs.gitlab.com/api/merge_requests/#merge-status)
- auto-merge merges when the pipeline has succeeded and nothing else is in the way, a draft for one
  (docs.gitlab.com/user/project/merge_requests/auto_merge/)
"""

from __future__ import annotations

import re

from forges import git_repository
from forges.host_rules import gitlab_closes

MOST_RETARGETED = 4


def is_draft(item):
    return re.match(r"(draft:|\[draft\]|\(draft\))", item["title"], re.IGNORECASE) is not None


class Lifecycle:
    """A part of `gitlab_state.State`.  Without a repository in git only the calls of people have an effect."""

    # --- what people do ---------------------------------------------------------------------------------------

    def merge(self, item, commits=(), *, actor="alice"):
        """A person merges; returns the issues that the merge closes.  `commits` are messages.

        In git the branch is merged, unless the target has it already.
        """
        with self.lock:
            project, git = item["project"], item["project"].get("git")
            before = {one for one, issue in project["issues"].items() if issue["state"] == "opened"}
            source, target = item["source_branch"], item["target_branch"]
            if git is not None and not git_repository.contains(git, target, source):
                words = f"Merge branch '{source}' into '{target}'\n\n{item['title']}"
                assert git_repository.merge(git, target, source, words), "a conflict"
            self._merged(item, actor, commits)
            if item.get("removes_branch"):
                self._retarget(item)
                self.remove_branch(project, source)
            self.refresh(project)
            return {one for one in before if project["issues"][one]["state"] == "closed"}

    def auto_merge(self, item, actor):
        """A person lets GitLab merge when the pipeline has succeeded."""
        with self.lock:
            item["auto_merge"] = actor
            self.refresh(item["project"])

    def remove_branch(self, project, name):
        """A person removes a branch; merge requests onto it stay as they are."""
        with self.lock:
            project["branches"].discard(name)
            if "git" in project:
                git_repository.remove(project["git"], name)
            for item in project["merge_requests"].values():
                if item["state"] == "opened" and (item["source_branch"], item["source_project_id"]) == (
                    name,
                    project["id"],
                ):
                    self.close_item(item, "alice")
            self.refresh(project)

    def close_item(self, item, actor):
        """Somebody closes an issue or merge request."""
        with self.lock:
            if item["state"] == "opened":
                self._note(item, self.user(actor), "closed", system=True)
                item.update(state="closed", closed_at=item["updated_at"], closed_by=self.user(actor))

    def reopen_item(self, item, actor):
        with self.lock:
            self._note(item, self.user(actor), "reopened", system=True)
            item.update(state="opened", closed_at=None, closed_by=None)

    # --- what GitLab does by itself -----------------------------------------------------------------------------

    def _merged(self, item, actor, commits=()):
        project, host = item["project"], self.url.split("://", 1)[1]
        self._note(item, self.user(actor), "merged", system=True)
        item.update(state="merged", merged_at=item["updated_at"], merge_user=self.user(actor))
        if item["target_branch"] != project["default_branch"]:
            return
        for text in (item["title"], item["description"], *commits):
            self._close_named(project, gitlab_closes(text, host, project["path"]), actor)

    def _close_named(self, project, numbers, actor):
        for number in numbers:
            if number in project["issues"]:
                self.close_item(project["issues"][number], actor)

    def _retarget(self, merged):
        project = merged["project"]
        found = [
            one
            for one in project["merge_requests"].values()
            if one["state"] == "opened" and one["target_branch"] == merged["source_branch"]
        ]
        for item in found[:MOST_RETARGETED]:
            old, item["target_branch"] = item["target_branch"], merged["target_branch"]
            words = f"changed automatically target branch to `{item['target_branch']}` because `{old}` was deleted"
            self._note(item, merged["author"], words, system=True)

    def pipeline_changed(self, pipeline):
        """A job of a pipeline has changed."""
        self.refresh(pipeline["project"])

    def refresh(self, project, actor="alice"):
        """Act on what was pushed since the last call, and on pipelines that have ended."""
        if "git" not in project:
            return
        git, default = project["git"], project["default_branch"]
        tips, known = git_repository.branches(git), project.get("tips", {})
        if default in tips and known.get(default, tips[default]) != tips[default]:
            for message in git_repository.messages(git, known[default], tips[default]):
                numbers = gitlab_closes(message, self.url.split("://", 1)[1], project["path"])
                self._close_named(project, numbers, actor)
        project["tips"] = tips
        for item in list(project["merge_requests"].values()):
            if item["state"] == "opened" and item["source_project_id"] == project["id"]:
                self._refresh_item(item, tips, git, actor)

    def _refresh_item(self, item, tips, git, actor):
        tip, target = tips.get(item["source_branch"]), tips.get(item["target_branch"])
        if tip is None:
            if item.get("seen"):
                self.close_item(item, actor)
            return
        if item.get("seen") and item["sha"] != tip:
            self._note(item, self.user(actor), "added 1 commit", system=True)
            self._version(item, tip)
        item["sha"], item["seen"] = tip, True
        if target is None:
            return
        if git_repository.contains(git, target, tip):
            if not item.get("empty", True):
                self._merged(item, actor)
            return
        item["empty"] = False
        head = self.head_pipeline(item)
        green = head is None or self.pipeline_status(head) == "success"
        if item.get("auto_merge") and green and not is_draft(item) and git_repository.goes_together(git, target, tip):
            self.merge(item, actor=item["auto_merge"])

    def merge_status(self, item):
        """(`merge_status`, `detailed_merge_status`, `has_conflicts`)."""
        if item["state"] != "opened":
            return "can_be_merged", "not_open", False
        project = item["project"]
        if "git" not in project:
            return "unchecked", "unchecked", False
        tips = project.get("tips", {})
        pair = tips.get(item["target_branch"]), item["sha"]
        if None in pair or item.get("tried") != pair:
            item["tried"] = pair
            return "checking", "checking", False
        if not git_repository.goes_together(project["git"], *pair):
            return "cannot_be_merged", "conflict", True
        if is_draft(item):
            return "can_be_merged", "draft_status", False
        head = self.head_pipeline(item)
        running = head is not None and self.pipeline_status(head) in ("running", "pending", "created")
        return "can_be_merged", "ci_still_running" if running else "mergeable", False
