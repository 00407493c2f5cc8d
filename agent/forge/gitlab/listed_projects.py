"""Finds which of the projects that a section of the settings lists can have tasks, and why the others cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable, IssueUnreadable
from agent.forge.gitlab.projects import DEVELOPER
from agent.forge.host_client import QUICK
from agent.forge.unanswered_lists import postponed
from agent.observe.error_tolerant_loop import IN_A_ROW

if TYPE_CHECKING:
    from agent.forge.gitlab.projects import Project, Projects
    from agent.forge.unanswered_lists import UnansweredLists
    from agent.values import TaskKey


class ListedProjects:
    """The projects that a section of the settings lists (`projects`), each by its path or its number; `owner` is the
    setting `owner` of the same section. `told`: the texts of the refusals that were reported; `served` does not report
    the same text again."""

    def __init__(
        self,
        projects: tuple[str, ...],
        owner: str | None,
        places: Projects,
        unanswered: UnansweredLists,
        told: set[str],
    ) -> None:
        self.projects = projects
        self.owner = owner
        self.places = places
        self.unanswered = unanswered
        self.told = told
        self._problems: list[ForgeError] = []

    def may_cover(self, key: TaskKey) -> bool:
        """Whether this section of the settings covers the project of a task key, given that the key belongs to this
        GitLab host."""
        name = f"{key.owner}/{key.repo}".casefold()
        if self.projects:
            return any(name == self.name(one).casefold() for one in self.projects)
        return self.owner is None or name.startswith(f"{self.owner}/".casefold())

    def served(self) -> list[tuple[str, Project]]:
        """(path as in task keys, project) of each listed project that can have tasks. For each other listed project a
        problem is stored (`take_problems`); a refusal that was reported before is not stored again.

        Raises ForgeUnreachable when GitLab as a whole does not answer, or the last error when no listed project can
        have tasks and at least one could not be read.
        """
        found: list[tuple[str, Project]] = []
        refused: ForgeError | None = None
        in_a_row = 0
        due, later = self.unanswered.in_order(self.projects, str)
        if later:
            self._problems.append(postponed(later))
        for one in due:
            try:
                project = self.places.project(one, patience=QUICK)
                self.unanswered.note(one, None)
                in_a_row = 0
                if (why := _unfit(project)) is not None:
                    raise IssueUnreadable(f"{project.full_name}: {why}")  # noqa: TRY301
            except ForgeUnreachable as error:
                in_a_row += 1
                if in_a_row >= IN_A_ROW:
                    if self.unanswered.is_away():
                        raise
                    in_a_row = 0
                self.unanswered.note(one, error)
                self._problems.append(error)
                refused = error
                continue
            except (IssueUnreadable, ForgeRefused, ForgeAccessRefused) as error:
                if (said := f"{one}: {error}" if one not in str(error) else str(error)) not in self.told:
                    self.told.add(said)
                    self._problems.append(IssueUnreadable(said))
                refused = error if not isinstance(error, IssueUnreadable) else refused
                continue
            found.append((project.full_name if one.isdigit() else one, project))
        if refused is not None and not found:  # no project can have tasks, and at least one could not be read
            raise refused
        return found

    def take_problems(self) -> tuple[ForgeError, ...]:
        """The problems that `served` found since the last call of this method: IssueUnreadable for a project that
        cannot have tasks or that GitLab refuses to show, ForgeUnreachable for projects for which GitLab did not answer
        now, and for those that only a later poll reads because GitLab did not answer for them before."""
        problems, self._problems = tuple(self._problems), []
        return problems

    def name(self, one: str) -> str:
        """The path of a project that the section lists; if the section lists the project by its number, the path is
        requested from GitLab; "" if GitLab does not report it."""
        if not one.isdigit():
            return one
        try:
            return self.places.project(one, patience=QUICK).full_name
        except ForgeError:
            return ""


def _unfit(project: Project) -> str | None:
    """The reason why no task can be done in a project (None if tasks are possible)."""
    if project.archived:
        return "it is archived, so nothing can be asked for there"
    if not (project.has_issues or project.has_merges):
        return "its issues and merge requests are switched off, so nothing can be asked for there"
    # the role 0 means that GitLab's answer contains no role; the account may inherit its role from a higher group
    if 0 < project.access < DEVELOPER:
        return "the account of the token has less than Developer access there and can push nothing; make it Developer"
    return None
