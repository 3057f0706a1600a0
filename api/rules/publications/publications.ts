/**
 * Publishes what rules recorded, with the rights that their users have then. The message is stored once under the rule and its cause, whatever
 * process takes the row and however often.
 */
import type { MessageGate } from '#api/devices/index.ts'
import { findActingUser } from '#api/identity/index.ts'
import { parseContent } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { isTemporary } from '#queues/index.ts'
import { digestOf } from '../digest.ts'
import { countErrors } from '../evaluation/repository.ts'
import { lockDomain } from '../repository.ts'
import { deferPublications, removePublications, takePublications } from './repository.ts'
import type { QueuedPublication } from './repository.ts'

const TABLE = 'rule_publications'
/** The delay of retries starts at one second and is doubled at most this often. */
const MAX_WAIT_DOUBLINGS = 6
/** What a channel refuses is tried again after this time, for as long as messages wait. */
const REFUSED_SECONDS = 60
const MAX_WAIT_MS = 7 * 86_400_000

export type PublicationDeps = {
  database: Database
  bus: Bus
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'publish' | 'rates'>
  logger: Logger
  intervalMs: number
}

export const hintRulePublications = (bus: Bus): void => hintQueue(bus, TABLE)

type Attempt = { row: QueuedPublication; waitSeconds?: number; reason?: string }

export function startRulePublications({ database, bus, gate, messages, logger, intervalMs }: PublicationDeps): {
  stop(): Promise<void>
} {
  const { db } = database

  async function publish(row: QueuedPublication): Promise<void> {
    const { domainId, channelId, subtopic, contentType, ruleId, origin, depth } = row
    const principal = await findActingUser(db, row.userKey)
    if (principal === undefined) throw new ServiceError('forbidden', 'the user of the rule was deleted or disabled')
    const access = await gate.authorize(
      { kind: 'user', principal },
      { domain: domainId, channel: channelId },
      'publish',
    )
    const body = Buffer.from(row.payload)
    const receivedAtSeconds = Date.parse(row.createdAt) / 1000
    // Counted and never delayed: they are read in order, for all domains.
    messages.rates.count(access.domainKey, body.length)
    await messages.publish({
      access,
      subtopic,
      protocol: 'rule',
      receivedAtSeconds,
      content: parseContent(contentType, body, { subtopic, receivedAtSeconds }),
      original: { contentType, body },
      envelope: { rule: { id: ruleId, depth } },
      idempotency: {
        scope: digestOf(`rule publication ${ruleId} ${origin}`),
        requestDigest: digestOf(row.payload),
      },
    })
  }

  async function attempt(row: QueuedPublication): Promise<Attempt> {
    try {
      await publish(row)
      return { row }
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error
      return refusedAttempt(row, error)
    }
  }

  return startQueueReader({
    database,
    bus,
    table: TABLE,
    intervalMs,
    onError: (error) => logger.warn({ err: error }, 'failed to publish the messages of rules; retrying'),
    async take() {
      const { rows, isFull } = await takePublications(db)
      const attempts = await Promise.all(rows.map(attempt))
      await removePublications(
        db,
        attempts.filter(({ waitSeconds }) => waitSeconds === undefined).map(({ row }) => row.key),
      )
      await deferPublications(
        db,
        attempts.flatMap(({ row, waitSeconds }) => (waitSeconds === undefined ? [] : [{ key: row.key, waitSeconds }])),
      )
      const refused = attempts.flatMap(({ row, reason }) => (reason === undefined ? [] : [{ row, reason }]))
      for (const { row, reason } of refused)
        logger.warn({ rule: row.ruleId, reason }, 'did not publish a message of a rule')
      await noteRefused(database, refused)
      return isFull
    },
  })
}

function refusedAttempt(row: QueuedPublication, error: ServiceError): Attempt {
  if (isTemporary(error)) return { row, waitSeconds: 2 ** Math.min(row.attempts - 1, MAX_WAIT_DOUBLINGS) }
  const isAccess = error.kind === 'forbidden' || error.kind === 'not_found'
  const given = `a message was not published: ${error.message}`
  if (!isAccess) return { row, reason: given }
  if (!row.isWanted) return { row, reason: `the rule was stopped: ${given}` }
  const reason = `a message waits for its publication: ${error.message}: needs publish on channel ${row.channelId}, which must exist and be enabled`
  const isOld = Date.now() - Date.parse(row.createdAt) > MAX_WAIT_MS
  return isOld ? { row, reason } : { row, reason, waitSeconds: REFUSED_SECONDS }
}

type Refused = { row: QueuedPublication; reason: string }

async function noteRefused(database: Database, refused: readonly Refused[]): Promise<void> {
  for (const [domainKey, some] of Map.groupBy(refused, ({ row }) => row.domainKey))
    await database.transaction(async (tx) => {
      await lockDomain(tx, domainKey)
      await countErrors(tx, errorsOf(some))
    })
}

function errorsOf(refused: readonly Refused[]) {
  const byRule = Map.groupBy(refused, ({ row }) => row.ruleId)
  return [...byRule].map(([ruleId, some]) => ({ ruleId, reason: some.at(-1)?.reason ?? '', count: some.length }))
}
