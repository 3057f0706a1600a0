/**
 * Writes sessions in batches: each batch is one transaction of set-based statements, with rows in the order of their keys. Writes of a
 * connection whose session was taken over are rejected individually.
 */
import type { Journal, Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { GroupCommit } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { lockClients } from './session-limit.ts'
import { closeSessions } from './closing.ts'
import { lockGroups, writePassed } from './groups.ts'
import type { SessionFacts } from './session-events.ts'
import { recordSessionEvent } from './session-events.ts'
import { openSessions } from './opening.ts'
import type { SessionLimits } from './opening.ts'
import { deleteReceived, writeOutbound } from './outbound.ts'
import type {
  CloseSession,
  GroupRef,
  OpenSession,
  OpenedSession,
  PassedMessage,
  SessionName,
  StoredOutbound,
  StoredSubscription,
} from './rows.ts'
import { deleteSubscriptions, writeSubscriptions } from './subscriptions.ts'

export type SessionWrite =
  | { kind: 'open'; session: OpenSession }
  | { kind: 'subscribe'; name: SessionName; clientKey: number; subscriptions: readonly StoredSubscription[] }
  | { kind: 'unsubscribe'; name: SessionName; filters: readonly string[] }
  | { kind: 'remember'; name: SessionName; outbound: readonly StoredOutbound[]; passed: readonly GroupPassed[] }
  | { kind: 'release'; name: SessionName; packetId: number }
  | { kind: 'close'; session: CloseSession }

/** A delivery of a group that must not be repeated. */
export type GroupPassed = PassedMessage & { group: GroupRef }

export type SessionWriter = GroupCommit<SessionWrite, OpenedSession | undefined>

const MAX_BATCH = 500
const MAX_QUEUED = 50_000
const ANSWER_DEADLINE_MS = 10_000

export type SessionWriterOptions = SessionLimits & {
  /** The process with the connections. */
  node: string
  logger: Logger
}

export function createSessionWriter(journal: Journal, options: SessionWriterOptions): SessionWriter {
  return new GroupCommit<SessionWrite, OpenedSession | undefined>({
    name: 'the writer of sessions',
    item: 'the change of a session',
    logger: options.logger,
    maxItems: MAX_BATCH,
    maxQueuedItems: MAX_QUEUED,
    answerDeadlineMs: ANSWER_DEADLINE_MS,
    commit: ({ items }) => journal.change('system', (tx, record) => writeAll(tx, record, options, items)),
  })
}

async function writeAll(
  tx: Transaction,
  record: Recorder,
  options: SessionWriterOptions,
  writes: readonly SessionWrite[],
): Promise<(OpenedSession | undefined | ServiceError)[]> {
  const { node } = options
  await lockClients(tx, [
    ...new Set(writes.flatMap((write) => (write.kind === 'open' ? [write.session.clientKey] : []))),
  ])
  const owned = await lockOwned(tx, writes.flatMap(nameOf))
  const refusal = new ServiceError('conflict', 'another connection has taken over the session')
  const remembered = writes.flatMap((write) => (write.kind === 'remember' ? write.passed : []))
  const ownGroups = await lockGroups(
    tx,
    node,
    remembered.map(({ group }) => group),
  )
  const lost = new ServiceError('conflict', 'another node serves the shared subscription')
  const outcomes = writes.map((write) => {
    const [name] = nameOf(write)
    if (name !== undefined && !owned.has(idOf(name))) return refusal
    return write.kind === 'remember' && write.passed.some(({ group }) => !ownGroups.has(group.key)) ? lost : undefined
  })
  const allowed = writes.filter((_, index) => outcomes[index] === undefined)
  recordAll(record, node, allowed, owned)
  const only = <Kind extends SessionWrite['kind']>(kind: Kind) =>
    allowed.filter((write): write is Extract<SessionWrite, { kind: Kind }> => write.kind === kind)

  await writeSubscriptions(tx, only('subscribe'))
  await deleteSubscriptions(tx, only('unsubscribe'))
  await writeOutbound(
    tx,
    only('remember').flatMap(({ name, outbound }) => outbound.map((one) => ({ ...one, sessionKey: name.key }))),
  )
  await writePassed(
    tx,
    only('remember').flatMap(({ passed }) => passed.map(({ group: { key }, ...message }) => ({ key, ...message }))),
  )
  await deleteReceived(
    tx,
    only('release').map(({ name, packetId }) => ({ sessionKey: name.key, packetId })),
  )
  await closeSessions(
    tx,
    only('close').map(({ session }) => session),
  )
  const opened = await openSessions(
    tx,
    record,
    options,
    only('open').map(({ session }) => session),
  )
  let next = 0
  return writes.map((write, index) => (write.kind === 'open' ? opened[next++] : outcomes[index]))
}

function nameOf(write: SessionWrite): SessionName[] {
  if (write.kind === 'open') return []
  return [write.kind === 'close' ? write.session : write.name]
}

function recordAll(
  record: Recorder,
  node: string,
  writes: readonly SessionWrite[],
  owned: ReadonlyMap<string, Owned>,
): void {
  for (const write of writes) {
    const [name] = nameOf(write)
    const session = name === undefined ? undefined : owned.get(idOf(name))
    if (session === undefined) continue
    if (write.kind === 'close' && session.is_connected) recordSessionEvent(record, 'disconnect', session, node)
    else if (write.kind === 'subscribe')
      recordSessionEvent(record, 'subscribe', session, node, {
        channelKeys: write.subscriptions.flatMap(({ channelKey }) => channelKey ?? []),
        topics: write.subscriptions.map(({ filter }) => filter),
      })
    else if (write.kind === 'unsubscribe')
      recordSessionEvent(record, 'unsubscribe', session, node, { topics: write.filters })
  }
}

/** A session that still belongs to the connection. It is not connected if the node was considered dead. */
type Owned = SessionFacts & { is_connected: boolean }

const idOf = ({ key, epoch }: SessionName) => `${key} ${epoch}`

/** The sessions that still belong to these connections, locked in the order of their keys. */
async function lockOwned(tx: Transaction, names: readonly SessionName[]): Promise<Map<string, Owned>> {
  if (names.length === 0) return new Map()
  const { rows } = await sql<SessionName & Owned>`
    SELECT s.key, s.epoch, s.is_connected, s.client_key, s.client_identifier, c.id AS client_id, c.domain_key
      FROM mqtt_sessions s JOIN clients c ON c.key = s.client_key
     WHERE (s.key, s.epoch) IN (SELECT * FROM unnest(${names.map(({ key }) => key)}::bigint[], ${names.map(({ epoch }) => epoch)}::bigint[]))
     ORDER BY s.key FOR UPDATE OF s`.execute(tx)
  return new Map(rows.map((row) => [idOf(row), row]))
}
