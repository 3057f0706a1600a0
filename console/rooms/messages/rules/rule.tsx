/** One rule: whether it runs, what it has done, and what it says. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import type { ReactNode } from 'react'
import { call } from '../../../api/call.ts'
import type { Rule } from '../../../api/operations.ts'
import { query } from '../../../api/queries.ts'
import { Button, CopyButton, Id, Menu } from '../../../design/controls.tsx'
import { Card, Facts, Notice, Tags, Time, counted, formatCount } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { useAction, useFormAction } from '../../../shell/action.ts'
import { Confirm } from '../../../shell/confirm.tsx'
import { WaitingSince } from '../../../shell/dead-letters.tsx'
import { BROWSER_ZONE } from '../../../shell/local-time.ts'
import { UserName } from '../../../shell/names.tsx'
import { useDomainDenied } from '../../../shell/permissions.ts'
import { QueryView } from '../../../shell/states.tsx'
import { useDomainId, useParam } from '../../../shell/url.ts'
import { AlarmSeverity } from '../alarms/alarms.tsx'
import { RuleFields } from './fields.tsx'
import { MOMENTS, SOURCE_TYPES, WINDOW_TIMES, bodyOf, formOf, lackOf } from './form.ts'
import type { Action, Moment } from './form.ts'
import { RuleContacts } from './contacts.tsx'
import { AlarmsOfRule, RuleStanding } from './rules.tsx'

const REFRESH_MS = 5_000
/** Of the clients; the server's when a rule has none. */
const DEFAULT_SHARE = 0.5

const ENABLED: Record<Rule['source']['type'], string> = {
  messages: 'Enabled: it reads messages from now on',
  silence: 'Enabled: its times begin now',
  state: 'Enabled: it looks at all clients',
  schedule: 'Enabled: it waits for its next time',
}

type OfRule = { domain: string; rule: Rule }

export function RuleScreen() {
  const domain = useDomainId()
  const id = useParam('id')
  const result = useQuery({
    ...query('GET /{domain_id}/rules/{rule_id}', { params: { domain_id: domain, rule_id: id } }),
    refetchInterval: REFRESH_MS,
  })
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Rule'} · Skein`
  }, [result.data?.name])
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {(rule) => (
        <>
          <Head domain={domain} rule={rule} />
          <Notices rule={rule} />
          <Counts domain={domain} rule={rule} />
          <Definition domain={domain} rule={rule} />
          <RuleContacts domain={domain} rule={rule} />
        </>
      )}
    </QueryView>
  )
}

function Head({ domain, rule }: OfRule) {
  const [dialog, setDialog] = useState<'edit' | 'delete'>()
  const denied = useDomainDenied(domain)
  const cannotUpdate = denied('rule_update')
  const params = { domain_id: domain, rule_id: rule.id }
  const isEnabled = rule.status === 'enabled'
  const [enable, isEnabling] = useAction('The rule was not enabled', async () => {
    await call('POST /{domain_id}/rules/{rule_id}/enable', { params, body: {} })
    return isEnabled ? 'It goes on where it stopped' : ENABLED[rule.source.type]
  })
  const [disable, isDisabling] = useAction('The rule was not disabled', async () => {
    await call('POST /{domain_id}/rules/{rule_id}/disable', { params })
    return 'Disabled: its open alarms stay'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        {rule.name}
      </h1>
      <RuleStanding rule={rule} />
      <span className="grow" />
      {isEnabled && rule.paused === undefined ? null : (
        <Button icon="play" busy={isEnabling} disabledReason={cannotUpdate} onClick={() => void enable()}>
          {isEnabled ? 'Resume' : 'Enable'}
        </Button>
      )}
      {isEnabled ? (
        <Button icon="stop" busy={isDisabling} disabledReason={cannotUpdate} onClick={() => void disable()}>
          Disable
        </Button>
      ) : null}
      <Button icon="settings" disabledReason={cannotUpdate} onClick={() => setDialog('edit')}>
        Edit
      </Button>
      <Menu
        label="More actions"
        icon="more"
        items={[
          {
            label: 'Delete',
            icon: 'trash',
            isDanger: true,
            disabledReason: denied('rule_delete'),
            onSelect: () => setDialog('delete'),
          },
        ]}
      />
      {dialog === 'edit' ? <Edit domain={domain} rule={rule} onClose={() => setDialog(undefined)} /> : null}
      {dialog === 'delete' ? <Delete domain={domain} rule={rule} onClose={() => setDialog(undefined)} /> : null}
    </div>
  )
}

type DialogProps = OfRule & { onClose: () => void }

function Edit({ domain, rule, onClose }: DialogProps) {
  const [form, setForm] = useState(() => formOf(rule, BROWSER_ZONE))
  const save = useFormAction(
    'The rule was not changed',
    async () => {
      await call('PATCH /{domain_id}/rules/{rule_id}', {
        params: { domain_id: domain, rule_id: rule.id },
        body: bodyOf(form),
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog
      title="Edit rule"
      kind="wide"
      submit="Save"
      action={save}
      onClose={onClose}
      disabledReason={lackOf(form)}
    >
      <p className="muted">Its position and its open alarms stay. From then on it acts with your rights.</p>
      <RuleFields domain={domain} form={form} onChange={setForm} />
    </FormDialog>
  )
}

function Delete({ domain, rule, onClose }: DialogProps) {
  const navigate = useNavigate()
  const remove = useFormAction('The rule was not deleted', async () => {
    await call('DELETE /{domain_id}/rules/{rule_id}', { params: { domain_id: domain, rule_id: rule.id } })
    await navigate({ to: paths.rules(domain) })
    return 'The rule is deleted'
  })
  return (
    <Confirm title={`Delete ${rule.name}`} submit="Delete rule" action={remove} onClose={onClose}>
      {rule.open_alarms === 0
        ? 'Its alarms remain as history.'
        : `${counted(rule.open_alarms, 'open alarm')} of it ${rule.open_alarms === 1 ? 'is' : 'are'} cleared, and all of its alarms remain as history.`}{' '}
      This cannot be undone.
    </Confirm>
  )
}

function Notices({ rule: { paused, last_error: error } }: { rule: Rule }) {
  return (
    <>
      {paused === undefined ? null : (
        <Notice tone="bad">
          It is paused: {paused.reason} (<Time at={paused.at} />
          ). It waits at its position, and goes on by itself when a lost right is back.
        </Notice>
      )}
      {error === undefined ? null : (
        <Notice tone="warn">
          The last error: {error.reason} (<Time at={error.at} />, {counted(error.count, 'error')} since it was changed).
        </Notice>
      )}
    </>
  )
}

const spanOf = (duration: string, none: string) => (duration === '0s' ? none : duration)

function Counts({ domain, rule }: OfRule) {
  const { behind_since: behind } = rule
  return (
    <Card title="What it has done">
      <Facts
        rows={[
          ['Evaluated', `${counted(rule.seen, 'record')} and JSON objects`],
          ['Held', `${counted(rule.matched, 'time')}`],
          ['Without a result', counted(rule.unmatchable, 'time')],
          ['Raised', counted(rule.raised, 'time')],
          ['Published, started and sent', formatCount(rule.acted)],
          ['Open alarms', <AlarmsOfRule key="alarms" domain={domain} rule={rule} />],
          ...(rule.source.type === 'schedule' ? tickRows(rule) : []),
          ['Last held', <Time key="last" at={rule.last_match_at} />],
          ['Waiting', behind === undefined ? 'none' : <WaitingSince key="waiting" at={behind} />],
          [
            'Position',
            <span key="position" className="row">
              <code>{rule.position}</code>
              <CopyButton text={rule.position} label="Copy position" />
            </span>,
          ],
        ]}
      />
    </Card>
  )
}

type Kind = Rule['named'][number]['type']

/** An entity by the name that the rule has of it; a deleted one has none. */
function Named({ domain, rule, type, id }: OfRule & { type: Kind; id: string }) {
  const name = rule.named.find((one) => one.type === type && one.id === id)?.name
  if (name === undefined)
    return (
      <span className="muted" title={id}>
        deleted
      </span>
    )
  return (
    <Link dir="auto" to={paths[type](domain, id)}>
      {name === '' ? <code>{id.slice(0, 8)}</code> : name}
    </Link>
  )
}

function Several({
  ids,
  type,
  none,
  ...of
}: OfRule & { ids: readonly string[] | undefined; type: Kind; none: string }) {
  if (ids === undefined) return none
  return (
    <span className="chips">
      {ids.map((id) => (
        <Named key={id} {...of} type={type} id={id} />
      ))}
    </span>
  )
}

function Definition({ domain, rule }: OfRule) {
  const { source } = rule
  const of = { domain, rule }
  return (
    <Card title="What it says">
      <Facts
        rows={[
          rule.description === ''
            ? undefined
            : [
                'Description',
                <span key="description" dir="auto">
                  {rule.description}
                </span>,
              ],
          ['Watches', SOURCE_TYPES.find(([one]) => one === source.type)?.[1] ?? source.type],
          ...(source.type === 'silence' ? silenceRows(source) : []),
          ...(source.type === 'schedule' ? timeRows(source) : []),
          ['Channels', <Several key="channels" {...of} ids={source.channels} type="channel" none="all" />],
          ...(source.type === 'state' ? stateRows(source) : messageRows(source)),
          source.clients === undefined
            ? undefined
            : ['Clients', <Several key="clients" {...of} ids={source.clients} type="client" none="all" />],
          source.groups === undefined
            ? undefined
            : ['Groups', <Several key="groups" {...of} ids={source.groups} type="group" none="all" />],
          source.tags === undefined ? undefined : ['Tags', <Tags key="tags" tags={source.tags} />],
          ...(rule.condition_task === undefined
            ? []
            : decidedRows(rule, <Named key="task" {...of} type="task" id={rule.condition_task} />)),
          ...(rule.condition === '' ? [] : conditionRows(rule)),
          ['Cooldown', spanOf(rule.cooldown, 'none')],
          ['Severity', <AlarmSeverity key="severity" alarm={rule} />],
          ...rule.actions.map((action, index): [string, ReactNode] => [
            `Action ${index + 1}`,
            <ActionText key={index} {...of} action={action} />,
          ]),
          [
            'Acts as',
            rule.acts_as === undefined ? 'a user who was deleted' : <UserName key="user" id={rule.acts_as} />,
          ],
          ['Id', <Id key="id" id={rule.id} />],
          [
            'Created',
            <span key="created">
              <Time at={rule.created_at} /> by <UserName id={rule.created_by} />
            </span>,
          ],
        ]}
      />
    </Card>
  )
}

type Row = [string, ReactNode]

const silenceRows = ({ after, share = DEFAULT_SHARE }: Rule['source']): Row[] => [
  ['Silent after', after],
  ['One alarm', share === 1 ? 'for each client' : `for all, above ${share * 100} % of the clients within a minute`],
]

const timeRows = ({ schedule, timezone = 'UTC', catch_up: catchUp }: Rule['source']): Row[] => [
  ['At', <code key="schedule">{schedule}</code>],
  ['Time zone', timezone],
  ['Missed times', catchUp === 'once' ? 'are caught up once' : 'are left out'],
]

const tickRows = ({ next_tick_at: next, missed_ticks: missed = 0 }: Rule): Row[] => [
  ['Next time', next === undefined ? 'none' : <Time key="next" at={next} />],
  ['Missed', counted(missed, 'time')],
]

const messageRows = ({ names, subtopic }: Rule['source']): Row[] => [
  ['Names', names === undefined ? 'all' : <Tags key="names" tags={names} />],
  ['Subtopic', subtopic === undefined ? 'all' : <code key="subtopic">{subtopic}</code>],
]

const stateRows = ({ document = '' }: Rule['source']): Row[] => [
  ['Document', document === '' ? 'the one without a name' : <code key="document">{document}</code>],
]

const conditionRows = (rule: Rule): Row[] => [
  ['Condition', <code key="condition">{rule.condition}</code>],
  ['Must hold for', spanOf(rule.for, 'it raises at once')],
  [
    'Clears when',
    rule.clear_when === '' ? 'the condition no longer holds' : <code key="clear">{rule.clear_when}</code>,
  ],
  ['That must hold for', spanOf(rule.clear_for, 'it clears at once')],
  ...(rule.source.type === 'state' ? [] : [windowsRow(rule)]),
]

const decidedRows = (rule: Rule, task: ReactNode): Row[] => [
  ['Decided by the task', task],
  ['Must hold for', spanOf(rule.for, 'it raises at once')],
  ['That must hold for', spanOf(rule.clear_for, 'it clears at once')],
]

const windowsRow = ({ window_time: time }: Rule): Row => [
  'Windows are over',
  WINDOW_TIMES.find(([one]) => one === time)?.[1] ?? time,
]

const momentsText = ({ on = ['raise'], after }: { on?: readonly Moment[]; after?: string }) =>
  MOMENTS.filter(([moment]) => on.includes(moment))
    .map(([moment, words]) => (moment === 'escalate' ? `when nobody acknowledges its alarm for ${after}` : words))
    .join(', ')

const hostOf = (url: string) => (URL.canParse(url) ? new URL(url).host : url)

function ActionText({ action, ...of }: OfRule & { action: Action }) {
  switch (action.type) {
    case 'alarm':
      return (
        <span>
          raises an alarm{action.text === undefined ? '' : ': '}
          {action.text === undefined ? null : <code>{action.text}</code>}
        </span>
      )
    case 'publish':
      return (
        <span className="prose">
          publishes to <Named {...of} type="channel" id={action.channel} />
          {action.subtopic === undefined ? null : (
            <>
              {' '}
              <code>{action.subtopic}</code>
            </>
          )}
          , {momentsText(action)}
        </span>
      )
    case 'start':
      return (
        <span className="prose">
          starts <Named {...of} type="task" id={action.task} />, {momentsText(action)}
        </span>
      )
    case 'mail':
      return (
        <span className="prose">
          sends a mail to {action.to.join(', ')}, {momentsText(action)}
        </span>
      )
    case 'webhook':
      return (
        <span className="prose">
          calls <code>{hostOf(action.url)}</code>, {momentsText(action)}
        </span>
      )
  }
}
