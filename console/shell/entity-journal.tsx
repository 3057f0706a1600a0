/** The journal of one entity, and what a user did. */
import { useQuery } from '@tanstack/react-query'
import type { UseQueryResult } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import type { ReactNode } from 'react'
import type { Answer } from '../api/call.ts'
import { formatJson } from '../api/json.ts'
import { query } from '../api/queries.ts'
import type { JournalItem, Operations } from '../api/operations.ts'
import { Button } from '../design/controls.tsx'
import { Card, Empty, Time } from '../design/display.tsx'
import { Dialog } from '../design/layers.tsx'
import { describeChange, nameIn } from './changes.ts'
import { JournalRecord, subjectPath } from './journal-record.tsx'
import { UserName, isNamedType, useNameOf } from './names.tsx'
import type { NamedType } from './names.tsx'
import { QueryView } from './states.tsx'

const PAGE = 50

type JournalPage = Answer<'GET /{domain_id}/journal/{entity_type}/{entity_id}'>

type EntityProps = {
  domain: string
  type: Operations['GET /{domain_id}/journal/{entity_type}/{entity_id}']['params']['entity_type']
  id: string
}

/** The journal of an entity over the list that it is in. */
export function JournalDrawer({ name, onClose, children }: { name: string; onClose: () => void; children: ReactNode }) {
  return (
    <Dialog title={`Journal of ${name}`} kind="drawer" onClose={onClose}>
      {children}
    </Dialog>
  )
}

/** `owner`: the domain of the worker; without one, administrators of the platform read it. */
export function WorkerJournal({ id, owner }: { id: string; owner: string | undefined }) {
  return owner === undefined ? (
    <PlatformWorkerJournal id={id} />
  ) : (
    <EntityJournal domain={owner} type="worker" id={id} />
  )
}

function PlatformWorkerJournal({ id }: { id: string }) {
  const [offset, setOffset] = useState(0)
  const result = useQuery(
    query('GET /journal/worker/{worker_id}', {
      params: { worker_id: id },
      query: { limit: PAGE, offset, with_attributes: true },
    }),
  )
  return <Records result={result} offset={offset} onOffset={setOffset} />
}

export type JournalFilters = Pick<
  Operations['GET /{domain_id}/journal/{entity_type}/{entity_id}']['query'],
  'operation' | 'from' | 'to' | 'sessions'
>

export function EntityJournal({ domain, type, id, filters = {} }: EntityProps & { filters?: JournalFilters }) {
  const [offset, setOffset] = useState(0)
  const given = formatJson(filters)
  useEffect(() => setOffset(0), [given])
  const result = useQuery(
    query('GET /{domain_id}/journal/{entity_type}/{entity_id}', {
      params: { domain_id: domain, entity_type: type, entity_id: id },
      query: { ...filters, limit: PAGE, offset, with_attributes: true },
    }),
  )
  return <Records result={result} domain={domain} entity={`${type}:${id}`} offset={offset} onOffset={setOffset} />
}

/** What the user did in all domains, with logins. */
export function UserJournal({ id }: { id: string }) {
  const [offset, setOffset] = useState(0)
  const result = useQuery(
    query('GET /journal/user/{user_id}', {
      params: { user_id: id },
      query: { limit: PAGE, offset, with_attributes: true },
    }),
  )
  return <Records result={result} title="Activity" offset={offset} onOffset={setOffset} />
}

/** The change in words, as a link to what it is about. */
function Subject({ domain, item }: { domain: string | undefined; item: JournalItem }) {
  const [type = ''] = item.operation.split('.')
  const id = item.attributes?.['id']
  return domain !== undefined && nameIn(item) === undefined && isNamedType(type) && typeof id === 'string' ? (
    <NamedSubject domain={domain} item={item} type={type} id={id} />
  ) : (
    <Described domain={domain} item={item} />
  )
}

/** A record that has only the id of its subject, with the name of today. */
function NamedSubject({ domain, item, type, id }: { domain: string; item: JournalItem; type: NamedType; id: string }) {
  const name = useNameOf(type, domain, id)
  return <Described domain={domain} item={item} {...(name === undefined ? {} : { name })} />
}

function Described({ domain, item, name }: { domain: string | undefined; item: JournalItem; name?: string }) {
  const path = domain === undefined ? undefined : subjectPath(domain, item)
  const words = describeChange(item, name)
  return path === undefined ? words : <Link to={path}>{words}</Link>
}

function Records({
  result,
  domain,
  entity,
  title,
  offset,
  onOffset,
}: {
  result: UseQueryResult<JournalPage>
  /** Undefined where records are of several domains, or of none. */
  domain?: string | undefined
  entity?: string
  title?: string
  offset: number
  onOffset: (offset: number) => void
}) {
  const [shown, setShown] = useState<JournalItem>()
  return (
    <QueryView result={result} {...(entity === undefined ? {} : { entity })}>
      {({ journals, total }) => (
        <Card flush {...(title === undefined ? {} : { title })}>
          {journals.length === 0 ? <Empty icon="journal" title="No changes" /> : null}
          <ol aria-label="Changes">
            {journals.map((item) => (
              <li key={item.id} className="list-row">
                <div className="grow clip wraps-on-phone" dir="auto">
                  <Subject domain={domain} item={item} />
                </div>
                {title === undefined && typeof item.attributes?.['user_id'] === 'string' ? (
                  <span className="muted small">
                    <UserName id={item.attributes['user_id']} />
                  </span>
                ) : null}
                <span className="muted small only-desktop">
                  <code>{item.operation}</code>
                </span>
                <span className="muted small">
                  <Time at={item.occurred_at} />
                </span>
                <Button
                  small
                  kind="quiet"
                  icon="more"
                  label={`Details of ${item.operation}`}
                  onClick={() => setShown(item)}
                />
              </li>
            ))}
          </ol>
          {total > PAGE ? (
            <div className="table-foot">
              <span>
                {offset + 1} to {Math.min(offset + PAGE, total)} of {total}
              </span>
              <span className="row">
                <Button
                  small
                  disabledReason={offset === 0 ? 'This is the newest page' : undefined}
                  onClick={() => onOffset(Math.max(0, offset - PAGE))}
                >
                  Newer
                </Button>
                <Button
                  small
                  disabledReason={offset + PAGE >= total ? 'There is nothing older' : undefined}
                  onClick={() => onOffset(offset + PAGE)}
                >
                  Older
                </Button>
              </span>
            </div>
          ) : null}
          {shown === undefined ? null : (
            <Dialog title={describeChange(shown)} kind="drawer" onClose={() => setShown(undefined)}>
              <JournalRecord domain={domain} item={shown} />
            </Dialog>
          )}
        </Card>
      )}
    </QueryView>
  )
}
