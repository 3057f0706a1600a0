/** Wire shapes of commands to devices. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id, Timestamp } from '#api/identity/index.ts'
import { documented } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatDurationMs, formatTime } from '#core/time.ts'
import type { CommandRecord, Offered } from './repository.ts'
import { ANSWERS, COMMAND_STATES } from './states.ts'

/** Bytes of a payload, and of a result, as JSON text. */
export const MAX_JSON_BYTES = 65_536
/** Open commands of a client, and the bytes of their payloads. */
export const MAX_OPEN = 100
export const MAX_OPEN_BYTES = 1_048_576
export const MAX_WAIT_MS = 60_000
export const [MIN_TIMEOUT_MS, DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS] = [1_000, 60_000, 604_800_000] as const
/** A day, and 30 of them. */
export const [DEFAULT_LIFE_MS, MAX_LIFE_MS] = [86_400_000, 2_592_000_000] as const
export const MAX_REASON_CHARS = 500
const MAX_DURATION_CHARS = 32

const duration = (description: string) =>
  Type.String({ maxLength: MAX_DURATION_CHARS, description, ...documented({ pattern: DURATION_PATTERN }) })

/** A name is one level of a topic, and one segment of a path. */
export const CommandName = Type.String({
  minLength: 1,
  maxLength: 64,
  pattern: '^[A-Za-z0-9][A-Za-z0-9._-]*$',
  description: 'What to do, in the words of the device',
})

/** Any JSON of a response. */
const AnyJson = (description: string) => Type.Unknown({ description })
/**
 * Any JSON of a request. Integers above 2^53 are kept exactly in objects, as in metadata: that is what the forms say. The document says that
 * it is any JSON, because generators of clients make types that do not compile from a union of forms (Go, openapi-generator).
 */
const GivenJson = (description: string) =>
  Type.Unsafe<unknown>({
    anyOf: [
      { type: 'object', additionalProperties: {} },
      { type: 'array', items: {} },
      { type: 'string' },
      { type: 'number' },
      { type: 'boolean' },
      { type: 'null' },
    ],
    description,
    ...documented({ anyOf: undefined }),
  })

export const IdempotencyHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({ description: 'Repeated with the same key within 24 hours, the request returns the same command' }),
  ),
})

export const NewCommand = Type.Object(
  {
    name: CommandName,
    payload: Type.Optional(GivenJson(`Parameters: any JSON of at most ${MAX_JSON_BYTES} bytes`)),
    timeout: Type.Optional(
      duration('Time from the delivery within which the device answers, 1s to 168h; defaults to 1m'),
    ),
    expires_at: Type.Optional(
      Type.String({
        maxLength: 64,
        description:
          'When it ends without an answer, delivered or not (RFC 3339), at most 30 days ahead; defaults to 24 hours',
        ...documented({ format: 'date-time' }),
      }),
    ),
  },
  { $id: 'CommandCreate' },
)
export type NewCommand = Static<typeof NewCommand>

export const WaitQuery = Type.Object({
  wait: Type.Optional(duration('Time to wait until the command has ended, at most 1m; defaults to none')),
})

export const CommandState = Type.Enum([...COMMAND_STATES], {
  $id: 'CommandState',
  description:
    '`queued` and `delivered` are open; `succeeded`, `failed` and `rejected` are answers of the device; `timed_out`, `expired` and `cancelled` are ends without one',
})

export const Command = Type.Object(
  {
    id: Id,
    domain_id: Id,
    client_id: Id,
    name: Type.String(),
    payload: Type.Optional(AnyJson('Parameters')),
    status: CommandState,
    timeout: Type.String({ description: 'Time from the delivery within which the device answers' }),
    expires_at: Timestamp,
    task_id: Type.Optional({
      ...Id,
      description: 'The task that answers it instead of the client; its run has the id of the command',
    }),
    created_by: Type.Optional(Id),
    created_at: Timestamp,
    delivered_at: Type.Optional(Timestamp),
    ended_at: Type.Optional(Timestamp),
    result: Type.Optional(AnyJson('What the device or the task answered')),
    reason: Type.Optional(Type.String({ description: 'Why it did not succeed' })),
    late_answer: Type.Optional(
      Type.Object(
        { status: Type.Enum([...ANSWERS]), at: Timestamp },
        { description: 'The first answer after the end, which changed nothing' },
      ),
    ),
  },
  { $id: 'Command', description: 'A command to a client' },
)
export type Command = Static<typeof Command>

export const CommandQuery = Type.Object({
  ...pageQuery(),
  status: Type.Optional(
    Type.String({ maxLength: 128, description: 'States, separated by commas; `open`: queued and delivered' }),
  ),
  name: Type.Optional(Type.String({ maxLength: 64, description: 'Exactly this name' })),
})
export type CommandQuery = Static<typeof CommandQuery>

export const CommandPage = Type.Object({ ...pageFields, commands: Type.Array(Command) })

/** What a device sends. */
export const CommandResult = Type.Object(
  {
    status: Type.Enum([...ANSWERS]),
    result: Type.Optional(GivenJson(`Any JSON of at most ${MAX_JSON_BYTES} bytes`)),
    reason: Type.Optional(Type.String({ maxLength: MAX_REASON_CHARS, description: 'Why it did not succeed' })),
  },
  { $id: 'CommandResult' },
)
export type CommandResult = Static<typeof CommandResult>

/** What a device gets. */
export const OfferedCommand = Type.Object(
  {
    id: Id,
    name: Type.String(),
    payload: Type.Optional(AnyJson('Parameters')),
    created_at: Timestamp,
    expires_at: Timestamp,
  },
  { $id: 'OfferedCommand' },
)
export const OfferedCommands = Type.Object({ commands: Type.Array(OfferedCommand) })

export const Answered = Type.Object(
  {
    id: Id,
    status: CommandState,
    late: Type.Boolean({ description: 'The command had ended before: the answer changed nothing' }),
  },
  { $id: 'CommandAnswered' },
)

export function presentCommand(record: CommandRecord, domainId: string): Command {
  const { taskId, deliveredAt, endedAt, reason, lateAt, lateStatus } = record
  return {
    id: record.id,
    domain_id: domainId,
    client_id: record.clientId,
    name: record.name,
    ...(record.hasPayload ? { payload: record.payload } : {}),
    status: record.status,
    timeout: formatDurationMs(record.timeoutMs),
    expires_at: formatTime(record.expiresAt),
    ...(taskId === null ? {} : { task_id: taskId }),
    ...(record.createdBy === null ? {} : { created_by: record.createdBy }),
    created_at: formatTime(record.createdAt),
    ...(deliveredAt === null ? {} : { delivered_at: formatTime(deliveredAt) }),
    ...(endedAt === null ? {} : { ended_at: formatTime(endedAt) }),
    ...(record.hasResult ? { result: record.result } : {}),
    ...(reason === null ? {} : { reason }),
    ...(lateAt === null
      ? {}
      : { late_answer: { status: lateStatus as (typeof ANSWERS)[number], at: formatTime(lateAt) } }),
  }
}

export function presentOffered({
  id,
  name,
  payload,
  hasPayload,
  createdAt,
  expiresAt,
}: Offered): Static<typeof OfferedCommand> {
  return {
    id,
    name,
    ...(hasPayload ? { payload } : {}),
    created_at: formatTime(createdAt),
    expires_at: formatTime(expiresAt),
  }
}
