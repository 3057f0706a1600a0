/** One alarm: what raised it, its series around that time, who takes care of it, and what was done with it. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useMemo, useState } from 'react'
import type { ReactNode } from 'react'
import { call } from '../../../api/call.ts'
import type { Answer } from '../../../api/call.ts'
import type { Alarm } from '../../../api/operations.ts'
import { query } from '../../../api/queries.ts'
import { Button, Id, Menu, SelectField, TextArea, TextField } from '../../../design/controls.tsx'
import { Card, Facts, Skeleton, Time, counted, formatCount } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { useAction, useFormAction } from '../../../shell/action.ts'
import { formatChoice } from '../../../shell/chosen-series.ts'
import { Confirm } from '../../../shell/confirm.tsx'
import { PageForm } from '../../../shell/page-form.tsx'
import { useDomainDenied } from '../../../shell/permissions.ts'
import { useSession } from '../../../shell/session.ts'
import { ErrorState, QueryView } from '../../../shell/states.tsx'
import { useDomainId, useParam } from '../../../shell/url.ts'
import { Picture, preparePlot } from '../charts/chart.tsx'
import { useLines, useReadings } from '../charts/data.tsx'
import { stepsText } from '../charts/lines.ts'
import type { Range } from '../charts/ranges.ts'
import { seriesOf } from '../charts/series.ts'
import { AlarmClient, AlarmSeverity, AlarmStatusState } from './alarms.tsx'
import { changeAlarm } from './change.ts'
import { causeFilters, seriesText, valueOf } from './words.ts'

const REFRESH_MS = 5_000

type OfAlarm = { domain: string; alarm: Alarm }

export function AlarmScreen() {
  const domain = useDomainId()
  const id = useParam('id')
  const result = useQuery({
    ...query('GET /{domain_id}/alarms/{alarm_id}', { params: { domain_id: domain, alarm_id: id } }),
    refetchInterval: REFRESH_MS,
  })
  useEffect(() => {
    document.title = `${result.data?.text ?? 'Alarm'} · Skein`
  }, [result.data?.text])
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {(alarm) => (
        <>
          <Head domain={domain} alarm={alarm} />
          <About domain={domain} alarm={alarm} />
          {alarm.channel_id === undefined || alarm.name === '' || typeof alarm.value !== 'number' ? null : (
            <SeriesAround key={alarm.id} domain={domain} alarm={alarm} channel={alarm.channel_id} />
          )}
          <History key={`history ${alarm.id}`} domain={domain} alarm={alarm} />
        </>
      )}
    </QueryView>
  )
}

function Head({ domain, alarm }: OfAlarm) {
  const [dialog, setDialog] = useState<'assign' | 'clear' | 'delete'>()
  const denied = useDomainDenied(domain)
  const cannotUpdate = denied('alarm_update')
  const close = () => setDialog(undefined)
  const isActive = alarm.status === 'active'
  const [acknowledge, isBusy] = useAction('The alarm was not changed', async () => {
    await changeAlarm(domain, alarm.id, { status: isActive ? 'acknowledged' : 'active' })
    return isActive ? 'Acknowledged' : 'The alarm is active again'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        {alarm.text}
      </h1>
      <AlarmSeverity alarm={alarm} />
      <AlarmStatusState alarm={alarm} />
      <span className="grow" />
      {alarm.status === 'cleared' ? null : (
        <>
          <Button
            kind={isActive ? 'primary' : undefined}
            icon={isActive ? 'check' : 'refresh'}
            busy={isBusy}
            disabledReason={cannotUpdate}
            onClick={() => void acknowledge()}
          >
            {isActive ? 'Acknowledge' : 'Take back'}
          </Button>
          <Button icon="user" disabledReason={cannotUpdate} onClick={() => setDialog('assign')}>
            Assign
          </Button>
          <Button icon="ok" disabledReason={cannotUpdate} onClick={() => setDialog('clear')}>
            Clear
          </Button>
        </>
      )}
      <Menu
        label="More actions"
        icon="more"
        items={[
          {
            label: 'Delete',
            icon: 'trash',
            isDanger: true,
            disabledReason: denied('alarm_delete'),
            onSelect: () => setDialog('delete'),
          },
        ]}
      />
      {dialog === 'assign' ? <Assign domain={domain} alarm={alarm} onClose={close} /> : null}
      {dialog === 'clear' ? <Clear domain={domain} alarm={alarm} onClose={close} /> : null}
      {dialog === 'delete' ? <Delete domain={domain} alarm={alarm} onClose={close} /> : null}
    </div>
  )
}

type DialogProps = OfAlarm & { onClose: () => void }

/** Members that one page of the choice shows. */
const MAX_OFFERED = 100

function Assign({ domain, alarm, onClose }: DialogProps) {
  const session = useSession()
  const [name, setName] = useState('')
  const [chosen, setChosen] = useState(alarm.assignee_id ?? '')
  // A user who works with alarms may lack the right to see the members, and assigns alarms to themselves then.
  const { data, error } = useQuery(
    query('GET /domains/{domain_id}/users', {
      params: { domain_id: domain },
      query: { limit: MAX_OFFERED, status: 'enabled', identity: name.trim() },
      isLookup: true,
    }),
  )
  const own = session.kind === 'signed-in' ? session.userId : ''
  const options = new Map([['', 'Nobody']])
  if (own !== '') options.set(own, 'You')
  if (alarm.assignee_id !== undefined && alarm.assignee_id !== own)
    options.set(alarm.assignee_id, alarm.assignee_name ?? alarm.assignee_id)
  for (const { id, credentials } of data?.users ?? [])
    if (!options.has(id)) options.set(id, credentials?.username ?? id)
  const assign = useFormAction(
    'The alarm was not assigned',
    async () => {
      await changeAlarm(domain, alarm.id, { assignee_id: chosen })
      return chosen === '' ? 'Assigned to nobody' : 'Assigned'
    },
    onClose,
  )
  return (
    <FormDialog title="Assign the alarm" submit="Assign" action={assign} onClose={onClose}>
      {(data?.total ?? 0) > MAX_OFFERED || name !== '' ? (
        <TextField label="Find members by name" value={name} onChange={setName} />
      ) : null}
      <SelectField
        label="User"
        field="assignee_id"
        value={chosen}
        onChange={setChosen}
        options={[...options]}
        {...(error === null ? {} : { hint: 'You do not have access to the other members of the domain' })}
      />
    </FormDialog>
  )
}

function Clear({ domain, alarm, onClose }: DialogProps) {
  const clear = useFormAction(
    'The alarm was not cleared',
    async () => {
      await changeAlarm(domain, alarm.id, { status: 'cleared' })
      return 'Cleared'
    },
    onClose,
  )
  return (
    <Confirm title="Clear the alarm" submit="Clear alarm" action={clear} onClose={onClose}>
      A cleared alarm stays cleared, and only takes comments. If the condition of its rule still holds, the next message
      raises a new alarm.
    </Confirm>
  )
}

function Delete({ domain, alarm, onClose }: DialogProps) {
  const navigate = useNavigate()
  const remove = useFormAction('The alarm was not deleted', async () => {
    await call('DELETE /{domain_id}/alarms/{alarm_id}', { params: { domain_id: domain, alarm_id: alarm.id } })
    await navigate({ to: paths.alarms(domain) })
    return 'The alarm is deleted'
  })
  return (
    <Confirm title="Delete the alarm" submit="Delete alarm" action={remove} onClose={onClose}>
      Its history and its comments are deleted too. If the condition of its rule still holds, the next message raises a
      new alarm. This cannot be undone.
    </Confirm>
  )
}

const Missing = ({ children }: { children: string }) => <span className="muted">{children}</span>

function About({ domain, alarm }: OfAlarm) {
  const { channel_id: channel } = alarm
  const value = valueOf(alarm)
  const series = seriesText(alarm)
  return (
    <Card title="What is wrong">
      <Facts
        rows={[
          ['Value', value === '' ? <Missing key="value">none</Missing> : value],
          ['Condition', <code key="condition">{alarm.condition}</code>],
          [
            'Rule',
            <Link key="rule" dir="auto" to={paths.rule(domain, alarm.rule_id)}>
              {alarm.rule_name}
            </Link>,
          ],
          ['Client', <AlarmClient key="client" domain={domain} alarm={alarm} />],
          // Silence is about no channel.
          channel === undefined && alarm.channel_name === ''
            ? undefined
            : [
                'Channel',
                channel === undefined ? (
                  <Missing key="channel">deleted</Missing>
                ) : (
                  <Link key="channel" dir="auto" to={paths.channel(domain, channel)}>
                    {alarm.channel_name === '' ? <code>{channel.slice(0, 8)}</code> : alarm.channel_name}
                  </Link>
                ),
              ],
          series === '' ? undefined : ['Series', <bdi key="series">{series}</bdi>],
          alarm.cause === ''
            ? undefined
            : [
                'Cause',
                channel === undefined ? (
                  <code key="cause">{alarm.cause}</code>
                ) : (
                  <Link key="cause" to={paths.messages(domain, channel, causeFilters(alarm))}>
                    the message that raised it
                  </Link>
                ),
              ],
          ...timesOf(alarm),
          ['Id', <Id key="id" id={alarm.id} />],
        ]}
      />
    </Card>
  )
}

function timesOf(alarm: Alarm): (readonly [string, ReactNode] | undefined)[] {
  const { acknowledged_at: acknowledged, cleared_at: cleared } = alarm
  return [
    ['Raised', <Time key="first" at={alarm.first_at} />],
    [
      'Last',
      <span key="last">
        <Time at={alarm.last_at} />, {counted(alarm.count, 'time')}
      </span>,
    ],
    acknowledged === undefined
      ? undefined
      : [
          'Acknowledged',
          <span key="acknowledged">
            <Time at={acknowledged} /> by <bdi>{alarm.acknowledged_by_name ?? 'a user'}</bdi>
          </span>,
        ],
    alarm.escalations === 0 ? undefined : ['Escalated', counted(alarm.escalations, 'time')],
    [
      'Assigned to',
      alarm.assignee_id === undefined ? (
        <Missing key="assignee">nobody</Missing>
      ) : (
        <bdi key="assignee">{alarm.assignee_name ?? alarm.assignee_id}</bdi>
      ),
    ],
    alarm.maintenance_name === undefined && alarm.silenced_until === undefined
      ? undefined
      : ['Maintenance', <Maintenance key="maintenance" alarm={alarm} />],
    cleared === undefined
      ? undefined
      : [
          'Cleared',
          <span key="cleared">
            <Time at={cleared} /> by{' '}
            {alarm.cleared_by === undefined ? 'its rule' : <bdi>{alarm.cleared_by_name ?? 'a user'}</bdi>}
          </span>,
        ],
  ]
}

function Maintenance({ alarm }: { alarm: Alarm }) {
  const { maintenance_name: name, silenced_until: until } = alarm
  return (
    <span>
      {name === undefined ? 'raised in maintenance' : <bdi>{name}</bdi>}
      {until === undefined ? ', over' : null}
      {until !== undefined && alarm.status === 'cleared' ? ', nobody was notified' : null}
      {until !== undefined && alarm.status !== 'cleared' ? (
        <>
          , nobody is notified until <Time at={until} isAhead />
        </>
      ) : null}
    </span>
  )
}

/** Shown before and after the time at which the alarm was raised. */
const BEFORE_SECONDS = 1_800
const AFTER_SECONDS = 900
const CHART_PX = 220

function SeriesAround({ domain, alarm, channel }: OfAlarm & { channel: string }) {
  const { client_id: publisher = '', name, unit, subtopic, first_at: raisedAt } = alarm
  const raised = Date.parse(raisedAt) / 1_000
  const [range, setRange] = useState<Range>({ from: raised - BEFORE_SECONDS, to: raised + AFTER_SECONDS })
  const place = useMemo(() => ({ domain_id: domain, channel_id: channel }), [domain, channel])
  const chosen = useMemo(() => [seriesOf({ publisher, name, unit, subtopic })], [publisher, name, unit, subtopic])
  const { data, error } = useReadings(place, chosen, range)
  const lines = useLines(domain, data, chosen)
  useEffect(preparePlot, [])
  const all = (
    <Link className="small" to={paths.charts(domain, channel, formatChoice(chosen))}>
      All of its data
    </Link>
  )
  return (
    <Card title="Around that time" actions={all}>
      {data === undefined ? (
        error === null ? (
          <Skeleton rows={4} />
        ) : (
          <ErrorState error={error} entity={`channel:${channel}`} />
        )
      ) : lines.some(({ records }) => records > 0) ? (
        <>
          <Picture
            unit={unit}
            lines={lines}
            grid={data.grid}
            range={range}
            isUtc={false}
            heightPx={CHART_PX}
            onZoom={setRange}
            onPoint={ignorePointer}
          />
          <p className="muted small">a point is {stepsText(lines, data.grid)}</p>
        </>
      ) : (
        <p className="muted">Nothing was measured in this range.</p>
      )}
    </Card>
  )
}

const ignorePointer = () => undefined

const HISTORY = 'GET /{domain_id}/alarms/{alarm_id}/history'
const PAGE = 100
type Item = Answer<typeof HISTORY>['history'][number]

const CHANGE_WORDS: Readonly<Record<Item['change'], string>> = {
  raise: 'raised the alarm',
  unsilence: 'notified its contacts after the maintenance',
  escalate: 'escalated it: nobody had acknowledged it',
  acknowledge: 'acknowledged it',
  unacknowledge: 'took the acknowledgement back',
  assign: 'assigned it',
  comment: 'commented',
  clear: 'cleared it',
}

function History({ domain, alarm }: OfAlarm) {
  const [offset, setOffset] = useState(0)
  const result = useQuery({
    ...query(HISTORY, { params: { domain_id: domain, alarm_id: alarm.id }, query: { offset, limit: PAGE } }),
    refetchInterval: REFRESH_MS,
  })
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {({ history, total }) => (
        <Card title="History" flush>
          <ol aria-label="History">
            {history.map((item, index) => (
              <Entry key={offset + index} item={item} />
            ))}
          </ol>
          {total > PAGE ? <Pages offset={offset} total={total} onOffset={setOffset} /> : null}
          <div className="card-body">
            <CommentForm domain={domain} alarm={alarm} onAdded={() => setOffset(Math.floor(total / PAGE) * PAGE)} />
          </div>
        </Card>
      )}
    </QueryView>
  )
}

function Entry({ item }: { item: Item }) {
  return (
    <li className="list-row">
      <div className="grow">
        <div>
          <bdi>{item.actor_name ?? (item.actor_id === undefined ? 'The rule' : 'A user')}</bdi> {describeChange(item)}
        </div>
        {item.comment === undefined ? null : (
          <p dir="auto" style={{ whiteSpace: 'pre-line', overflowWrap: 'anywhere' }}>
            {item.comment}
          </p>
        )}
      </div>
      <span className="muted small">
        <Time at={item.at} />
      </span>
    </li>
  )
}

function Pages({ offset, total, onOffset }: { offset: number; total: number; onOffset: (offset: number) => void }) {
  return (
    <div className="table-foot">
      <span>
        {formatCount(offset + 1)} to {formatCount(Math.min(offset + PAGE, total))} of {formatCount(total)}
      </span>
      <span className="row">
        <Button
          small
          disabledReason={offset === 0 ? 'This is the oldest page' : undefined}
          onClick={() => onOffset(Math.max(0, offset - PAGE))}
        >
          Older
        </Button>
        <Button
          small
          disabledReason={offset + PAGE >= total ? 'There is nothing newer' : undefined}
          onClick={() => onOffset(offset + PAGE)}
        >
          Newer
        </Button>
      </span>
    </div>
  )
}

function CommentForm({ domain, alarm, onAdded }: OfAlarm & { onAdded: () => void }) {
  const [comment, setComment] = useState('')
  const send = useFormAction('The comment was not added', async () => {
    await changeAlarm(domain, alarm.id, { comment: comment.trim() })
    setComment('')
    onAdded()
  })
  const disabledReason =
    useDomainDenied(domain)('alarm_update') ?? (comment.trim() === '' ? 'Write a comment first' : undefined)
  return (
    <PageForm action={send} className="stack mid" disabledReason={disabledReason}>
      <TextArea label="Comment" field="comment" rows={3} value={comment} onChange={setComment} />
      <div className="row">
        <Button type="submit" icon="send" busy={send.isBusy} disabledReason={disabledReason}>
          Add comment
        </Button>
      </div>
    </PageForm>
  )
}

function describeChange({ change, assignee_id: id, assignee_name: name }: Item) {
  if (change !== 'assign') return CHANGE_WORDS[change]
  return (
    <>
      {CHANGE_WORDS.assign} to {id === undefined ? 'nobody' : <bdi>{name ?? 'a user'}</bdi>}
    </>
  )
}
