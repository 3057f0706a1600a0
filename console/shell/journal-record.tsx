/** One record of the journal: what it is about, who did it, and what it changed. */
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { formatJson } from '../api/json.ts'
import type { JournalItem } from '../api/operations.ts'
import { Code } from '../design/controls.tsx'
import { Details, Facts, absoluteTime } from '../design/display.tsx'
import { paths } from '../paths.ts'
import { differenceOf, nameIn } from './changes.ts'
import { ChannelName, ClientName, GroupName, UserName, WorkerName } from './names.tsx'

/** Names that a record shows of a bulk change. */
const SHOWN_IDS = 20

/** `name`: the one that the record has. */
type Named = (domain: string, id: string, name: string | undefined) => ReactNode

const NAMES: Readonly<Record<string, Named>> = {
  client: (domain, id) => <ClientName domain={domain} id={id} />,
  channel: (domain, id) => <ChannelName domain={domain} id={id} />,
  group: (domain, id) => <GroupName domain={domain} id={id} />,
  worker: (domain, id) => <WorkerName domain={domain} id={id} />,
  task: (domain, id, name) => <Link to={paths.task(domain, id)}>{name ?? 'Open the task'}</Link>,
  workflow: (domain, id, name) => <Link to={paths.workflow(domain, id)}>{name ?? 'Open the workflow'}</Link>,
  rule: (domain, id, name) => <Link to={paths.rule(domain, id)}>{name ?? 'Open the rule'}</Link>,
  profile: (domain) => <Link to={paths.profiles(domain)}>Open the profiles</Link>,
  user: (_domain, id) => <UserName id={id} />,
  member: (_domain, id) => <UserName id={id} />,
}

const textOf = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined)

/** Records of these are about a client, which stays when they are gone. */
const OF_CLIENTS: ReadonlySet<string> = new Set(['bootstrap', 'cert', 'client_state', 'command', 'mqtt'])
/** Pages that show all of these. */
const LISTED: Readonly<Record<string, (domain: string) => string>> = {
  domain: paths.settings,
  invitation: paths.members,
  module: paths.modules,
}
const PAGES: Readonly<Record<string, (domain: string, id: string) => string>> = {
  alarm: paths.alarm,
  channel: paths.channel,
  client: paths.client,
  consumer: paths.consumer,
  group: paths.group,
  rule: paths.rule,
  subscription: (_domain, id) => paths.notification(id),
  task: paths.task,
  worker: paths.worker,
  workflow: paths.workflow,
}

/** Returns the path of the subject of a record; undefined for what has no page, or is gone. */
export function subjectPath(domain: string, { operation, attributes = {} }: JournalItem): string | undefined {
  const [family = '', ...rest] = operation.split('.')
  if (family === 'bootstrap' && rest[0] === 'profile') return paths.profiles(domain)
  if (OF_CLIENTS.has(family)) {
    const client = textOf(attributes['client_id'] ?? (family === 'client_state' ? attributes['id'] : undefined))
    return client === undefined ? undefined : paths.client(domain, client)
  }
  if (rest.length === 1 && ['remove', 'delete'].includes(rest[0] ?? '')) return undefined
  if (family === 'domain' && rest[0] === 'role') return paths.members(domain)
  const list = LISTED[family]
  if (list !== undefined) return list(domain)
  const id = textOf(rest.length === 1 ? attributes['id'] : attributes['entity_id'])
  return id === undefined ? undefined : PAGES[family]?.(domain, id)
}

/** Keys of a record whose names do not say the type of what they are. */
const TYPES: Readonly<Record<string, string>> = { members: 'member', invitee_user_id: 'user' }
type NamedIds = { label: string; type: string; ids: string[]; name: string | undefined }

/** The entities that a record names: `client_ids` and `channel_id`, and the ids of a bulk change. */
function namedIn({ operation, attributes = {} }: JournalItem): NamedIds[] {
  const [family = ''] = operation.split('.')
  return Object.entries(attributes).flatMap(([key, value]): NamedIds[] => {
    const type =
      key === 'ids' ? (family === 'client_state' ? 'client' : family) : (TYPES[key] ?? /^([a-z]+)_ids?$/.exec(key)?.[1])
    if (type === undefined || NAMES[type] === undefined || key === 'user_id') return []
    const ids = (Array.isArray(value) ? value : [value]).flatMap((id) => textOf(id) ?? [])
    const label = `${type[0]?.toUpperCase() ?? ''}${type.slice(1)}${ids.length === 1 ? '' : 's'}`
    return ids.length === 0 ? [] : [{ label, type, ids, name: textOf(attributes[`${type}_name`]) }]
  })
}

export function JournalRecord({ domain, item }: { domain: string | undefined; item: JournalItem }) {
  const { attributes = {} } = item
  const difference = differenceOf(attributes)
  const path = domain === undefined ? undefined : subjectPath(domain, item)
  const who = textOf(attributes['user_id'])
  return (
    <>
      <Facts
        rows={[
          ['Operation', <code key="operation">{item.operation}</code>],
          ['When', absoluteTime(Date.parse(item.occurred_at))],
          who === undefined ? undefined : ['Who', <UserName key="who" id={who} />],
          path === undefined
            ? undefined
            : [
                'About',
                <Link key="subject" to={path}>
                  {nameIn(item) ?? 'Open it'}
                </Link>,
              ],
          ...(domain === undefined ? [] : namedIn(item)).map(
            ({ label, type, ids, name }): readonly [string, ReactNode] => [
              label,
              <span key={label} className="row wrap">
                {ids.slice(0, SHOWN_IDS).map((id) => (
                  <span key={id}>{NAMES[type]?.(domain ?? '', id, ids.length === 1 ? name : undefined)}</span>
                ))}
                {ids.length > SHOWN_IDS ? <span className="muted">and {ids.length - SHOWN_IDS} more</span> : null}
              </span>,
            ],
          ),
        ]}
      />
      {difference.length === 0 ? null : (
        <div className="scroll-x" tabIndex={0} role="region" aria-label="Difference">
          <table className="plain">
            <thead>
              <tr>
                <th>Field</th>
                <th>Before</th>
                <th>After</th>
              </tr>
            </thead>
            <tbody>
              {difference.map(({ field, before, after }) => (
                <tr key={field}>
                  <td>{field}</td>
                  <td>{before === undefined ? <span className="muted">none</span> : <del dir="auto">{before}</del>}</td>
                  <td>{after === undefined ? <span className="muted">none</span> : <ins dir="auto">{after}</ins>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <Details>
        <Code label="record" wrap text={formatJson(attributes, 2)} />
      </Details>
    </>
  )
}
