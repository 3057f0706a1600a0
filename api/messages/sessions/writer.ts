/**
 * The writes of sessions, in batches: each batch is one transaction of set-based statements, rows in the order of their keys.
 * What a connection may not write any more, because another one took its session over, is refused alone.
 */
import { sql } from 'kysely'
import type { Database, Transaction } from '#core/database/index.ts'
import { createBatcher } from '#core/database/index.ts'
import type { Batcher } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { closeSessions } from './closing.ts'
import { openSessions } from './opening.ts'
import { forgetReceived, writeOutbound } from './outbound.ts'
import type {
  CloseSession,
  OpenSession,
  OpenedSession,
  SessionName,
  StoredOutbound,
  StoredSubscription,
} from './rows.ts'
import { deleteSubscriptions, writeSubscriptions } from './subscriptions.ts'

export type SessionWrite =
  | { kind: 'open'; session: OpenSession }
  | { kind: 'subscribe'; name: SessionName; clientKey: number; subscriptions: readonly StoredSubscription[] }
  | { kind: 'unsubscribe'; name: SessionName; filters: readonly string[] }
  | { kind: 'remember'; name: SessionName; outbound: readonly StoredOutbound[] }
  | { kind: 'release'; name: SessionName; packetId: number }
  | { kind: 'close'; session: CloseSession }

export type SessionWriter = Batcher<SessionWrite, OpenedSession | undefined>

const MAX_BATCH = 500
const MAX_QUEUED = 50_000
const ANSWER_DEADLINE_MS = 10_000

/** `node`: the process that has the connections. */
export function createSessionWriter(database: Database, node: string): SessionWriter {
  return createBatcher<SessionWrite, OpenedSession | undefined>({
    name: 'the writer of sessions',
    maxItems: MAX_BATCH,
    maxQueuedItems: MAX_QUEUED,
    answerDeadlineMs: ANSWER_DEADLINE_MS,
    write: (writes) => database.transaction((tx) => writeAll(tx, node, writes)),
  })
}

async function writeAll(
  tx: Transaction,
  node: string,
  writes: readonly SessionWrite[],
): Promise<(OpenedSession | undefined | ServiceError)[]> {
  const owned = await lockOwned(tx, writes.flatMap(nameOf))
  const refusal = new ServiceError('conflict', 'another connection took the session over')
  const outcomes = writes.map((write) => {
    const [name] = nameOf(write)
    return name === undefined || owned.has(`${name.key} ${name.epoch}`) ? undefined : refusal
  })
  const allowed = writes.filter((_, index) => outcomes[index] === undefined)
  const only = <Kind extends SessionWrite['kind']>(kind: Kind) =>
    allowed.filter((write): write is Extract<SessionWrite, { kind: Kind }> => write.kind === kind)

  await writeSubscriptions(tx, only('subscribe'))
  await deleteSubscriptions(tx, only('unsubscribe'))
  await writeOutbound(
    tx,
    only('remember').flatMap(({ name, outbound }) => outbound.map((one) => ({ ...one, sessionKey: name.key }))),
  )
  await forgetReceived(
    tx,
    only('release').map(({ name, packetId }) => ({ sessionKey: name.key, packetId })),
  )
  await closeSessions(
    tx,
    only('close').map(({ session }) => session),
  )
  const opened = await openSessions(
    tx,
    node,
    only('open').map(({ session }) => session),
  )
  let next = 0
  return writes.map((write, index) => (write.kind === 'open' ? opened[next++] : outcomes[index]))
}

function nameOf(write: SessionWrite): SessionName[] {
  if (write.kind === 'open') return []
  return [write.kind === 'close' ? write.session : write.name]
}

/** The sessions that are still of these connections, locked in the order of their keys. */
async function lockOwned(tx: Transaction, names: readonly SessionName[]): Promise<Set<string>> {
  if (names.length === 0) return new Set()
  const { rows } = await sql<{ key: number; epoch: number }>`
    SELECT key, epoch FROM mqtt_sessions
     WHERE (key, epoch) IN (SELECT * FROM unnest(${names.map(({ key }) => key)}::bigint[], ${names.map(({ epoch }) => epoch)}::bigint[]))
     ORDER BY key FOR UPDATE`.execute(tx)
  return new Set(rows.map(({ key, epoch }) => `${key} ${epoch}`))
}
