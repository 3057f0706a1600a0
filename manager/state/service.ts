/** The state of tasks for users: they look at what guests keep, and correct it. */
import { parseBase64 } from '#core/bytes/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import type { PageRange } from '#core/page.ts'
import { MAX_STATE_VALUE_BYTES, refusalOfKey } from '#guests/wasm/index.ts'
import type { TaskCaller } from '../access/access.ts'
import { MAX_STATE_BYTES, MAX_STATE_KEYS, findState, listState, writeState } from '../store/task-state.ts'
import type { StateGrown, StateRefused, StateValue } from '../store/task-state.ts'
import type { AmountQuotas, TakenRoom } from '../store/amount-quotas.ts'
import type { TaskStateWrite } from './schema.ts'
import type { TasksService } from '../tasks/service.ts'

/** `client` empty: the bucket of the task. */
export type StatePath = { taskId: string; client: string; key: string }

export type StateDeps = {
  database: Database
  tasks: Pick<TasksService, 'require'>
  /** Of domains: how much state their tasks have. */
  amounts: Pick<AmountQuotas, 'ready' | 'take'>
}

export class StateService {
  readonly #database: Database
  readonly #tasks: Pick<TasksService, 'require'>
  readonly #amounts: Pick<AmountQuotas, 'ready' | 'take'>

  constructor({ database, tasks, amounts }: StateDeps) {
    this.#database = database
    this.#tasks = tasks
    this.#amounts = amounts
  }

  /** Throws `not_found`. */
  async list(caller: TaskCaller, taskId: string, { client, ...range }: PageRange & { client?: string | undefined }) {
    const task = await this.#tasks.require(caller, taskId, 'task_read')
    if (client !== undefined && client !== '') requireName(client, 'client')
    return await listState(this.#database.db, task.key, client, range)
  }

  /** Throws `not_found`, also if the key has no value. */
  async get(caller: TaskCaller, { taskId, client, key }: StatePath): Promise<StateValue> {
    const task = await this.#tasks.require(caller, taskId, 'task_read')
    requireNames(client, key)
    const found = await findState(this.#database.db, { taskKey: task.key, client, key })
    if (found === undefined) throw new ServiceError('not_found', 'the key has no value')
    return found
  }

  /** Throws `not_found`, `forbidden`, `malformed`, `too_large`, `unprocessable` beyond a limit, `quota_exceeded`, and `conflict` if another version is stored. */
  async put(caller: TaskCaller, path: StatePath, { value, encoding, version }: TaskStateWrite): Promise<StateValue> {
    const bytes = encoding === 'base64' ? parseBase64(value) : Buffer.from(value)
    if (bytes === undefined) throw refusedField('/value', 'must be base64')
    if (bytes.length > MAX_STATE_VALUE_BYTES)
      throw new ServiceError('too_large', `a value must be at most ${MAX_STATE_VALUE_BYTES} bytes`)
    const stored = await this.#write(caller, path, { value: bytes, version })
    if (stored === undefined) throw new Error('a value that was written is missing')
    return stored
  }

  /** Without effect if there is none. Throws the errors of `put`. */
  async remove(caller: TaskCaller, path: StatePath, version: number | undefined): Promise<void> {
    await this.#write(caller, path, { value: null, version })
  }

  async #write(
    caller: TaskCaller,
    { taskId, client, key }: StatePath,
    change: { value: Uint8Array | null; version: number | undefined },
  ): Promise<StateValue | undefined> {
    const { key: taskKey, domainId } = await this.#tasks.require(caller, taskId, 'task_update')
    requireNames(client, key)
    if (change.value !== null)
      await this.#amounts.ready(domainId, { state_keys: 1, state_bytes: Buffer.byteLength(key) + change.value.length })
    // Writes at the same time have no more room together than one after another.
    let room: TakenRoom | undefined
    const leaveRoom = () => {
      room?.[Symbol.dispose]()
      room = undefined
    }
    const requireRoom = ({ keys, bytes }: StateGrown) => {
      room = this.#amounts.take(domainId, { state_keys: keys, state_bytes: bytes })
    }
    try {
      const stored = await this.#database.transaction(async (tx) => {
        // Of an attempt that PostgreSQL asked to repeat.
        leaveRoom()
        const refused = await writeState(tx, { taskKey, client, key, caller, requireRoom, ...change })
        if (refused !== undefined) throw refusalOf(refused)
        return await findState(tx, { taskKey, client, key })
      })
      room?.committed()
      return stored
    } finally {
      leaveRoom()
    }
  }
}

function requireNames(client: string, key: string): void {
  if (client !== '') requireName(client, 'client')
  requireName(key, 'key')
}

function requireName(text: string, name: 'client' | 'key'): void {
  const refusal = refusalOfKey(text)
  if (refusal !== undefined) throw refusedField(name, refusal.replace('a key ', ''))
}

function refusalOf(refused: StateRefused): ServiceError {
  switch (refused) {
    case 'version':
      return new ServiceError('conflict', 'another version of the value is stored')
    case 'keys':
      return new ServiceError('unprocessable', `the state of a task has at most ${MAX_STATE_KEYS} keys`)
    case 'bytes':
      return new ServiceError('unprocessable', `the state of a task has at most ${MAX_STATE_BYTES} bytes`)
    case 'no task':
      return new ServiceError('not_found', 'no such task')
  }
}
