/** The first look at a domain: what there is, what flows, what failed, what changed. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect } from 'react'
import type { ReactNode } from 'react'
import type { Answer } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Segments } from '../../design/controls.tsx'
import { Card, Empty, Skeleton, Sparkline, Time, formatCompact, formatCount } from '../../design/display.tsx'
import { Icon } from '../../design/icon.tsx'
import { paths } from '../../paths.ts'
import { describeChange } from '../../shell/changes.ts'
import { useOpenAlarms } from '../../shell/open-alarms.tsx'
import { ErrorState, QueryView } from '../../shell/states.tsx'
import { TaskState } from '../../shell/task-state.tsx'
import { useDomainId, useView } from '../../shell/url.ts'

const REFRESH_MS = 10_000
const FAILED = '4'
const SHOWN = 6
/** Shown in place of a figure that the roles of the user do not include. */
const HIDDEN = '–'
const WINDOWS = [
  ['1h', '1 h'],
  ['6h', '6 h'],
  ['24h', '24 h'],
] as const
type Window = (typeof WINDOWS)[number][0]

export function Overview() {
  const domain = useDomainId()
  const [chosen, setWindow] = useView('window', '1h')
  const window: Window = WINDOWS.find(([one]) => one === chosen)?.[0] ?? '1h'
  const params = { domain_id: domain }
  const details = useQuery(query('GET /domains/{domain_id}', { params }))
  const overview = useQuery({
    ...query('GET /{domain_id}/overview', { params, query: { window } }),
    refetchInterval: REFRESH_MS,
  })
  useEffect(() => {
    document.title = `${details.data?.name ?? 'Domain'} · Skein`
  }, [details.data?.name])
  if (details.error !== null && details.data === undefined)
    return <ErrorState error={details.error} onRetry={() => void details.refetch()} entity={`domain:${domain}`} />
  if (details.data === undefined) return <Skeleton />
  return (
    <>
      <div className="page-head">
        <h1 className="grow">{details.data.name}</h1>
        <Segments label="Range" value={window} onChange={setWindow} options={WINDOWS} />
      </div>
      <QueryView result={overview} entity={`domain:${domain}`}>
        {(data) => <Content domain={domain} data={data} />}
      </QueryView>
    </>
  )
}

function Content({ domain, data }: { domain: string; data: Answer<'GET /{domain_id}/overview'> }) {
  const { clients, channels, messages, tasks, runs, workers, changes } = data
  const letters = lettersOf(data)
  const series = messages?.series ?? []
  const rates = series.map((one) => one.messages_per_second)
  const received = series.reduce((sum, one) => sum + one.messages, 0)
  const isConnected = clients.total > 0 && channels.total > 0
  // The first step alone depends on it, and the server measures all quotas for it.
  const usage = useQuery({
    ...query('GET /domains/{domain_id}/usage', { params: { domain_id: domain } }),
    enabled: isConnected && received === 0,
  })
  const hasMessages = received > 0 || (usage.data?.messages ?? 0) > 0
  const done = [isConnected && hasMessages, (tasks?.total ?? 0) > 0]
  return (
    <>
      <div className="figures">
        <Figure
          name="Clients online"
          to={paths.clients(domain)}
          value={`${formatCompact(clients.online)} of ${formatCompact(clients.total)}`}
        >
          <Samples series={clients.series} what="Clients online" />
        </Figure>
        <Figure
          name="Messages per second"
          to={paths.channels(domain)}
          value={messages === undefined ? HIDDEN : formatRate(rates.at(-1) ?? 0)}
        >
          <Sparkline values={rates} label={`Messages per second, at most ${formatRate(Math.max(0, ...rates))}`} />
        </Figure>
        <Figure
          name="Records per second"
          to={paths.channels(domain)}
          value={messages === undefined ? HIDDEN : formatRate(series.at(-1)?.records_per_second ?? 0)}
        >
          <Sparkline
            values={series.map((one) => one.records_per_second)}
            label={`Records per second, ${formatCount(received)} messages in all`}
          />
        </Figure>
        <Figure
          name="Failed runs"
          to={paths.runs(domain, { state: 'failed' })}
          value={runs === undefined ? HIDDEN : `${formatCompact(runs.failed)} of ${formatCompact(runs.started)}`}
        >
          <Sparkline
            values={runs?.series.map((one) => one.failed) ?? []}
            label={`Runs by their start that failed, ${formatCount(runs?.failed ?? 0)} in all`}
          />
        </Figure>
        <Figure
          name="Workers online"
          to={paths.workers(domain)}
          value={
            workers === undefined
              ? HIDDEN
              : `${formatCompact(workers.alive)}, ${formatCompact(workers.used_slots)} of ${formatCompact(workers.slots)} slots`
          }
        >
          <Samples series={workers?.series} what="Workers online" />
        </Figure>
        <AlarmsFigure domain={domain} />
        <LettersFigure domain={domain} letters={letters} />
      </div>
      {done.every(Boolean) || usage.isLoading ? null : <FirstSteps domain={domain} done={done} />}
      <div className="grid">
        {letters.total === 0 ? null : <LettersCard domain={domain} letters={letters} />}
        <Card
          title="Latest failures"
          flush
          className="half"
          actions={
            <Link className="small" to={paths.runs(domain)}>
              Runs
            </Link>
          }
        >
          <Failures domain={domain} />
        </Card>
        <Card
          title="What changed"
          flush
          className="half"
          actions={
            <Link className="small" to={paths.journal(domain)}>
              Journal
            </Link>
          }
        >
          {changes === undefined || changes.length === 0 ? (
            <Empty icon="journal" title="Nothing yet" />
          ) : (
            changes.slice(0, SHOWN).map((item) => (
              <div key={item.id} className="list-row">
                <div className="grow clip">{describeChange(item)}</div>
                <span className="muted small">
                  <Time at={item.occurred_at} />
                </span>
              </div>
            ))
          )}
        </Card>
      </div>
    </>
  )
}

type Letters = Answer<'GET /{domain_id}/overview'>['dead_letters']
type LetterSource = Letters['sources'][number]
/** A node of the version before, which serves beside this one during an upgrade, does not count them. */
const lettersOf = (data: { dead_letters?: Letters }): Letters => data.dead_letters ?? { total: 0, sources: [] }
type OfDomain = { domain: string; letters: Letters }

const LETTER_KINDS: Readonly<Record<LetterSource['kind'], string>> = {
  task: 'task',
  consumer: 'consumer',
  subscription: 'your subscription',
  rule: 'rule',
}

function pathOfLetters(domain: string, { kind, id }: LetterSource): string {
  if (kind === 'subscription') return paths.notification(id)
  if (kind === 'rule') return paths.rule(domain, id)
  return kind === 'task' ? paths.task(domain, id, 'dead-letters') : paths.consumer(domain, id, 'dead-letters')
}

/** Returns a plus if not all of them were counted. */
const moreThan = (isExact: boolean | undefined) => (isExact === false ? '+' : '')

function AlarmsFigure({ domain }: { domain: string }) {
  const count = useOpenAlarms(domain) ?? 0
  return count === 0 ? null : <Figure name="Open alarms" to={paths.alarms(domain)} value={formatCompact(count)} />
}

/** Leads to the source with the most. */
function LettersFigure({ domain, letters: { total, total_exact: isExact, sources } }: OfDomain) {
  const [first, ...others] = sources
  if (first === undefined) return null
  return (
    <Figure name="Dead letters" to={pathOfLetters(domain, first)} value={`${formatCompact(total)}${moreThan(isExact)}`}>
      <span className="muted small clip" dir="auto">
        {others.length === 0 ? first.name : `most of ${first.name}`}
      </span>
    </Figure>
  )
}

function LettersCard({ domain, letters: { total, sources } }: OfDomain) {
  const unlisted = sources.reduce((rest, { count }) => rest - count, total)
  return (
    <Card title="Dead letters" flush>
      {sources.map((source) => (
        <Link key={source.id} className="list-row" to={pathOfLetters(domain, source)}>
          <div className="grow clip" dir="auto">
            {source.name}
          </div>
          <span className="muted small">{LETTER_KINDS[source.kind]}</span>
          <span>{`${formatCount(source.count)}${moreThan(source.count_exact)}`}</span>
        </Link>
      ))}
      {unlisted === 0 ? null : (
        <div className="list-row">
          <span className="muted small">{formatCount(unlisted)} more, of other sources</span>
        </div>
      )}
    </Card>
  )
}

function Samples({ series = [], what }: { series?: readonly { count: number | null }[] | undefined; what: string }) {
  const counts = series.flatMap(({ count }) => count ?? [])
  return (
    <Sparkline
      values={series.map(({ count }) => count)}
      label={`${what}, at least ${formatCount(Math.min(...counts))}, at most ${formatCount(Math.max(...counts))}`}
    />
  )
}

function Failures({ domain }: { domain: string }) {
  const result = useQuery({
    ...query('GET /runs', { query: { domain_id: domain, state: FAILED, limit: SHOWN } }),
    refetchInterval: REFRESH_MS,
  })
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {({ runs }) =>
        runs.length === 0 ? (
          <Empty icon="ok" title="Nothing failed" />
        ) : (
          runs.map((run) => (
            <Link key={run.id} className="list-row" to={paths.run(domain, run.task_id, run.id)}>
              <div className="grow">
                <div className="clip">{run.task_name}</div>
                <div className="muted small clip">{run.error ?? run.reason}</div>
              </div>
              <TaskState state={run.state} />
              <span className="muted small">
                <Time at={run.finished_at} />
              </span>
            </Link>
          ))
        )
      }
    </QueryView>
  )
}

const formatRate = (rate: number) => (rate === 0 || rate >= 10 ? formatCompact(Math.round(rate)) : rate.toPrecision(2))

function Figure({ name, value, to, children }: { name: string; value: string; to?: string; children?: ReactNode }) {
  const content = (
    <>
      <span className="muted">{name}</span>
      <span className="figure-value">{value}</span>
      {children}
    </>
  )
  return to === undefined ? (
    <div className="figure">{content}</div>
  ) : (
    <Link className="figure" to={to}>
      {content}
    </Link>
  )
}

function FirstSteps({ domain, done }: { domain: string; done: readonly boolean[] }) {
  const steps = [
    {
      name: 'Connect a device',
      what: 'One form creates the device and its channel, and shows commands that send its first message.',
      to: paths.connectDevice(domain),
    },
    { name: 'Run a module', what: 'Upload WebAssembly and run it on a worker.', to: `${paths.tasks(domain)}?create=1` },
  ]
  return (
    <Card title={`First steps: ${formatCount(done.filter(Boolean).length)} of ${steps.length}`} flush>
      <ol className="steps">
        {steps.map(({ name, what, to }, index) => (
          <li key={name}>
            <span className={`step-mark ${done[index] === true ? 'done' : ''}`}>
              {done[index] === true ? <Icon name="check" size="small" /> : index + 1}
            </span>
            <div className="grow">
              <div>
                {done[index] === true ? <span className="muted">{name}</span> : <Link to={to}>{name}</Link>}
                {done[index] === true ? <span className="visually-hidden"> (done)</span> : null}
              </div>
              <div className="muted small">{what}</div>
            </div>
          </li>
        ))}
      </ol>
    </Card>
  )
}
