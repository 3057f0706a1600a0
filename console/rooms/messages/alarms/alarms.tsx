/** The alarms of a domain, the newest first: what is wrong now, and what was. */
import { Link } from '@tanstack/react-router'
import { useEffect, useMemo, useState } from 'react'
import { call } from '../../../api/call.ts'
import type { Query } from '../../../api/call.ts'
import type { Alarm } from '../../../api/operations.ts'
import { Button, Segments } from '../../../design/controls.tsx'
import { Card, Empty, State, Time } from '../../../design/display.tsx'
import { paths } from '../../../paths.ts'
import { BulkBar } from '../../../shell/bulk.tsx'
import { Filters } from '../../../shell/filters.tsx'
import { useDomainDenied } from '../../../shell/permissions.ts'
import { DataTable } from '../../../shell/table.tsx'
import { useDomainId, useView, useViews } from '../../../shell/url.ts'
import { changeAlarm } from './change.ts'
import { SEVERITIES, SEVERITY_WORDS, STATUS_WORDS, seriesText, valueOf } from './words.ts'

const OPERATION = 'GET /{domain_id}/alarms'
const REFRESH_MS = 5_000
const CONFLICT = 409

const STATUSES = [
  ['open', 'Open'],
  ['active', 'Active'],
  ['acknowledged', 'Acknowledged'],
  ['cleared', 'Cleared'],
  ['all', 'All'],
] as const
type Chosen = (typeof STATUSES)[number][0]

const FIELDS = [
  { name: 'severity', label: 'Severity', options: SEVERITIES },
  { name: 'rule', label: 'Rule', of: 'rule' },
  { name: 'client', label: 'Client', of: 'client' },
  { name: 'group', label: 'Group', hint: 'Clients in it, and in the groups below it', of: 'group' },
  { name: 'tag', label: 'Tag', hint: 'Of the client' },
  { name: 'assignee', label: 'Assigned to', hint: 'The id of a user, or none' },
  { name: 'silenced', label: 'Silenced', options: ['true', 'false'] },
  { name: 'from', label: 'From', isTime: true },
  { name: 'to', label: 'To', isTime: true },
] as const

/** Values of the address that filter; the text is the name of other lists. */
const FILTERED: readonly string[] = [...FIELDS.map(({ name }) => name), 'name']

/** Seconds since 1970 as the API reads a time. */
function timeOf(seconds: string | undefined): string | undefined {
  const at = Number(seconds)
  return seconds === undefined || !Number.isFinite(at) ? undefined : new Date(at * 1_000).toISOString()
}

function filtersOf(views: Record<string, string>, status: Chosen): Query<typeof OPERATION> {
  const { name, severity, rule, client, group, tag, assignee, silenced, from, to } = views
  return {
    status: status === 'all' ? undefined : status,
    text: name,
    severity,
    rule,
    client,
    group,
    tag,
    assignee,
    silenced: silenced === undefined ? undefined : silenced === 'true',
    from: timeOf(from),
    to: timeOf(to),
  } as Query<typeof OPERATION>
}

export function Alarms() {
  const domain = useDomainId()
  const [views] = useViews()
  const [given, setStatus] = useView('status', 'open')
  const status = STATUSES.find(([one]) => one === given)?.[0] ?? 'open'
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())
  const [total, setTotal] = useState(0)
  const cannotUpdate = useDomainDenied(domain)('alarm_update')
  const filters = useMemo(() => filtersOf(views, status), [views, status])
  const params = { domain_id: domain }
  const hasFilter = FILTERED.some((name) => views[name] !== undefined)
  useEffect(() => {
    document.title = 'Alarms · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Alarms</h1>
        <Link className="button" to={paths.maintenance(domain)}>
          Maintenance
        </Link>
      </div>
      <div className="row scroll-x">
        <Segments label="Status" value={status} options={STATUSES} onChange={setStatus} />
      </div>
      <Filters fields={FIELDS} placeholder="Filter by text, rule, client or name" />
      <BulkBar
        noun="alarm"
        selected={selected}
        total={total}
        onClear={() => setSelected(new Set())}
        onSelect={setSelected}
        fetchIds={async (offset, limit) => {
          const page = await call(OPERATION, { params, query: { ...filters, offset, limit } })
          return { total: page.total, ids: page.alarms.map(({ id }) => id) }
        }}
        actions={[
          // One that was cleared meanwhile needs no acknowledgement.
          { label: 'Acknowledge', run: acknowledgeIn(domain), allows: CONFLICT },
          { label: 'Clear', run: clearIn(domain), isDanger: true },
        ]}
      />
      <DataTable<Alarm>
        label="Alarms"
        queryKey={[OPERATION, params, filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call(OPERATION, { params, query: { ...filters, ...page }, signal })
          return { total: found.total, rows: found.alarms }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.alarm(domain, id)}
        onTotal={setTotal}
        {...(cannotUpdate === undefined ? { selection: { selected, onSelect: setSelected } } : {})}
        columns={columnsOf(domain)}
        empty={
          <Card>
            <NoAlarms status={status} hasFilter={hasFilter} />
          </Card>
        }
      />
    </>
  )
}

const acknowledgeIn =
  (domain: string) =>
  async ([id = '']: readonly string[]) =>
    await changeAlarm(domain, id, { status: 'acknowledged' })
const clearIn =
  (domain: string) =>
  async ([id = '']: readonly string[]) =>
    await changeAlarm(domain, id, { status: 'cleared' })

function NoAlarms({ status, hasFilter }: { status: Chosen; hasFilter: boolean }) {
  const [, setViews] = useViews()
  if (hasFilter)
    return (
      <Empty
        icon="search"
        title="No alarm matches"
        actions={
          <Button onClick={() => setViews(Object.fromEntries(FILTERED.map((name) => [name, ''])))}>
            Clear filters
          </Button>
        }
      />
    )
  if (status === 'cleared') return <Empty icon="alarm" title="No cleared alarms" />
  return (
    <Empty icon="ok" title={status === 'all' ? 'No alarms yet' : 'No open alarms'}>
      A rule raises an alarm while its condition holds for a series of a client, and clears it afterwards.
    </Empty>
  )
}

export function AlarmSeverity({ alarm }: { alarm: Pick<Alarm, 'severity'> }) {
  const [tone, word] = SEVERITY_WORDS[alarm.severity]
  return <State tone={tone}>{word}</State>
}

export function AlarmStatusState({ alarm }: { alarm: Pick<Alarm, 'status' | 'silenced_until'> }) {
  const [tone, word] = STATUS_WORDS[alarm.status]
  // In maintenance, nobody has to do something about it.
  if (alarm.status === 'active' && alarm.silenced_until !== undefined) return <State tone="idle">Silenced</State>
  return <State tone={tone}>{word}</State>
}

/** The client by the name that the alarm has of it, also after it was deleted. */
export function AlarmClient({ domain, alarm }: { domain: string; alarm: Alarm }) {
  const { client_id: id, client_name: name } = alarm
  if (id === undefined) return <span className="muted">a user or a task</span>
  return (
    <Link dir="auto" to={paths.client(domain, id)}>
      {name === '' ? <code>{id.slice(0, 8)}</code> : name}
    </Link>
  )
}

const columnsOf = (domain: string) =>
  [
    {
      key: 'severity',
      title: 'Severity',
      width: '96px',
      cell: (alarm: Alarm) => <AlarmSeverity alarm={alarm} />,
    },
    {
      key: 'text',
      title: 'Alarm',
      width: 'minmax(130px, 3fr)',
      cell: ({ id, text }: Alarm) => (
        <Link className="main" dir="auto" tabIndex={-1} title={text} to={paths.alarm(domain, id)}>
          {text}
        </Link>
      ),
    },
    {
      key: 'status',
      title: 'Status',
      width: '122px',
      isMinor: true,
      cell: (alarm: Alarm) => <AlarmStatusState alarm={alarm} />,
    },
    {
      key: 'client',
      title: 'Client',
      width: 'minmax(90px, 1fr)',
      isMinor: true,
      cell: (alarm: Alarm) => <AlarmClient domain={domain} alarm={alarm} />,
    },
    {
      key: 'value',
      title: 'Value',
      width: 'minmax(80px, 1fr)',
      isMinor: true,
      cell: (alarm: Alarm) => <span title={seriesText(alarm)}>{valueOf(alarm)}</span>,
    },
    {
      key: 'assignee',
      title: 'Assigned to',
      width: '110px',
      isMinor: true,
      cell: ({ assignee_id: id, assignee_name: name }: Alarm) =>
        id === undefined ? <span className="muted">nobody</span> : <span dir="auto">{name ?? id.slice(0, 8)}</span>,
    },
    {
      key: 'raised',
      title: 'Raised',
      width: '90px',
      // The newest is first. On a phone, the text of the alarm needs the room.
      isMinor: true,
      cell: ({ first_at: at }: Alarm) => <Time at={at} />,
    },
  ] as const
