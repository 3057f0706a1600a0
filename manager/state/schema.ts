/** Wire shapes of the state of a task. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { textOrBytes } from '#core/bytes/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { MAX_STATE_KEY_BYTES, MAX_STATE_VALUE_BYTES } from '#guests/wasm/index.ts'
import type { StateKey, StateValue } from '../store/task-state.ts'

/** The characters of a value in base64. */
const MAX_VALUE_CHARS = Math.ceil(MAX_STATE_VALUE_BYTES / 3) * 4

const Client = Type.String({
  maxLength: MAX_STATE_KEY_BYTES,
  description: 'Publisher whose bucket it is; empty: the bucket of the task',
})
const Key = Type.String({ minLength: 1, maxLength: MAX_STATE_KEY_BYTES, description: 'At most 256 bytes' })
const Version = Type.Integer({ minimum: 0, description: 'Number of the write; each has another' })

export const StateParams = { key: Key }
export const StateQuery = Type.Object({ client: Type.Optional(Client) })
export const StateListQuery = Type.Object({
  ...pageQuery(),
  client: Type.Optional(
    Type.String({ maxLength: MAX_STATE_KEY_BYTES, description: 'Keys of this bucket alone; absent: of all' }),
  ),
})
export const StateDeleteQuery = Type.Object({
  client: Type.Optional(Client),
  version: Type.Optional(Type.Integer({ minimum: 0, description: 'Version that must be stored' })),
})

const keyFields = {
  key: Type.String(),
  client: Client,
  size: Type.Integer({ description: 'Bytes of the value' }),
  version: Version,
  updated_at: Type.String({ description: 'RFC 3339 in UTC' }),
}

const TaskStateKey = Type.Object(keyFields, { $id: 'TaskStateKey', description: 'A key of the state of a task.' })

export const TaskStatePage = Type.Object({ ...pageFields, keys: Type.Array(TaskStateKey) }, { $id: 'TaskStatePage' })

const Encoding = Type.Enum(['utf-8', 'base64'], { description: 'Form of `value`' })

export const TaskStateValue = Type.Object(
  { ...keyFields, value: Type.String(), encoding: Encoding },
  { $id: 'TaskStateValue', description: 'A value of the state of a task: text if it is UTF-8, otherwise base64.' },
)

export const TaskStateWrite = Type.Object(
  {
    value: Type.String({ maxLength: MAX_VALUE_CHARS, description: 'At most 64 KiB, after it is decoded' }),
    encoding: Type.Optional(Encoding),
    version: Type.Optional(
      Type.Integer({ minimum: 0, description: 'Version that must be stored, 0 for none; absent: any' }),
    ),
  },
  { $id: 'TaskStateWrite' },
)
export type TaskStateWrite = Static<typeof TaskStateWrite>

export function presentStateKey({ key, client, size, version, updated_at: at }: StateKey): Static<typeof TaskStateKey> {
  return { key, client, size, version, updated_at: formatTime(at) }
}

export function presentStateValue(found: StateValue): Static<typeof TaskStateValue> {
  const read = textOrBytes(found.value)
  return {
    ...presentStateKey(found),
    ...(typeof read === 'string'
      ? { value: read, encoding: 'utf-8' as const }
      : { value: read.base64, encoding: 'base64' as const }),
  }
}
