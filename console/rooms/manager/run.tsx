/** One run: its states with their times, attempts, result and output. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Fragment, useEffect } from 'react'
import { formatJson } from '../../api/json.ts'
import { query } from '../../api/queries.ts'
import { Code, Id } from '../../design/controls.tsx'
import { Card, Facts, Notice, Time, absoluteTime, formatDuration, isNever } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { ChannelName, WorkerName } from '../../shell/names.tsx'
import { QueryView } from '../../shell/states.tsx'
import { RanOffline, TaskState, isEnded } from '../../shell/task-state.tsx'
import { useDomainId, useParam } from '../../shell/url.ts'
import { RunCause } from './cause.tsx'
import { LogView } from './log.tsx'
import { RunInputs } from './run-inputs.tsx'

const REFRESH_MS = 1_500

export function RunScreen() {
  const domain = useDomainId()
  const task = useParam('id')
  const id = useParam('run')
  const result = useQuery({
    ...query('GET /tasks/{task_id}/runs/{run_id}', { params: { task_id: task, run_id: id } }),
    refetchInterval: ({ state: { data } }) => (data !== undefined && isEnded(data.state) ? false : REFRESH_MS),
  })
  const owner = useQuery(query('GET /tasks/{task_id}', { params: { task_id: task } }))
  const { grants = [], publish_result: published } = owner.data ?? {}
  const channels = [
    ...new Set([
      ...grants.filter(({ kind }) => kind === 'publish').map(({ channel_id: channel }) => channel),
      ...(published === undefined ? [] : [published.channel_id]),
    ]),
  ]
  useEffect(() => {
    document.title = `Run of ${owner.data?.name ?? 'a task'} · Skein`
  }, [owner.data?.name])
  return (
    <QueryView result={result}>
      {(run) => (
        <>
          <div className="page-head">
            <h1 className="clip" dir="auto">
              Run of{' '}
              <Link to={paths.task(domain, task)} activeProps={{}} activeOptions={{ exact: true }}>
                {owner.data?.name ?? 'the task'}
              </Link>
            </h1>
            <TaskState state={run.state} />
            <RanOffline run={run} />
          </div>
          {run.error === null ? null : <Notice tone="bad">{run.error}</Notice>}
          {run.module_notes?.map((note) => (
            <Notice key={note} tone="warn">
              {note}
            </Notice>
          ))}
          <div className="grid">
            <Card title="States" className="half">
              <ol className="timeline">
                <Step name="Created" at={run.created_at} from={undefined} />
                <Step name="Assigned" at={run.assigned_at} from={run.created_at} />
                <Step name="Running" at={run.running_at} from={run.assigned_at} />
                <Step name="Ended" at={run.finished_at} from={run.running_at} />
              </ol>
            </Card>
            <Card title="About" className="half">
              <Facts
                rows={[
                  [
                    'Worker',
                    run.worker_id === null ? (
                      <span key="worker" className="muted">
                        none yet
                      </span>
                    ) : (
                      <WorkerName key="worker" domain={domain} id={run.worker_id} />
                    ),
                  ],
                  ['Started by', <RunCause key="cause" domain={domain} run={run} />],
                  channels.length === 0
                    ? undefined
                    : [
                        'Published to',
                        <span key="published">
                          {channels.map((channel, index) => (
                            <Fragment key={channel}>
                              {index === 0 ? null : ', '}
                              <ChannelName
                                domain={domain}
                                id={channel}
                                to={paths.messages(domain, channel, { run: id })}
                              />
                            </Fragment>
                          ))}
                        </span>,
                      ],
                  ['Attempt', String(run.attempt)],
                  ['Duration', run.duration_ms === null ? '' : formatDuration(run.duration_ms)],
                  run.prepare_ms === null ? undefined : ['Prepared in', formatDuration(run.prepare_ms)],
                  run.reason === null ? undefined : ['Reason', run.reason],
                  ['Module', <Id key="module" id={run.module_digest} />],
                  ['Id', <Id key="id" id={run.id} />],
                ]}
              />
            </Card>
            <RunInputs domain={domain} run={run} />
            {run.results === null || run.results === undefined ? null : (
              <Card title="Result" className="half">
                <Code label="result" wrap text={formatJson(run.results, 2)} />
              </Card>
            )}
            {run.earlier_attempts.length === 0 ? null : (
              <Card title="Earlier attempts" flush className="half">
                {run.earlier_attempts.map((attempt) => (
                  <div key={attempt.fence} className="list-row">
                    <span>{attempt.attempt}</span>
                    <span className="grow">
                      {attempt.reason}
                      {attempt.error === null ? null : <span className="muted small"> {attempt.error}</span>}
                    </span>
                    {attempt.worker_id === null ? null : <WorkerName domain={domain} id={attempt.worker_id} />}
                    <span className="muted small">
                      <Time at={attempt.ended_at} />
                    </span>
                  </div>
                ))}
              </Card>
            )}
          </div>
          <h2>Output</h2>
          <LogView task={task} run={id} domain={domain} />
        </>
      )}
    </QueryView>
  )
}

function Step({ name, at, from }: { name: string; at: string; from: string | undefined }) {
  const isReached = !isNever(at)
  const since = isReached && from !== undefined && !isNever(from) ? Date.parse(at) - Date.parse(from) : undefined
  return (
    <li>
      <span className={isReached ? '' : 'muted'} aria-hidden="true">
        {isReached ? '●' : '○'}
      </span>
      <span className={isReached ? '' : 'muted'}>
        {name}
        {since === undefined ? null : <span className="muted small"> after {formatDuration(Math.max(0, since))}</span>}
      </span>
      <span className="muted small">{isReached ? absoluteTime(Date.parse(at)) : 'not yet'}</span>
    </li>
  )
}
