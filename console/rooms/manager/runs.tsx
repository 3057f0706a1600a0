/** The runs of all tasks of a domain, with their causes. */
import { Link } from '@tanstack/react-router'
import { useEffect } from 'react'
import { call } from '../../api/call.ts'
import type { Query } from '../../api/call.ts'
import type { Run } from '../../api/operations.ts'
import { Button } from '../../design/controls.tsx'
import { Card, Empty, Time, formatDuration } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { Filters } from '../../shell/filters.tsx'
import { WorkerName } from '../../shell/names.tsx'
import { DataTable } from '../../shell/table.tsx'
import { RanOffline, TaskState, stateWord } from '../../shell/task-state.tsx'
import { useDomainId, useViews } from '../../shell/url.ts'
import { CAUSES, RunCause } from './cause.tsx'

const REFRESH_MS = 3_000
const STATES = [1, 2, 3, 4, 6]
const REASONS = [
  'timeout',
  'oom',
  'trap',
  'guest_error',
  'worker_lost',
  'queue_timeout',
  'state_conflict',
  'module_invalid',
  'fetch_failed',
  'no_such_function',
]
const FIELDS = [
  { name: 'state', label: 'State', options: STATES.map((one) => stateWord(one).toLowerCase()) },
  { name: 'cause', label: 'Cause', options: CAUSES },
  { name: 'reason', label: 'Reason of the failure', options: REASONS },
  { name: 'task_id', label: 'Task', of: 'task' },
  { name: 'worker_id', label: 'Worker', of: 'worker' },
  { name: 'channel_id', label: 'Channel', hint: 'Whose messages started the runs', of: 'channel' },
  { name: 'message', label: 'Message', hint: 'The id of the message that started the runs, such as 4711/0' },
  { name: 'user_id', label: 'User', hint: 'The id of the user who started the runs' },
  { name: 'workflow_id', label: 'Workflow', of: 'workflow' },
] as const

export function Runs() {
  const domain = useDomainId()
  const [views, setViews] = useViews()
  const state = STATES.find((one) => stateWord(one).toLowerCase() === views['state'])
  const given = Object.fromEntries(FIELDS.map(({ name }) => [name, views[name]]))
  const filters = {
    ...given,
    state: state === undefined ? undefined : String(state),
    domain_id: domain,
  } as Query<'GET /runs'>
  useEffect(() => {
    document.title = 'Runs · Skein'
  }, [])
  const hasFilter = FIELDS.some(({ name }) => views[name] !== undefined)
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Runs</h1>
      </div>
      <Filters fields={FIELDS} hasName={false} />
      <DataTable<Run>
        label="Runs"
        queryKey={['GET /runs', filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call('GET /runs', { query: { ...filters, ...page }, signal })
          return { total: found.total, rows: found.runs }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id, task_id: task }) => paths.run(domain, task, id)}
        columns={[
          {
            key: 'task',
            title: 'Task',
            width: 'minmax(140px, 2fr)',
            cell: ({ id, task_id: task, task_name: name }) => (
              <Link className="main" dir="auto" tabIndex={-1} to={paths.run(domain, task, id)}>
                {name}
              </Link>
            ),
          },
          { key: 'state', title: 'State', width: '110px', cell: ({ state: one }) => <TaskState state={one} /> },
          {
            key: 'cause',
            title: 'Started by',
            width: 'minmax(140px, 1.5fr)',
            isMinor: true,
            cell: (run) => (
              <>
                <RunCause domain={domain} run={run} /> <RanOffline run={run} />
              </>
            ),
          },
          {
            key: 'reason',
            title: 'Reason',
            width: '120px',
            isMinor: true,
            cell: ({ reason, error }) => <span title={error ?? undefined}>{reason}</span>,
          },
          {
            key: 'worker',
            title: 'Worker',
            width: 'minmax(90px, 1fr)',
            isMinor: true,
            cell: ({ worker_id: worker }) => (worker === null ? null : <WorkerName domain={domain} id={worker} />),
          },
          {
            key: 'duration',
            title: 'Duration',
            width: '90px',
            isMinor: true,
            cell: ({ duration_ms: ms }) => (ms === null ? null : formatDuration(ms)),
          },
          { key: 'created', title: 'Created', width: '110px', cell: ({ created_at: at }) => <Time at={at} /> },
        ]}
        empty={
          <Card>
            {hasFilter ? (
              <Empty
                icon="search"
                title="No run matches"
                actions={
                  <Button onClick={() => setViews(Object.fromEntries(FIELDS.map(({ name }) => [name, ''])))}>
                    Clear filters
                  </Button>
                }
              />
            ) : (
              <Empty icon="run" title="No runs yet">
                A run is one execution of a task: started by a user, a message, the schedule or a workflow.
              </Empty>
            )}
          </Card>
        }
      />
    </>
  )
}
