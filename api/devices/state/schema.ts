/** Wire shapes of the states of devices. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Timestamp } from '#api/identity/index.ts'
import { ErrorBody, documented } from '#http/index.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import { MAX_DOCUMENT_BYTES, MAX_DOCUMENT_LEVELS } from './document.ts'
import type { ListedState, StateProgress, StateRecord } from './repository.ts'

const AnyFields = { type: 'object', additionalProperties: {} } as const
const documentOf = (description: string) => Type.Unsafe<Record<string, unknown>>({ ...AnyFields, description })

export const LIMITS = `At most ${MAX_DOCUMENT_BYTES} bytes of JSON and ${MAX_DOCUMENT_LEVELS} levels`

export const StateName = Type.String({
  maxLength: 64,
  description: 'Name of the document: letters, digits, dots, underscores and hyphens',
})

export const DeviceState = Type.Object(
  {
    name: Type.Optional(Type.String({ description: 'Absent for the document without a name' })),
    desired: documentOf('What the device should be, set by users'),
    reported: documentOf('What the device says that it is'),
    delta: documentOf('The part of `desired` that `reported` does not equal'),
    version: Type.Integer({
      description: 'Grows with each change, also over a deletion. 0: the document was never written',
    }),
    desired_at: Type.Optional(Timestamp),
    reported_at: Type.Optional(Timestamp),
  },
  { $id: 'DeviceState', description: 'A document of the state of a client' },
)
export type DeviceState = Static<typeof DeviceState>

/** The error of a change with another version than the present one. */
export const StateConflict = Type.Object(
  { ...ErrorBody.properties, current: DeviceState },
  { $id: 'DeviceStateConflict', description: 'The document has another version: `current` is the document' },
)

export const DeviceStates = Type.Object(
  {
    states: Type.Array(
      Type.Object({
        name: Type.String({ description: 'Empty for the document without a name' }),
        version: Type.Integer(),
        in_sync: Type.Boolean({ description: 'True when nothing of `desired` differs from `reported`' }),
        desired_at: Type.Optional(Timestamp),
        reported_at: Type.Optional(Timestamp),
      }),
    ),
  },
  { $id: 'DeviceStates', description: 'The documents of one client' },
)
export type DeviceStates = Static<typeof DeviceStates>

/** A merge patch of one side, or the whole side. */
export const StateBody = documentOf(`${LIMITS}. In a PATCH, null removes a field (RFC 7396)`)

export const IfMatch = Type.Object({
  'if-match': Type.Optional(
    Type.String({ description: 'The version that the change is based on; another version of the document: 412' }),
  ),
})

/** The clients of a change or of a count: those with the tag, or in the group. */
export const SelectionQuery = Type.Object({
  tag: Type.Optional(Type.String({ maxLength: 1024, description: 'Clients with this tag' })),
  group: Type.Optional(Type.String({ maxLength: 36, description: 'Clients whose parent is the group with this id' })),
  name: Type.Optional(StateName),
})
export type SelectionQuery = Static<typeof SelectionQuery>

export const StateChanges = Type.Object(
  {
    total: Type.Integer({ description: 'Clients that were selected' }),
    changed: Type.Integer({ description: 'Clients whose document is another one now' }),
  },
  { $id: 'DeviceStateChanges', description: 'Result of a change of many documents' },
)

export const StateProgressAnswer = Type.Object(
  {
    total: Type.Integer({ description: 'Clients that were selected, also those without the document' }),
    in_sync: Type.Integer({ description: 'Clients that report everything that is desired' }),
    pending: Type.Integer({ description: 'Clients that have reported, and differ from what is desired' }),
    never_seen: Type.Integer({ description: 'Clients that differ from what is desired, and never reported' }),
  },
  { $id: 'DeviceStateProgress', description: 'How far clients are with what is desired' },
)

const timesOf = ({ desiredAt, reportedAt }: Pick<StateRecord, 'desiredAt' | 'reportedAt'>) => ({
  ...(desiredAt === null ? {} : { desired_at: formatTime(desiredAt) }),
  ...(reportedAt === null ? {} : { reported_at: formatTime(reportedAt) }),
})

export function presentState(state: StateRecord): DeviceState {
  const { name, desired, reported, delta, version } = state
  return { ...(name === '' ? {} : { name }), desired, reported, delta, version, ...timesOf(state) }
}

export function presentStates(states: readonly ListedState[]): DeviceStates {
  return {
    states: states.map((one) => ({
      name: one.name,
      version: one.version,
      in_sync: one.isInSync,
      ...timesOf(one),
    })),
  }
}

export const presentProgress = ({ total, inSync, pending, neverSeen }: StateProgress) => ({
  total,
  in_sync: inSync,
  pending,
  never_seen: neverSeen,
})

export const WaitQuery = Type.Object({
  wait: Type.Optional(
    Type.String({
      maxLength: 32,
      description: 'Time to wait until the document has another version, at most 1m; defaults to none',
      ...documented({ pattern: DURATION_PATTERN }),
    }),
  ),
  version: Type.Optional(
    Type.Integer({
      minimum: 0,
      description: 'With `wait`: the version that the caller has; defaults to the current one',
    }),
  ),
})
