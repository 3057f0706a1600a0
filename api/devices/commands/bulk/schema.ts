/** Wire shapes of commands to many clients. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { ChosenId, Id, Timestamp } from '#api/identity/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatDurationMs, formatTime } from '#core/time.ts'
import type { BulkRecord } from './repository.ts'
import { NewCommand } from '../schema.ts'

export const BULK_STATES = ['running', 'stopped', 'cancelled', 'finished'] as const
/** Clients of one request, and requests of a domain that are not ended. */
export const MAX_TARGETS = 100_000
export const MAX_RUNNING = 10
const [DEFAULT_AT_ONCE, MAX_AT_ONCE] = [100, 10_000] as const
const MAX_PER_MINUTE = 60_000
const MAX_TAG_CHARS = 1_024

export const NewBulk = Type.Object(
  {
    ...NewCommand.properties,
    tag: Type.Optional(
      Type.String({ minLength: 1, maxLength: MAX_TAG_CHARS, description: 'For the clients with this tag' }),
    ),
    group: Type.Optional(ChosenId),
    at_once: Type.Integer({
      minimum: 1,
      maximum: MAX_AT_ONCE,
      default: DEFAULT_AT_ONCE,
      description: 'Commands that are open at a time, at most',
    }),
    per_minute: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MAX_PER_MINUTE, description: 'Commands that are given per minute, at most' }),
    ),
    stop_failed_percent: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 99,
        description: 'No more commands are given when more percent of the ended ones (of ten at least) did not succeed',
      }),
    ),
  },
  { $id: 'BulkCommandCreate', description: 'Exactly one of `tag` and `group`' },
)
export type NewBulk = Static<typeof NewBulk>

const count = (description: string) => Type.Integer({ minimum: 0, description })

export const BulkProgress = Type.Object(
  {
    total: count('Clients'),
    waiting: count('No command was given yet'),
    open: count('Queued or delivered'),
    refused: count('The client had too many open commands'),
    succeeded: count('Answered'),
    failed: count('Answered'),
    rejected: count('Answered'),
    timed_out: count('Not answered in time'),
    expired: count('Expired, given or not'),
    cancelled: count('Cancelled, given or not'),
  },
  { description: 'Clients that are deleted before it has ended are no longer counted' },
)
export type BulkProgress = Static<typeof BulkProgress>

export const BulkCommand = Type.Object(
  {
    id: Id,
    domain_id: Id,
    name: Type.String(),
    payload: Type.Optional(Type.Unknown({ description: 'Parameters' })),
    timeout: Type.String(),
    expires_at: Timestamp,
    tag: Type.Optional(Type.String()),
    group: Type.Optional(Id),
    at_once: Type.Integer(),
    per_minute: Type.Optional(Type.Integer()),
    stop_failed_percent: Type.Optional(Type.Integer()),
    status: Type.Enum([...BULK_STATES]),
    reason: Type.Optional(Type.String({ description: 'Why it stopped' })),
    progress: BulkProgress,
    created_by: Id,
    created_at: Timestamp,
    ended_at: Type.Optional(Timestamp),
  },
  { $id: 'BulkCommand', description: 'A command to many clients' },
)
export type BulkCommand = Static<typeof BulkCommand>

export const BulkQuery = Type.Object(pageQuery())
export type BulkQuery = Static<typeof BulkQuery>
export const BulkPage = Type.Object({ ...pageFields, commands: Type.Array(BulkCommand) })

export function presentBulk(record: BulkRecord, domainId: string): BulkCommand {
  const { tag, groupId, perMinute, stopPercent, reason, endedAt } = record
  return {
    id: record.id,
    domain_id: domainId,
    name: record.name,
    ...(record.hasPayload ? { payload: record.payload } : {}),
    timeout: formatDurationMs(record.timeoutMs),
    expires_at: formatTime(record.expiresAt),
    ...(tag === null ? {} : { tag }),
    ...(groupId === null ? {} : { group: groupId }),
    at_once: record.atOnce,
    ...(perMinute === null ? {} : { per_minute: perMinute }),
    ...(stopPercent === null ? {} : { stop_failed_percent: stopPercent }),
    status: record.status,
    ...(reason === null ? {} : { reason }),
    progress: record.progress,
    created_by: record.createdBy,
    created_at: formatTime(record.createdAt),
    ...(endedAt === null ? {} : { ended_at: formatTime(endedAt) }),
  }
}
