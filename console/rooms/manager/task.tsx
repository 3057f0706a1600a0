/** One task: its module, running it with typed inputs, its runs, when it starts, and why it waits. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { formatJson } from '../../api/json.ts'
import type { Run, Task as TaskRecord } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Code, Field, Id, Menu, SelectField, TextField } from '../../design/controls.tsx'
import {
  Card,
  Empty,
  Facts,
  Notice,
  State,
  Time,
  formatBytes,
  formatCount,
  formatDuration,
  isNever,
} from '../../design/display.tsx'
import { Form } from '../../design/form.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { InputError, useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { EntityJournal } from '../../shell/entity-journal.tsx'
import { WaitingSince } from '../../shell/dead-letters.tsx'
import { ChannelName, UserName, WorkerName } from '../../shell/names.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useSession } from '../../shell/session.ts'
import { QueryView } from '../../shell/states.tsx'
import { DataTable } from '../../shell/table.tsx'
import { Tabs } from '../../shell/tabs.tsx'
import { RanOffline, TaskActivity, TaskState } from '../../shell/task-state.tsx'
import { useDomainId, useParam } from '../../shell/url.ts'
import { TaskDeadLetters, useDeadLetterTab } from './dead-letters.tsx'
import { parametersOf, parseInput } from './inputs.ts'
import { TaskOutput } from './log.tsx'
import { KeptState } from './state.tsx'
import { startsOf, uploadModule } from './tasks.tsx'
import { AnsweredCommands, AnswersDialog } from './answers.tsx'
import { HttpDialog } from './http-grant.tsx'
import { EXCESSES, ORDERS, excessOf, offersBatches, offersExcess, orderOf, triggerWith } from './trigger-form.ts'
import type { Excess, Order } from './trigger-form.ts'
import { rateOf } from './rate.ts'
import { ScheduleDialog } from './schedule-dialog.tsx'
import { ModuleDrop } from './upload.tsx'

const REFRESH_MS = 2_000

export function Task() {
  const domain = useDomainId()
  const id = useParam('id')
  const tab = useParam('tab')
  const result = useQuery({
    ...query('GET /tasks/{task_id}', { params: { task_id: id }, query: { recent: true } }),
    refetchInterval: REFRESH_MS,
  })
  const deadLetters = useDeadLetterTab(domain, id, result.data)
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Task'} · Skein`
  }, [result.data?.name])
  return (
    <QueryView result={result}>
      {(task) => (
        <>
          <Head task={task} domain={domain} />
          <LastError task={task} domain={domain} />
          <Tabs
            label="Task"
            tabs={[
              { key: 'run', name: 'Run', to: paths.task(domain, id) },
              { key: 'runs', name: 'Runs', to: paths.task(domain, id, 'runs') },
              { key: 'logs', name: 'Output', to: paths.task(domain, id, 'logs') },
              { key: 'module', name: 'Module', to: paths.task(domain, id, 'module') },
              { key: 'state', name: 'State', to: paths.task(domain, id, 'state') },
              { key: 'rules', name: 'Rules', to: paths.task(domain, id, 'rules') },
              ...(deadLetters === undefined ? [] : [deadLetters]),
              { key: 'journal', name: 'Journal', to: paths.task(domain, id, 'journal') },
            ]}
          />
          {tab === '' ? <RunTab key={task.module?.digest} task={task} domain={domain} /> : null}
          {tab === 'runs' ? <Runs task={task} domain={domain} /> : null}
          {tab === 'logs' ? <TaskOutput domain={domain} task={id} /> : null}
          {tab === 'module' ? <Module task={task} domain={domain} /> : null}
          {tab === 'state' ? <KeptState task={id} domain={domain} /> : null}
          {tab === 'rules' ? <Rules task={task} domain={domain} /> : null}
          {tab === 'dead-letters' ? <TaskDeadLetters task={id} domain={domain} /> : null}
          {tab === 'journal' ? <EntityJournal domain={domain} type="task" id={id} /> : null}
        </>
      )}
    </QueryView>
  )
}

function Head({ task, domain }: { task: TaskRecord; domain: string }) {
  const navigate = useNavigate()
  const [isDeleting, setDeleting] = useState(false)
  const denied = useDomainDenied(domain)
  const params = { task_id: task.id }
  const isRunning = task.state === 1 || task.state === 2
  const [stop, isStopping] = useAction('The task was not stopped', async () => {
    await call('POST /tasks/{task_id}/stop', { params })
    return 'Stopped'
  })
  const [start, isStarting] = useAction('The task was not started', async () => {
    await call('POST /tasks/{task_id}/start', { params, body: {} })
  })
  const remove = useFormAction('The task was not deleted', async () => {
    await call('DELETE /tasks/{task_id}', { params, query: { force: true } })
    await navigate({ to: paths.tasks(domain) })
    return 'The task is deleted'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        {task.name}
      </h1>
      <TaskActivity state={task.state} activity={task.activity} />
      <RecentRuns task={task} domain={domain} />
      <span className="grow" />
      {isRunning ? (
        <Button icon="stop" busy={isStopping} disabledReason={denied('task_start')} onClick={() => void stop()}>
          Stop
        </Button>
      ) : (
        <Button
          icon="play"
          busy={isStarting}
          onClick={() => void start()}
          disabledReason={
            denied('task_start') ??
            (task.module === undefined && task.image_url === undefined ? 'The task has no module yet' : undefined)
          }
        >
          Start
        </Button>
      )}
      <Menu
        label="More actions"
        icon="more"
        items={[
          {
            label: 'Delete',
            icon: 'trash',
            isDanger: true,
            disabledReason: denied('task_delete'),
            onSelect: () => setDeleting(true),
          },
        ]}
      />
      {isDeleting ? (
        <Confirm title={`Delete ${task.name}`} submit="Delete task" action={remove} onClose={() => setDeleting(false)}>
          Its runs stop, and their results are deleted. This cannot be undone.
        </Confirm>
      ) : null}
    </div>
  )
}

/** How often it runs, and how often it fails. */
function RecentRuns({ task, domain }: { task: TaskRecord; domain: string }) {
  const { recent_runs: recent } = task
  if (recent === undefined || recent.runs === 0) return null
  return (
    <span className="muted small">
      {rateOf(recent)} ·{' '}
      {recent.failed === 0 ? (
        `no failure in the last ${formatCount(recent.runs)}`
      ) : (
        <Link to={paths.runs(domain, { task_id: task.id, state: 'failed' })}>
          {formatCount(recent.failed)} of the last {formatCount(recent.runs)} failed
        </Link>
      )}
    </span>
  )
}

const REFUSED = {
  schedule: 'Its schedule could not start it',
  message: 'A message could not start it',
  workflow: 'Its workflow could not start it',
  publication: 'Its result was not published',
  replay: 'A replay ended early',
  right: 'It is paused',
} as const

/** A member with the rights that the task uses becomes the one who grants them; a paused task continues. */
function TakeOver({ task, domain, small = false }: { task: TaskRecord; domain: string; small?: boolean }) {
  const cannotUpdate = useDomainDenied(domain)('task_update')
  const [isAsking, setAsking] = useState(false)
  const takeOver = useFormAction('The task was not taken over', async () => {
    await call('POST /tasks/{task_id}/take-over', { params: { task_id: task.id } })
    setAsking(false)
    return 'The task acts with your rights'
  })
  return (
    <>
      <Button small={small} disabledReason={cannotUpdate} onClick={() => setAsking(true)}>
        Take over
      </Button>
      {isAsking ? (
        <FormDialog
          title={`Take over ${task.name}`}
          submit="Take over"
          action={takeOver}
          onClose={() => setAsking(false)}
        >
          <p>
            The task uses its channels with your rights from now on, so you need each right that it uses.
            {task.activity === 'paused' ? ' It continues where it was paused.' : null}
          </p>
        </FormDialog>
      ) : null}
    </>
  )
}

function LastError({ task, domain }: { task: TaskRecord; domain: string }) {
  const { activity, last_error: error } = task
  if (error === undefined) return null
  const times = error.count === 1 ? '' : `, ${formatCount(error.count)} times since the last success`
  return (
    <Notice tone="bad" actions={activity === 'paused' ? <TakeOver task={task} domain={domain} /> : undefined}>
      {REFUSED[error.source]}: {error.reason} (<Time at={error.at} />
      {times})
      {error.source === 'right' ? (
        <p>
          It continues where it was paused when{' '}
          {task.granted_by === undefined ? 'the user who granted its channels' : <UserName id={task.granted_by} />} has
          the right again, or a member with these rights takes it over.
        </p>
      ) : null}
    </Notice>
  )
}

function RunTab({ task, domain }: { task: TaskRecord; domain: string }) {
  const functions = (task.module?.exports ?? []).filter(({ kind }) => kind === 'function' || kind === 'func')
  const [name, setName] = useState(task.function ?? functions[0]?.name ?? '')
  const chosen = functions.find((one) => one.name === name)
  const parameters = parametersOf(chosen?.params ?? [])
  const [values, setValues] = useState<readonly string[]>([])
  const [outcome, setOutcome] = useState<{
    results?: unknown
    error?: string | null
    run_id?: string
    duration_ms?: number | null
  }>()
  const invoke = useFormAction('The run failed', async () => {
    setOutcome(undefined)
    const inputs: unknown[] = []
    for (const [index, parameter] of parameters.entries())
      try {
        inputs.push(parseInput(parameter, values[index] ?? ''))
      } catch (error) {
        throw new InputError(`inputs.${index}`, (error as Error).message)
      }
    // The function is a rule of the task.
    if (name !== '' && name !== (task.function ?? ''))
      await call('PUT /tasks/{task_id}', { params: { task_id: task.id }, body: { function: name } })
    setOutcome(
      await call('POST /tasks/{task_id}/invoke', {
        params: { task_id: task.id },
        body: { inputs, wait: '10s', timeout: '30s' },
      }),
    )
  })
  const cannotRun = useDomainDenied(domain)('task_start')
  if (task.module === undefined && task.image_url === undefined) return <MissingModule task={task} domain={domain} />
  return (
    <div className="grid">
      <Card title="Run it now" className="half">
        <Form action={invoke} className="form" disabledReason={cannotRun}>
          {functions.length > 1 ? (
            <SelectField
              label="Function"
              value={name}
              onChange={(value) => (setName(value), setValues([]))}
              options={functions.map((one): [string, string] => [one.name, signature(one)])}
            />
          ) : null}
          {functions.length === 1 ? (
            <p>
              Function <code>{functions[0] === undefined ? '' : signature(functions[0])}</code>
            </p>
          ) : null}
          {parameters.map((parameter, index) =>
            parameter.type === 'bool' ? (
              <SelectField
                key={index}
                label={`${parameter.name} (bool)`}
                field={`inputs.${index}`}
                value={values[index] ?? 'false'}
                onChange={(value) => setValues(withValue(values, index, value))}
                options={[
                  ['false', 'false'],
                  ['true', 'true'],
                ]}
              />
            ) : (
              <Field key={index} label={`${parameter.name} (${parameter.type})`} field={`inputs.${index}`}>
                {(ids) => (
                  <input
                    className="input"
                    {...ids}
                    value={values[index] ?? ''}
                    onChange={(event) => setValues(withValue(values, index, event.target.value))}
                  />
                )}
              </Field>
            ),
          )}
          <div className="row">
            <Button type="submit" kind="primary" icon="play" busy={invoke.isBusy} disabledReason={cannotRun}>
              Run
            </Button>
          </div>
        </Form>
        {outcome === undefined ? null : (
          <div className="stack">
            {outcome.error === undefined || outcome.error === null ? (
              <State tone="ok">
                Completed
                {outcome.duration_ms === undefined || outcome.duration_ms === null
                  ? ''
                  : ` in ${formatDuration(outcome.duration_ms)}`}
              </State>
            ) : (
              <Notice tone="bad">{outcome.error}</Notice>
            )}
            {outcome.results === undefined || outcome.results === null ? null : (
              <Code label="result" wrap text={formatJson(outcome.results, 2)} />
            )}
            {outcome.run_id === undefined ? null : (
              <Link to={paths.run(domain, task.id, outcome.run_id)}>Open the run</Link>
            )}
          </div>
        )}
      </Card>
      <div className="half stack wide">
        {task.last_run === undefined ? null : (
          <Card title="Last run">
            <Facts
              rows={[
                ['State', <TaskState key="state" state={task.last_run.state} />],
                [task.last_run.state >= 3 ? 'Ended' : 'Created', <Time key="at" at={task.last_run.at} />],
                [
                  'Run',
                  <Link key="run" to={paths.run(domain, task.id, task.last_run.id)}>
                    Open
                  </Link>,
                ],
              ]}
            />
          </Card>
        )}
        {isNever(task.start_time) ? null : (
          <Card title={task.activity === undefined ? 'Last result' : 'Last start'}>
            <Facts
              rows={[
                ['State', <TaskState key="state" state={task.state} />],
                ['Started', <Time key="start" at={task.start_time} />],
                ['Ended', <Time key="end" at={task.finish_time} />],
                task.run_id === undefined
                  ? undefined
                  : [
                      'Run',
                      <Link key="run" to={paths.run(domain, task.id, task.run_id)}>
                        Open
                      </Link>,
                    ],
              ]}
            />
            {task.error === null ? null : <Notice tone="bad">{task.error}</Notice>}
            {task.results === null || task.results === undefined ? null : (
              <Code label="last result" wrap text={formatJson(task.results, 2)} />
            )}
          </Card>
        )}
        {task.state === 0 || task.state === 1 || task.state === 7 ? <Placement task={task.id} /> : null}
      </div>
    </div>
  )
}

const withValue = (values: readonly string[], index: number, value: string) =>
  Array.from({ length: Math.max(values.length, index + 1) }, (_none, at) => (at === index ? value : (values[at] ?? '')))
const signature = ({ name, params, results }: { name: string; params: string[]; results: string[] }) =>
  `${name}(${params.join(', ')})${results.length === 0 ? '' : ` → ${results.join(', ')}`}`

function MissingModule({ task, domain }: { task: TaskRecord; domain: string }) {
  const cannotUpdate = useDomainDenied(domain)('task_update')
  const [file, setFile] = useState<File>()
  const [upload] = useAction('The module was not accepted', async (chosen: File) => {
    await uploadModule(task.id, chosen)
    return 'Uploaded'
  })
  return (
    <Card title="This task has no module">
      <ModuleDrop
        file={file}
        disabledReason={cannotUpdate}
        onFile={(chosen) => {
          setFile(chosen)
          void upload(chosen)
        }}
      />
    </Card>
  )
}

function Placement({ task }: { task: string }) {
  const result = useQuery({
    ...query('GET /tasks/{task_id}/placement', { params: { task_id: task } }),
    refetchInterval: REFRESH_MS,
  })
  return (
    <QueryView result={result}>
      {({ reason, workers }) => (
        <Card title="Placement" flush>
          <div className="list-row">{reason}</div>
          {workers.map((worker) => (
            <div key={worker.worker_id} className="list-row">
              <span className="grow clip">{worker.name}</span>
              <State tone={worker.chosen ? 'ok' : 'idle'}>{worker.chosen ? 'Chosen' : worker.reason}</State>
            </div>
          ))}
        </Card>
      )}
    </QueryView>
  )
}

function Runs({ task, domain }: { task: TaskRecord; domain: string }) {
  const params = { task_id: task.id }
  return (
    <DataTable<Run>
      label="Runs"
      queryKey={['GET /tasks/{task_id}/runs', params]}
      refetchMs={REFRESH_MS}
      fetchPage={async ({ offset, limit, signal }) => {
        const page = await call('GET /tasks/{task_id}/runs', { params, query: { offset, limit }, signal })
        return { total: page.total, rows: page.runs }
      }}
      rowId={({ id }) => id}
      hrefOf={({ id }) => paths.run(domain, task.id, id)}
      columns={[
        { key: 'state', title: 'State', width: '120px', cell: (run) => <TaskState state={run.state} /> },
        {
          key: 'id',
          title: 'Run',
          width: 'minmax(90px, 1fr)',
          cell: (run) => (
            <Link className="main" dir="auto" tabIndex={-1} to={paths.run(domain, task.id, run.id)}>
              <code>{run.id.slice(-12)}</code>
            </Link>
          ),
        },
        {
          key: 'kind',
          title: 'By',
          width: '110px',
          isMinor: true,
          cell: (run) => (
            <>
              {run.kind} <RanOffline run={run} />
            </>
          ),
        },
        {
          key: 'worker',
          title: 'Worker',
          width: 'minmax(100px, 1fr)',
          isMinor: true,
          cell: ({ worker_id: worker }) =>
            worker === null ? <span className="muted">none</span> : <WorkerName domain={domain} id={worker} />,
        },
        { key: 'attempt', title: 'Attempt', width: '70px', isMinor: true, cell: ({ attempt }) => attempt },
        {
          key: 'duration',
          title: 'Duration',
          width: '90px',
          cell: ({ duration_ms: ms }) => (ms === null ? '' : formatDuration(ms)),
        },
        { key: 'created', title: 'Created', width: '110px', cell: ({ created_at: at }) => <Time at={at} /> },
      ]}
      empty={
        <Card>
          <Empty icon="task" title="It has not run yet" />
        </Card>
      }
    />
  )
}

function Module({ task, domain }: { task: TaskRecord; domain: string }) {
  const cannotUpdate = useDomainDenied(domain)('task_update')
  const [file, setFile] = useState<File>()
  const [upload] = useAction('The module was not accepted', async (chosen: File) => {
    await uploadModule(task.id, chosen)
    return 'The task has a new module. Runs that have begun keep the old one.'
  })
  const { module } = task
  const table = (
    title: string,
    rows: readonly { name: string; kind: string; params: string[]; results: string[]; module?: string }[],
  ) => (
    <Card title={`${title} (${formatCount(rows.length)})`} flush className="half">
      {rows.length === 0 ? <Empty icon="module" title="None" /> : null}
      <ul>
        {rows.map((row) => (
          <li key={`${row.module ?? ''}${row.name}`} className="list-row">
            <span className="grow">
              <code>
                {row.module === undefined ? '' : `${row.module} `}
                {row.kind.startsWith('func') ? signature(row) : row.name}
              </code>
            </span>
            <span className="muted small">{row.kind}</span>
          </li>
        ))}
      </ul>
    </Card>
  )
  return (
    <div className="grid">
      <Card className="half" title="Module">
        {module === undefined ? (
          <p className="muted">{task.image_url === undefined ? 'None yet' : task.image_url}</p>
        ) : (
          <Facts
            rows={[
              ['Kind', module.kind],
              ['Size', formatBytes(module.size)],
              ['Digest', <Id key="digest" id={module.digest} />],
              task.image_url === undefined ? undefined : ['Reference', <code key="reference">{task.image_url}</code>],
            ]}
          />
        )}
      </Card>
      <Card className="half" title="Replace it">
        <ModuleDrop
          file={file}
          disabledReason={cannotUpdate}
          onFile={(chosen) => {
            setFile(chosen)
            void upload(chosen)
          }}
        />
      </Card>
      {module === undefined ? null : table('Exports', module.exports)}
      {module === undefined ? null : table('Imports', module.imports)}
    </div>
  )
}

/** Who starts the ticks of an offline task. */
function OfflineWorker({ domain, task }: { domain: string; task: TaskRecord }) {
  const { worker_id: worker = '', offline_since: since } = task
  return (
    <>
      <WorkerName domain={domain} id={worker} />{' '}
      {since === undefined ? (
        <span className="muted">when it has the module; until then the task manager</span>
      ) : (
        <>
          without a network too, since <Time at={since} />
        </>
      )}
    </>
  )
}

function Rules({ task, domain }: { task: TaskRecord; domain: string }) {
  const [dialog, setDialog] = useState<'schedule' | 'trigger' | 'answers' | 'http' | 'limits'>()
  const close = () => setDialog(undefined)
  const cannotUpdate = useDomainDenied(domain)('task_update')
  const { trigger, trigger_status: status } = task
  const session = useSession()
  const userId = session.kind === 'signed-in' ? session.userId : undefined
  return (
    <div className="grid">
      <Card
        className="half"
        title="When it starts"
        actions={
          <>
            <Button small disabledReason={cannotUpdate} onClick={() => setDialog('schedule')}>
              Schedule
            </Button>
            <Button small disabledReason={cannotUpdate} onClick={() => setDialog('trigger')}>
              Trigger
            </Button>
            <Button small disabledReason={cannotUpdate} onClick={() => setDialog('answers')}>
              Commands
            </Button>
            {task.granted_by === undefined || task.granted_by === userId || task.activity === 'paused' ? null : (
              <TakeOver task={task} domain={domain} small />
            )}
          </>
        }
      >
        <Facts
          rows={[
            ['Starts', startsOf(task)],
            task.next_tick_at === undefined || isNever(task.next_tick_at)
              ? undefined
              : ['Next time', <Time key="next" at={task.next_tick_at} isAhead />],
            task.timezone === undefined ? undefined : ['Time zone', task.timezone],
            task.offline !== true
              ? undefined
              : ['Started by', <OfflineWorker key="offline" domain={domain} task={task} />],
            trigger === undefined
              ? undefined
              : ['Channel', <ChannelName key="channel" domain={domain} id={trigger.channel_id} />],
            trigger?.when === undefined
              ? undefined
              : ['When the value is', `${trigger.when.comparator} ${trigger.when.value}`],
            trigger?.rate_limit === undefined
              ? undefined
              : [
                  'At most',
                  `${trigger.rate_limit}; further messages ${trigger.excess === 'wait' ? 'wait' : 'are dropped'}`,
                ],
            trigger?.batch === undefined ? undefined : ['Messages per run', `up to ${trigger.batch}, as a list`],
            orderOf(trigger) === '' ? undefined : ['Messages run', new Map(ORDERS).get(orderOf(trigger))],
            status === undefined ? undefined : ['Messages', messagesOf(status)],
            status?.behind_since === undefined
              ? undefined
              : ['Behind', <WaitingSince key="behind" at={status.behind_since} />],
            task.publish_result === undefined
              ? undefined
              : ['Publishes to', <ChannelName key="to" domain={domain} id={task.publish_result.channel_id} />],
            task.answers === undefined
              ? undefined
              : ['Answers', <AnsweredCommands key="answers" task={task} domain={domain} />],
            task.granted_by === undefined
              ? undefined
              : ['Rights granted by', <UserName key="grantor" id={task.granted_by} />],
          ]}
        />
        {status?.dropped_reason === undefined || status.dropped_reason === null ? null : (
          <Notice tone="warn">{status.dropped_reason}</Notice>
        )}
      </Card>
      <Card
        className="half"
        title="Limits and retries"
        actions={
          <>
            <Button small disabledReason={cannotUpdate} onClick={() => setDialog('http')}>
              HTTP requests
            </Button>
            <Button small disabledReason={cannotUpdate} onClick={() => setDialog('limits')}>
              Edit
            </Button>
          </>
        }
      >
        <Facts
          rows={[
            ['Time limit', task.timeout],
            ['Memory', formatBytes(task.memory_limit)],
            ['Attempts', String(task.retry.max_attempts ?? 1)],
            ['Backoff', task.retry.backoff],
            ['When the worker is lost', task.on_lost],
            ['Priority', String(task.priority)],
            task.http === undefined
              ? undefined
              : ['HTTP requests to', task.http.allow.map(({ origin }) => origin).join(', ')],
          ]}
        />
      </Card>
      {dialog === 'schedule' ? <ScheduleDialog task={task} onClose={close} /> : null}
      {dialog === 'trigger' ? <TriggerDialog task={task} domain={domain} onClose={close} /> : null}
      {dialog === 'answers' ? <AnswersDialog task={task} domain={domain} onClose={close} /> : null}
      {dialog === 'http' ? <HttpDialog task={task} onClose={close} /> : null}
      {dialog === 'limits' ? <LimitsDialog task={task} onClose={close} /> : null}
    </div>
  )
}

type TriggerStatus = NonNullable<TaskRecord['trigger_status']>

function messagesOf({ matched, dropped, expired }: TriggerStatus): string {
  const counts = `${formatCount(matched)} matched, ${formatCount(dropped)} dropped`
  return expired === 0 ? counts : `${counts}, ${formatCount(expired)} expired after a week of waiting`
}

function TriggerDialog({ task, domain, onClose }: { task: TaskRecord; domain: string; onClose: () => void }) {
  const channels = useQuery(
    query('GET /{domain_id}/channels', {
      params: { domain_id: domain },
      query: { limit: 100, order: 'name', dir: 'asc' },
    }),
  )
  const [channel, setChannel] = useState(task.trigger?.channel_id ?? '')
  const [name, setName] = useState(task.trigger?.name ?? '')
  const [rateLimit, setRateLimit] = useState(task.trigger?.rate_limit ?? '')
  const [excess, setExcess] = useState<Excess>(excessOf(task.trigger))
  const [batch, setBatch] = useState(String(task.trigger?.batch ?? ''))
  const [order, setOrder] = useState<Order>(orderOf(task.trigger))
  const [publish, setPublish] = useState(task.publish_result?.channel_id ?? '')
  const save = useFormAction(
    'The trigger was not saved',
    async () => {
      await call('PUT /tasks/{task_id}', {
        params: { task_id: task.id },
        body: {
          trigger:
            channel === '' ? null : triggerWith(task.trigger, { channel, name, rateLimit, excess, batch, order }),
          publish_result: publish === '' ? null : { ...task.publish_result, channel_id: publish },
        },
      })
      return 'Saved'
    },
    onClose,
  )
  const options = [
    ['', 'None'],
    ...(channels.data?.channels ?? []).map(({ id, name: its }): [string, string] => [id, its === '' ? id : its]),
  ] as [string, string][]
  return (
    <FormDialog title="Trigger" submit="Save" action={save} onClose={onClose}>
      <SelectField
        label="Start for each message of"
        field="trigger.channel_id"
        value={channel}
        onChange={setChannel}
        options={options}
      />
      <TextField
        label="Only records named"
        field="trigger.name"
        value={name}
        onChange={setName}
        hint="Empty: all records"
      />
      <TextField
        label="Runs at most"
        field="trigger.rate_limit"
        value={rateLimit}
        onChange={setRateLimit}
        placeholder="10/1m"
        hint="Empty: no limit"
      />
      {offersExcess(task.trigger, rateLimit) ? (
        <SelectField
          label="Messages beyond it"
          field="trigger.excess"
          value={excess}
          onChange={(value) => setExcess(value as Excess)}
          options={EXCESSES}
        />
      ) : null}
      {offersBatches(task.trigger) ? (
        <>
          <TextField
            label="Messages per run"
            field="trigger.batch"
            value={batch}
            onChange={setBatch}
            placeholder="100"
            hint="Up to 500 as a list. Empty: one, which is not a list"
          />
          <SelectField
            label="Messages run"
            field="trigger.order"
            value={order}
            onChange={(value) => setOrder(value as Order)}
            options={ORDERS}
          />
        </>
      ) : null}
      <SelectField
        label="Publish the result to"
        field="publish_result"
        value={publish}
        onChange={setPublish}
        options={options}
      />
    </FormDialog>
  )
}

function LimitsDialog({ task, onClose }: { task: TaskRecord; onClose: () => void }) {
  const [timeout, setTimeout] = useState(task.timeout)
  const [memory, setMemory] = useState(String(task.memory_limit / 1_048_576))
  const [attempts, setAttempts] = useState(String(task.retry.max_attempts ?? 1))
  const save = useFormAction(
    'The limits were not saved',
    async () => {
      await call('PUT /tasks/{task_id}', {
        params: { task_id: task.id },
        body: {
          timeout,
          memory_limit: Math.round(Number(memory) * 1_048_576),
          retry: { ...task.retry, max_attempts: Number(attempts) },
        },
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Limits and retries" submit="Save" action={save} onClose={onClose}>
      <TextField label="Time limit" field="timeout" value={timeout} onChange={setTimeout} hint="Such as 30s or 5m" />
      <TextField label="Memory in MiB" field="memory_limit" type="number" min={1} value={memory} onChange={setMemory} />
      <TextField label="Attempts" field="retry" type="number" min={1} value={attempts} onChange={setAttempts} />
    </FormDialog>
  )
}
