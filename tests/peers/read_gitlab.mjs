// Read our loopback GitLab with @gitbeaker/rest; prints what it understood as JSON.
// node read_gitlab.mjs HOST TOKEN PROJECT ISSUE MERGE_REQUEST
import { Gitlab } from '@gitbeaker/rest';

const [host, token, project, issue, merge] = process.argv.slice(2);
const api = new Gitlab({ host, token });
const written = await api.IssueNotes.create(project, Number(issue), 'written by gitbeaker');
const out = {
  written,
  edited: await api.IssueNotes.edit(project, Number(issue), written.id, { body: 'edited by gitbeaker' }),
  shown: await api.IssueNotes.show(project, Number(issue), written.id),
  notes: await api.IssueNotes.all(project, Number(issue), { sort: 'asc', orderBy: 'created_at', perPage: 2 }),
  discussions: await api.IssueDiscussions.all(project, Number(issue), { perPage: 2 }),
  merge_notes: await api.MergeRequestNotes.all(project, Number(merge), { perPage: 2 }),
  merge_discussions: await api.MergeRequestDiscussions.all(project, Number(merge), { perPage: 2 }),
  labels: await api.ProjectLabels.all(project, { perPage: 1 }),
  events: await api.IssueLabelEvents.all(project, Number(issue), { perPage: 1 }),
  user: await api.Users.showCurrentUser(),
  projects: await api.Projects.all({ membership: true, pagination: 'keyset', orderBy: 'id', sort: 'asc', perPage: 1 }),
};
console.log(JSON.stringify(out));
