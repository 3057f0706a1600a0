/** The rules of a domain: what happens after a message, how often it did, and which of them stand still. */
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../../api/call.ts'
import type { Rule } from '../../../api/operations.ts'
import { Button } from '../../../design/controls.tsx'
import { Card, Empty, State, Time, formatCount } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { useFormAction } from '../../../shell/action.ts'
import { Filters } from '../../../shell/filters.tsx'
import { BROWSER_ZONE } from '../../../shell/local-time.ts'
import { useDomainDenied } from '../../../shell/permissions.ts'
import { DataTable } from '../../../shell/table.tsx'
import type { Column } from '../../../shell/table.tsx'
import { useDomainId, useView, useViews } from '../../../shell/url.ts'
import { AlarmSeverity } from '../alarms/alarms.tsx'
import { RuleFields } from './fields.tsx'
import { bodyOf, conditionText, formOf, lackOf, standingOf } from './form.ts'

const OPERATION = 'GET /{domain_id}/rules'
const REFRESH_MS = 5_000
const STATUSES = ['enabled', 'disabled'] as const
const FIELDS = [
  { name: 'status', label: 'Status', options: STATUSES },
  { name: 'channel', label: 'Channel', hint: 'That the rule reads by its id', of: 'channel' },
] as const

export function Rules() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('rule_create')
  const [dialog, setDialog] = useView('create')
  const [views, setViews] = useViews()
  const params = { domain_id: domain }
  const filters = { name: views['name'], channel: views['channel'], status: statusOf(views['status']) }
  const hasFilter = ['name', 'channel', 'status'].some((name) => views[name] !== undefined)
  useEffect(() => {
    document.title = 'Rules · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Rules</h1>
        <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
          New rule
        </Button>
      </div>
      <Filters fields={FIELDS} />
      <DataTable<Rule>
        label="Rules"
        queryKey={[OPERATION, params, filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const { total, rules: rows } = await call(OPERATION, { params, query: { ...filters, ...page }, signal })
          return { total, rows }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.rule(domain, id)}
        columns={columnsOf(domain)}
        empty={
          <Card>
            {hasFilter ? (
              <Empty
                icon="search"
                title="No rule matches"
                actions={<Button onClick={() => setViews({ name: '', channel: '', status: '' })}>Clear filters</Button>}
              />
            ) : (
              <Empty icon="rule" title="No rules yet">
                A rule looks at each message: while its condition holds, it raises an alarm, publishes a message or
                starts a task.
              </Empty>
            )}
          </Card>
        }
      />
      {dialog === '' || cannotCreate !== undefined ? null : <NewRule domain={domain} onClose={() => setDialog('')} />}
    </>
  )
}

const statusOf = (text: string | undefined) => STATUSES.find((one) => one === text) ?? ('all' as const)

export function RuleStanding({ rule }: { rule: Rule }) {
  const { tone, text } = standingOf(rule)
  return (
    <span title={rule.paused?.reason ?? rule.last_error?.reason}>
      <State tone={tone}>{text}</State>
    </span>
  )
}

/** The number of its open alarms, which leads to them. */
export function AlarmsOfRule({ domain, rule }: { domain: string; rule: Rule }) {
  const { id, open_alarms: count } = rule
  if (count === 0) return <span className="muted">none</span>
  return <Link to={paths.alarms(domain, { rule: id })}>{formatCount(count)}</Link>
}

const columnsOf = (domain: string): readonly Column<Rule>[] => [
  {
    key: 'name',
    title: 'Name',
    width: 'minmax(120px, 2fr)',
    cell: ({ id, name }) => (
      <Link className="main" dir="auto" tabIndex={-1} to={paths.rule(domain, id)}>
        {name}
      </Link>
    ),
  },
  { key: 'state', title: 'State', width: '160px', cell: (rule) => <RuleStanding rule={rule} /> },
  {
    key: 'condition',
    title: 'Condition',
    width: 'minmax(120px, 2fr)',
    isMinor: true,
    cell: (rule) => <code title={conditionText(rule)}>{conditionText(rule)}</code>,
  },
  {
    key: 'severity',
    title: 'Severity',
    width: '96px',
    isMinor: true,
    cell: (rule) => <AlarmSeverity alarm={rule} />,
  },
  { key: 'seen', title: 'Evaluated', width: '90px', isMinor: true, cell: ({ seen }) => formatCount(seen) },
  { key: 'matched', title: 'Held', width: '80px', isMinor: true, cell: ({ matched }) => formatCount(matched) },
  {
    key: 'alarms',
    title: 'Open alarms',
    width: '96px',
    isMinor: true,
    cell: (rule) => <AlarmsOfRule domain={domain} rule={rule} />,
  },
  {
    key: 'last',
    title: 'Last held',
    width: '90px',
    isMinor: true,
    cell: ({ last_match_at: at }) => <Time at={at} />,
  },
]

function NewRule({ domain, onClose }: { domain: string; onClose: () => void }) {
  const navigate = useNavigate()
  const [form, setForm] = useState(() => formOf(undefined, BROWSER_ZONE))
  const create = useFormAction('The rule was not created', async () => {
    const { id } = await call('POST /{domain_id}/rules', { params: { domain_id: domain }, body: bodyOf(form) })
    await navigate({ to: paths.rule(domain, id) })
  })
  return (
    <FormDialog
      title="New rule"
      kind="wide"
      submit="Create rule"
      action={create}
      onClose={onClose}
      disabledReason={lackOf(form)}
    >
      <p className="muted">It reads messages from now on, and acts with your rights.</p>
      <RuleFields domain={domain} form={form} onChange={setForm} />
    </FormDialog>
  )
}
