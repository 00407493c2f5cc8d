"""Asks the reviewers about finished work, before its pull request is marked as ready (`consensus.enabled`).

The reviewers are asked only about work that has no other problem (check, scan for secrets, path policy), so no vote
outweighs such a problem.  A task without `consensus.enabled` does not import this module.

Each commit is reviewed once: after a crash the deliberation continues after the last recorded statement, and a recorded
decision is used again unless it is FAILED_SAFE. A replay uses the recorded decisions and sends no requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent import prompts
from agent.consensus import ConsensusEngine, ConsensusRequest, Decision
from agent.consensus.change import code_around, diff_of, rules_of
from agent.consensus.decision import ConsensusDecision
from agent.consensus.errors import ConsensusError
from agent.consensus.material import SAFETY, Material
from agent.consensus.record import DeliberationRecord, decisions_of
from agent.consensus.reviewers import open_reviewers
from agent.context.deliberations import DeliberationStore
from agent.errors import ConfigError, ModelError
from agent.llm.base import Interrupted
from agent.security.sanitise import clean
from agent.values import End
from agent.work import changes
from agent.worker.reviewer_conditions import conditions_so_far

if TYPE_CHECKING:
    from agent.forge.base import IssueText
    from agent.values import Json
    from agent.work.workspace import Workspace
    from agent.worker.delivery_report import Report
    from agent.worker.task_run import TaskRun

NAMED = 50
"""The maximum number of changed tests, and of notices, that the reviewers get."""
QUESTION = "Is this change right, harmless and complete enough to be merged?"
MET = "Reviewers set these conditions for an earlier version of the change. Check for each whether it is met:"


def reviewed(run: TaskRun, issue: IssueText, workspace: Workspace, report: Report, sandbox: str) -> Report:
    """The report of the delivery, completed with the reviewers' decision about its commit; `sandbox` is the kind of the
    sandbox in which the verify command ran.

    Raises Interrupted if the task is stopped; also raises DiskError and Fenced.
    """
    store = run.context.store(DeliberationStore)
    earlier = conditions_so_far(run.context.get_message_store())
    if not run.publishing:
        recorded = decisions_of(store)
        found = recorded[min(len(earlier), len(recorded) - 1)] if recorded else None
    else:
        record = DeliberationRecord.open(store, report.commit or "")
        found = record.decision()
        if found is None or found["decision"] == Decision.FAILED_SAFE:
            isolation = sandbox if report.verdict is not None else ""
            conditions = [one for told in earlier for one in told]
            found = _deliberate(run, issue, workspace, report, record, conditions, isolation)
    if found is None:
        return report
    met = [one for told in earlier for one in told] if found["decision"] == Decision.APPROVED else []
    return replace(report, review={**found, "met": met, "rounds": len(earlier)})


def _deliberate(
    run: TaskRun,
    issue: IssueText,
    workspace: Workspace,
    report: Report,
    record: DeliberationRecord,
    conditions: list[str],
    isolation: str,
) -> Json:
    """Ask the reviewers; returns the decision as JSON. An error or a limit of tokens or cost that prevents a vote gives
    FAILED_SAFE, because the work is finished and a person can decide about it."""
    run.check_held()
    if (over := run.limits.check_requests()) is not None:
        return _failed_review(over.summary)
    wiring = run.wiring
    own = _of_safety(decisions_of(record.store))
    try:
        material = replace(
            _material(issue, workspace, report),
            conditions=_condition_list(conditions),
            safety_conditions=_condition_list([one for one in conditions if one in own]),
        )
        with open_reviewers(
            run.settings,
            run.context.get_request_store(),
            control=run.control,
            events=run.events,
            gate=run.limits.check_requests,
            learnt=wiring.learnt,
            templates=prompts.accepted_names(),
        ) as reviewers:
            engine = ConsensusEngine(run.settings, reviewers, record=record, events=run.events)
            return engine.execute(ConsensusRequest(QUESTION, material=material, isolation=isolation)).to_dict()
    except (ConfigError, ModelError, ConsensusError) as error:
        return _failed_review(f"the reviewers could not be asked: {error}")
    except Interrupted as stop:
        if stop.outcome.end is not End.LIMIT or run.control.outcome is not None:
            raise
        return _failed_review(stop.outcome.summary)
    finally:
        run.context.get_request_store().sync()


def _of_safety(decisions: list[Json]) -> set[str]:
    """The conditions that the safety reviewer has set so far, each on one line, as in the messages to the model."""
    votes = [one["votes"].get(SAFETY) for one in decisions]
    return {" ".join(text.split()) for vote in votes if vote is not None for text in vote["conditions"]}


def _condition_list(conditions: list[str]) -> str:
    return "\n".join([MET, *(f"- {one}" for one in conditions)]) if conditions else ""


def _failed_review(reason: str) -> Json:
    return ConsensusDecision(Decision.FAILED_SAFE, reason=reason).to_dict()


def _material(issue: IssueText, workspace: Workspace, report: Report) -> Material:
    """The change on the task's branch, with the texts that the reviewers need to judge it."""
    git_dir, base = workspace.git_dir, workspace.base_commit
    head = workspace.head() or ""
    diff = diff_of(git_dir, base or changes.empty_tree(git_dir), head)
    said = [issue.title, issue.body, *(f"{one.author}: {one.body}" for one in issue.comments)]
    verdict = report.verdict
    checks = [str(verdict), verdict.tail] if verdict is not None else ["No check is configured."]
    checks += [f"Changed test: {path}" for path in report.touched_tests[:NAMED]]
    checks += [f"Noticed: {line}" for line in report.look[:NAMED]]
    failing = verdict.outline.failing if verdict is not None else frozenset()
    return Material(
        issue="\n\n".join(clean(one).text for one in said if one.strip()),
        diff=diff,
        checks="\n".join(checks),
        rules=rules_of(git_dir, base) if base else "",
        code=code_around(git_dir, head, diff),
        tests=frozenset(failing),
    )
