/** One record of the journal: what it is about, who did it, and what it changed. */
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { formatJson } from '../api/json.ts'
import type { JournalItem } from '../api/operations.ts'
import { Code } from '../design/controls.tsx'
import { Details, Facts, absoluteTime } from '../design/display.tsx'
import { paths } from '../paths.ts'
import { differenceOf } from './changes.ts'
import { ChannelName, ClientName, GroupName, UserName, WorkerName } from './names.tsx'

/** Names that a record shows of a bulk change. */
const SHOWN_IDS = 20

type Named = (domain: string, id: string) => ReactNode

const NAMES: Readonly<Record<string, Named>> = {
  client: (domain, id) => <ClientName domain={domain} id={id} />,
  channel: (domain, id) => <ChannelName domain={domain} id={id} />,
  group: (domain, id) => <GroupName domain={domain} id={id} />,
  worker: (domain, id) => <WorkerName domain={domain} id={id} />,
  task: (domain, id) => <Link to={paths.task(domain, id)}>Open the task</Link>,
  workflow: (domain, id) => <Link to={paths.workflow(domain, id)}>Open the workflow</Link>,
  user: (_domain, id) => <UserName id={id} />,
  member: (_domain, id) => <UserName id={id} />,
}

const textOf = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined)

/** Returns the path of the subject of a record; undefined for what has no page, or is gone. */
export function subjectPath(domain: string, { operation, attributes = {} }: JournalItem): string | undefined {
  const [family = '', ...rest] = operation.split('.')
  if (['remove', 'delete'].includes(rest.at(-1) ?? '') && rest.length === 1) return undefined
  const id = textOf(rest.length === 1 ? attributes['id'] : attributes['entity_id'])
  const client = textOf(attributes['client_id'])
  if (family === 'mqtt' || family === 'cert') return client === undefined ? undefined : paths.client(domain, client)
  if (family === 'domain' && rest[0] === 'role') return paths.members(domain)
  if (id === undefined) return undefined
  const to = {
    client: paths.client,
    channel: paths.channel,
    group: paths.group,
    task: paths.task,
    workflow: paths.workflow,
    worker: paths.worker,
  }[family]
  return to?.(domain, id)
}

/** The entities that a record names: `client_ids` and `channel_id`, and the ids of a bulk change. */
function namedIn({ operation, attributes = {} }: JournalItem): [label: string, type: string, ids: string[]][] {
  const [family = ''] = operation.split('.')
  return Object.entries(attributes).flatMap(([key, value]): [string, string, string[]][] => {
    const type = key === 'ids' ? family : key === 'members' ? 'member' : /^([a-z]+)_ids?$/.exec(key)?.[1]
    if (type === undefined || NAMES[type] === undefined || key === 'user_id') return []
    const ids = (Array.isArray(value) ? value : [value]).flatMap((id) => textOf(id) ?? [])
    const label = `${type[0]?.toUpperCase() ?? ''}${type.slice(1)}${ids.length === 1 ? '' : 's'}`
    return ids.length === 0 ? [] : [[label, type, ids]]
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
                  {textOf(attributes['name']) ?? 'Open it'}
                </Link>,
              ],
          ...(domain === undefined ? [] : namedIn(item)).map(([label, type, ids]): readonly [string, ReactNode] => [
            label,
            <span key={label} className="row wrap">
              {ids.slice(0, SHOWN_IDS).map((id) => (
                <span key={id}>{NAMES[type]?.(domain ?? '', id)}</span>
              ))}
              {ids.length > SHOWN_IDS ? <span className="muted">and {ids.length - SHOWN_IDS} more</span> : null}
            </span>,
          ]),
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
