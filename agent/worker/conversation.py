"""The model's side of one run: the tools, the client, the window, the first messages, and the loop.

A conversation can continue after a delivery, when the program sends finished work back to the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.forge.base import ForgeReports
from agent.llm import make_client
from agent.loop import Loop
from agent.prompts import render
from agent.sandbox import traits_of
from agent.security.sanitise import output
from agent.tools import Toolbox
from agent.tools.repetition import Repetition
from agent.values import FencedComment
from agent.window import make_window
from agent.window.budgets import LEAST
from agent.work import work_tree_snapshot
from agent.worker import briefing, ci_failures
from agent.worker.checkpoint_publisher import Checkpoint
from agent.worker.follow_shared_log import follow_shared_log
from agent.worker.inbox import comments_since, for_model
from agent.worker.issue_checks import withheld
from agent.worker.issue_pictures import IssuePictures
from agent.worker.later_recall import LaterRecall
from agent.worker.long_term_memory import own_memory, recall_tool, request_index
from agent.worker.progress import WaitEvents
from agent.worker.task_facts import record_origin
from agent.worker.work_tree_view import WorkTreeView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.forge.base import Comment
    from agent.values import Outcome
    from agent.window.context_window import Window
    from agent.worker.command_runner import CommandRunner
    from agent.worker.delivery import Delivery
    from agent.worker.mcp_tools import TaskMcpTools
    from agent.worker.preparation import Prepared
    from agent.worker.task_run import TaskRun


def _mcp_tools(run: TaskRun, commands: CommandRunner) -> TaskMcpTools | None:
    """The tools of the task's MCP servers; None if no server is configured now and none was when the task began."""
    if not run.settings.mcp_servers and run.context.get_mcp_store().tools() is None:
        return None
    # The MCP module is imported only if it is needed, since a worker without MCP servers needs no event loop.
    from agent.worker.mcp_tools import TaskMcpTools

    return TaskMcpTools(run, commands)


class WindowOfResults:
    """The numbers of a conversation's present window that limit the results of tools (`result_budget.ResultWindow`)."""

    def __init__(self, window: Window) -> None:
        self._window = window

    @property
    def tokens(self) -> int:
        """The number of tokens of the model's window, which becomes smaller if an error of the server shows a smaller
        window."""
        return self._window.limits.window

    @property
    def results(self) -> int:
        """The maximum number of tokens for all tool results of one answer."""
        return self._window.shares.results

    def count(self, text: str) -> int:
        """The number of tokens of a text, as the model's token counter counts."""
        return self._window.assembler.count(text)


class Conversation:
    """The conversation of one task, which continues from its files.

    `tools` exist from the beginning, in the state in which earlier attempts left them; a process that only publishes
    needs nothing else of the conversation. Client, window and loop exist only after `begin` was called. `delivery`
    publishes finished steps of the plan between two turns."""

    def __init__(self, run: TaskRun, prepared: Prepared, delivery: Delivery) -> None:
        self.run = run
        self.prepared = prepared
        self.delivery = delivery
        self.context = run.context
        self.store = run.context.get_message_store()
        self.workspace = prepared.tree.workspace
        self.own_memory = own_memory(run, prepared)
        if self.own_memory is not None:
            run.held.callback(self.own_memory.close)
        recall = recall_tool(run.context, self.own_memory)
        self.mcp = _mcp_tools(run, prepared.commands)
        more = self.mcp.tools if self.mcp is not None else []
        self.tools = Toolbox(
            root=self.workspace.tree,
            context_dir=self.context.context_dir,
            run=prepared.commands.run_for_model,
            redact=run.redact,
            clean=output,
            lookup=self.context.get_tool_store().result,
            message=self.store.text_of,
            owner_uid=prepared.commands.sandbox.uid,
            settings=run.settings,
            why_left_out=self.workspace.why_left_out,
            extra_tools=[*([recall] if recall is not None else []), *more],
        )
        run.tools = self.tools
        self.tools.restore(self.context.get_tool_store().records())
        if run.is_briefed():
            run.inbox.start(self.context.column("comment_cursor"))

    def begin(self) -> None:
        """Make the client and the window, and write the first messages unless an earlier attempt did so.

        Raises DoesNotFit if the window of the model is too small for any task, or ForgeError if the forge does not
        answer."""
        run, settings = self.run, self.run.settings
        run.events.on(run.progress)
        self.repetition = Repetition()
        run.model = self.model = make_client(
            settings,
            self.store,
            self.context.context_dir,
            tools=self.tools.schemas(),
            control=run.control,
            events=WaitEvents(run, run.progress),
            kept=run.wiring.learnt,
        )
        run.held.callback(self.model.close)
        run.limits.restart_clock()
        self.model.gate = run.limits
        self.window = make_window(
            settings,
            self.context,
            self.model,
            self.tools,
            run.events,
            run.wiring.ratios,
            memory=run.wiring.memory,
            own_memory=self.own_memory,
            work=WorkTreeView(self.tools, self.workspace.changes_now),
        )
        self.tools.limit_tokens(WindowOfResults(self.window))
        self.window.shorten_briefing = self.shorten_briefing
        self.window.check()
        if self.mcp is not None:
            self.mcp.check_window(self.tools, self.window.assembler.count, self.window.limits.window)
        takes_any = bool(self.model.picture_form)
        window = self.window.limits.window
        self.pictures = IssuePictures(run.forge, run.key, self.context.context_dir, window, takes_any)
        if run.is_briefed():
            self._continue()
        else:
            self._write_opening()
        self.later = LaterRecall(run, self.window, self.tools)
        work_tree_snapshot.mark_restored(self.context.context_dir)
        if run.publishing and settings.remembers:
            prepared = self.prepared
            record_origin(run, prepared.claimed.issue, self.workspace, may_ask=prepared.claimed.trusts_author)
        run.progress.update()

    def work(self) -> Outcome:
        """Run the loop to its outcome.  `work` may be called more than once; a later call continues the conversation
        from its files."""
        return self._loop().run()

    def _loop(self) -> Loop:
        return Loop(
            context=self.context,
            model=self.model,
            tools=self.tools,
            window=self.window,
            repetition=self.repetition,
            control=self.run.control,
            limits=self.run.limits,
            new_comments=self.new_comments,
            heartbeat=self.run.heartbeat,
            events=self.run.events,
            checkpoint=Checkpoint(self.run, self.delivery),
        )

    def new_comments(self, last: bool = False) -> Iterator[FencedComment]:
        """New comments of people, fenced, and messages with memories (`LaterRecall`); with `last`, the forge is read at
        once, because the run is about to end, and only memories about the new comments are retrieved.

        The comment cursor moves past the newest comment when the loop has appended all new comments.
        """
        if self.run.inbox.poll(now=last):
            self.run.control.read_at_once()
        yield from self.later.take_lost()
        yield from self.run.inbox.take_comments(self._fenced, self.store.sync)
        if not last:
            yield from self.later.after_compaction()
            yield from self.later.after_index()

    def _fenced(self, comments: Sequence[Comment]) -> Iterator[FencedComment]:
        room = self.window.shares.comments_now
        comments = [withheld(self.run.settings, comment) for comment in comments]
        for comment, text in briefing.fence_comments(comments, self.context.fence, room, self._budget()):
            images, about = self.pictures.fetch(comment.body) if comment is not None else ((), "")
            named = () if comment is None else (briefing.identity(comment),)
            yield FencedComment(self.run.redact(f"{text}\n\n{about}" if about else text), tuple(images), comments=named)
        query = "\n\n".join(briefing.task_text(comment) for comment in comments)
        yield from self.later.about(query)

    # --- the first messages -----------------------------------------------------------------------------------

    def _write_opening(self) -> None:
        """Write the system prompt and the briefing: the issue, its comments, the earlier task, repository rules."""
        request_index(self.run, self.workspace, self.own_memory)
        run, prepared = self.run, self.prepared
        issue, tree, row = prepared.claimed.issue, prepared.tree, self.context.row
        comments = for_model(issue.comments, run.forge.own_names())
        new = self._since_the_parent()
        images, about_pictures = self.pictures.fetch(issue.body, *(one.body for one in comments))
        budget = self._budget()
        ci = ci_failures.fenced(run, prepared.claimed.ci, replace(budget, comments=budget.comments // 2))
        budget = replace(budget, comments=max(LEAST, budget.comments - sum(map(budget.count, ci))))
        earlier = [comment for comment in comments if comment.id not in new]
        news = [comment for comment in comments if comment.id in new]
        text = briefing.briefing(
            run.settings,
            issue,
            earlier,
            self.workspace,
            self.context.fence,
            budget=budget,
            parent=prepared.claimed.parent,
            takes_up=tree.takes_up,
            about=tree.plan.about,
            news=news,
            commands=not traits_of(prepared.commands.sandbox).refuses,
            pictures=about_pictures,
            ci=ci,
            pull_name=ForgeReports(run.forge).pull_name(),
        )
        # the cursor is set before the briefing is written: if the process dies in between, the next attempt writes a
        # new briefing and sets the cursor again
        self.context.set_columns(comment_cursor=issue.cursor)
        already = comments_since(issue.comments, str(row["created_at"]), row.get("started_by"))
        run.inbox.start(issue.cursor, already, read_at=prepared.claimed.read_at)
        if self.own_memory is not None:
            follow_shared_log(run)
        query = briefing.recall_query(issue, comments)
        self.window.write_opening(run.redact(text), query, images, [*map(briefing.identity, (*earlier, *news))])

    def _continue(self) -> None:
        """Adapt the existing conversation to this process, and tell the model what it cannot know, for example that it
        continues from a fork point, or in a restored work tree."""
        point, restored = self.prepared.tree.point, self.prepared.tree.restored
        self.shorten_briefing()  # the model's window may be smaller than in the earlier attempt
        self.repetition.restore(self.context.get_tool_store().recent())
        if point is not None and self.store.last_seq == point.seq:
            self.store.add_message("user", render("past_point", commit=point.commit or ""), kind="nudge")
        if restored is not None and self._loop().recorded_outcome() is None:
            self.store.add_message("user", render("taken_over", lacks=restored.lacks), kind="nudge")
            self.store.sync()

    def shorten_briefing(self) -> bool:
        """Shorten rules and comments of the briefing if they exceed the budgets for the window in use; returns whether
        there is a new briefing.  The new briefing is appended to messages.jsonl, and a line of compactions.jsonl puts
        it in the place of the old one."""
        if (record := self.store.briefing()) is None:
            return False
        text = briefing.choose_again(record["content"], self.context.fence, self._budget())
        if text is None:
            return False
        before, seq = self.store.get_current_token_count(), self.store.last_seq + 1
        self.store.brief_again(text)
        after = self.store.get_current_token_count()
        named = {"strategy": "brief", "start_seq": seq, "end_seq": seq}
        self.run.events.emit("compaction", **named, tokens_before=before, tokens_after=after)
        return True

    def _budget(self) -> briefing.BriefingBudget:
        """The token budgets of a briefing for the window in use."""
        shares, tools = self.window.shares, self.tools
        return briefing.BriefingBudget(
            shares.rules, shares.earlier_comments, self.window.assembler.count, tools.shorten, tools.store_output
        )

    def _since_the_parent(self) -> frozenset[str]:
        """Ids of the comments that the task which this one continues had not read yet; none if this task continues
        none."""
        parent = self.prepared.claimed.parent
        if parent is None or parent.cursor is None:
            return frozenset()
        cursor = ForgeReports(self.run.forge).with_pull(parent.cursor, parent.url)
        return frozenset(one.id for one in self.run.forge.comments_since(self.run.key, cursor)[0])
