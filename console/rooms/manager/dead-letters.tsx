/** Dead letters of a task: messages that no run could be started for, and publications that no channel took. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { call } from '../../api/call.ts'
import { formatJson } from '../../api/json.ts'
import type { Task, TaskDeadLetter } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Time, formatCount } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { DeadLetters } from '../../shell/dead-letters.tsx'
import { ChannelName } from '../../shell/names.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import type { Tab } from '../../shell/tabs.tsx'

const OPERATION = 'GET /tasks/{task_id}/dead-letters'
/** The number at the tab is counted by the server; it is asked for less often than the task. */
const COUNT_MS = 10_000

const SOURCES: Readonly<Record<TaskDeadLetter['source'], string>> = {
  message: 'a message',
  publication: 'a publication',
}

/** A task that reads and publishes nothing has the tab while letters of an earlier rule are left. */
export function useDeadLetterTab(domain: string, id: string, task: Task | undefined): Tab | undefined {
  const { data } = useQuery({
    ...query(OPERATION, { params: { task_id: id }, query: { limit: 1 } }),
    refetchInterval: COUNT_MS,
  })
  const total = data?.total ?? 0
  const grants = task?.grants ?? []
  const hasChannels = task?.trigger !== undefined || task?.publish_result !== undefined || grants.length > 0
  if (!hasChannels && total === 0) return undefined
  const name = total === 0 ? 'Dead letters' : `Dead letters (${formatCount(total)})`
  return { key: 'dead-letters', name, to: paths.task(domain, id, 'dead-letters') }
}

export function TaskDeadLetters({ task, domain }: { task: string; domain: string }) {
  const params = { task_id: task }
  const denied = useDomainDenied(domain)
  const channelOf = ({ channel_id: channel, subtopic }: TaskDeadLetter) => (
    <>
      <ChannelName domain={domain} id={channel} /> {subtopic === '' ? null : <code>{subtopic}</code>}
    </>
  )
  return (
    <DeadLetters<TaskDeadLetter>
      queryKey={[OPERATION, params]}
      fetchPage={async ({ signal, ...page }) => {
        const { total, dead_letters: rows } = await call(OPERATION, { params, query: page, signal })
        return { total, rows }
      }}
      columns={[
        { key: 'at', title: 'Given up', width: '90px', cell: ({ at }) => <Time at={at} /> },
        { key: 'source', title: 'What', width: '110px', isMinor: true, cell: ({ source }) => SOURCES[source] },
        { key: 'channel', title: 'Channel', width: 'minmax(90px, 1fr)', isMinor: true, cell: channelOf },
        {
          key: 'reason',
          title: 'Reason',
          width: 'minmax(60px, 2fr)',
          cell: ({ reason }) => <span title={reason}>{reason}</span>,
        },
        {
          key: 'records',
          title: 'Records',
          width: 'minmax(90px, 1fr)',
          isMinor: true,
          cell: ({ records }) =>
            records === undefined ? <span className="muted">not shown</span> : <code>{formatJson(records)}</code>,
        },
      ]}
      contentOf={({ records }) => records}
      factsOf={(letter) => [
        ['What', SOURCES[letter.source]],
        ['Channel', channelOf(letter)],
        ['Reason', letter.reason],
        ['Queued', <Time key="queued" at={letter.created_at} />],
        ['Given up', <Time key="at" at={letter.at} />],
        [
          'Run',
          letter.run_id === undefined ? (
            'none was started'
          ) : (
            <Link key="run" to={paths.run(domain, task, letter.run_id)}>
              Open
            </Link>
          ),
        ],
      ]}
      cannotRetry={denied('task_start')}
      cannotDiscard={denied('task_update')}
      retry={(body) => call('POST /tasks/{task_id}/dead-letters/retry', { params, body })}
      discard={(body) => call('POST /tasks/{task_id}/dead-letters/discard', { params, body })}
    >
      A message that the task could not start a run for, or could not publish. Retry it when the cause is fixed.
    </DeadLetters>
  )
}
