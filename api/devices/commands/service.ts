/** The rules of commands for users: who may give, see and cancel them, and how many a client may have open. */
import type { AccessPolicy, DomainAccess, Journal, Quotas, UserPrincipal } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { durationWithin } from '#core/durations.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { Slots } from '#core/slots.ts'
import { storedBytes } from '#core/stored-json.ts'
import { formatDurationMs, monotonicMs, parseInstant } from '#core/time.ts'
import { hintCommandRuns, releaseCommandRun } from '#queues/index.ts'
import type { ClientWaits } from '../device-topics/index.ts'
import { clientTable } from '../clients/repository.ts'
import type { ClientRecord } from '../clients/repository.ts'
import { idempotencyOf, usedWithAnotherBody } from './idempotency.ts'
import type { Idempotency } from './idempotency.ts'
import { entryOf } from './journal-entries.ts'
import { COMMAND_METRICS } from './metrics.ts'
import {
  countOpen,
  endCommand,
  endDueCommand,
  findCommand,
  findRepeated,
  forgetKey,
  insertCommand,
  listCommands,
  lockClient,
  lockCommand,
  removeBeyond,
} from './repository.ts'
import type { CommandRecord, NewCommandRow } from './repository.ts'
import {
  DEFAULT_LIFE_MS,
  DEFAULT_TIMEOUT_MS,
  MAX_JSON_BYTES,
  MAX_LIFE_MS,
  MAX_OPEN,
  MAX_OPEN_BYTES,
  MAX_TIMEOUT_MS,
  MAX_WAIT_MS,
  MIN_TIMEOUT_MS,
} from './schema.ts'
import type { CommandQuery, NewCommand } from './schema.ts'
import { COMMAND_STATES, OPEN_STATES, isOpen } from './states.ts'

/** Users who wait for results, of this process and of one domain. */
const MAX_WAITERS = 2_000
const MAX_WAITERS_PER_DOMAIN = 200

export type ClientAt = { domainId: string; clientId: string }
export type CommandAt = ClientAt & { commandId: string }
export type CommandOptions = {
  idempotencyKey: string | undefined
  /** How long to wait for the end of the command. */
  wait: string | undefined
  /** Aborted when the caller has gone. */
  signal: AbortSignal
}

export type CommandsDeps = {
  database: Database
  journal: Pick<Journal, 'change'>
  access: AccessPolicy
  quotas: Pick<Quotas, 'requireToday'>
  waits: ClientWaits
  bus: Bus
  /** Aborted when the process begins to stop. */
  signal: AbortSignal
}

const notFound = () => new ServiceError('not_found', 'command not found')

/** The fields of a new command from the body of a request. Throws `malformed` and `too_large`. */
export function commandOf(
  input: NewCommand,
  nowMs: number,
): Pick<NewCommandRow, 'name' | 'payload' | 'bytes' | 'timeoutMs' | 'expiresAt'> {
  const payload = input.payload === undefined ? null : JSON.stringify(input.payload)
  const bytes = storedBytes(input.payload)
  if (bytes > MAX_JSON_BYTES)
    throw new ServiceError('too_large', `the payload has ${bytes} bytes: at most ${MAX_JSON_BYTES} are accepted`)
  return {
    name: input.name,
    payload,
    bytes,
    timeoutMs:
      input.timeout === undefined
        ? DEFAULT_TIMEOUT_MS
        : durationWithin(input.timeout, '/timeout', [MIN_TIMEOUT_MS, MAX_TIMEOUT_MS]),
    expiresAt: new Date(input.expires_at === undefined ? nowMs + DEFAULT_LIFE_MS : expiryOf(input.expires_at, nowMs)),
  }
}

function expiryOf(text: string, nowMs: number): number {
  const ms = Date.parse(parseInstant(text, '/expires_at'))
  if (ms <= nowMs || ms > nowMs + MAX_LIFE_MS)
    throw refusedField('/expires_at', `must be in the future, at most ${formatDurationMs(MAX_LIFE_MS)} ahead`)
  return ms
}

/** Throws `quota_exceeded`, and names the limit. */
async function requireOpenRoom(tx: Transaction, clientKey: number, bytes: number): Promise<void> {
  const open = await countOpen(tx, clientKey)
  if (open.commands >= MAX_OPEN)
    throw new ServiceError(
      'quota_exceeded',
      `the client has ${open.commands} open commands: at most ${MAX_OPEN} are accepted`,
    )
  if (open.bytes + bytes > MAX_OPEN_BYTES)
    throw new ServiceError(
      'quota_exceeded',
      `the payloads of the client's open commands have ${open.bytes} bytes, and this one ${bytes}: at most ${MAX_OPEN_BYTES} are accepted`,
    )
}

export class CommandsService {
  readonly #deps: CommandsDeps
  readonly #waiters = new Slots({
    what: 'callers that wait for results of commands',
    max: MAX_WAITERS,
    share: MAX_WAITERS_PER_DOMAIN,
  })

  constructor(deps: CommandsDeps) {
    this.#deps = deps
  }

  /**
   * Gives a command, and waits for its end if asked. Repeated with its key, it returns the command that was given before. Throws `malformed`,
   * `too_large`, `quota_exceeded` beyond the open commands of a client, `unprocessable` for a key that was used with another request,
   * `rate_limited`.
   */
  async create(
    caller: UserPrincipal,
    at: ClientAt,
    input: NewCommand,
    { idempotencyKey, wait, signal }: CommandOptions,
  ): Promise<CommandRecord> {
    const idempotency = idempotencyOf(caller, idempotencyKey, input)
    const waitMs = wait === undefined ? 0 : durationWithin(wait, 'wait', [0, MAX_WAIT_MS])
    const { client } = await this.#enter(caller, at, 'command')
    const before = await repeatedOf(this.#deps.database.db, client.key, idempotency)
    // Before the command is given: who is refused here has given none.
    const release = waitMs === 0 ? undefined : await this.#waiters.take(client.domainKey)
    try {
      const id = before ?? (await this.#giveNew(caller, client, input, idempotency))
      if (waitMs === 0) return await this.#found(client.key, id)
      return await this.#untilEnded(client.key, id, waitMs, AbortSignal.any([signal, this.#deps.signal]))
    } finally {
      release?.()
    }
  }

  async get(caller: UserPrincipal, at: CommandAt): Promise<CommandRecord> {
    const { client } = await this.#enter(caller, at, 'read')
    return await this.#found(client.key, at.commandId)
  }

  async list(caller: UserPrincipal, at: ClientAt, query: CommandQuery): Promise<Page<CommandRecord>> {
    const status = statesOf(query.status)
    const { client } = await this.#enter(caller, at, 'read')
    const { offset, limit, name } = query
    const filter = { clientKey: client.key, status, name }
    const { total, commands, next } = await listCommands(this.#deps.database.db, filter, query)
    return { total, offset, limit, items: commands, next }
  }

  /** Idempotent. Throws `invalid_state` for a command that has ended otherwise. */
  async cancel(caller: UserPrincipal, at: CommandAt): Promise<CommandRecord> {
    const { client } = await this.#enter(caller, at, 'command')
    if (!isId(at.commandId)) throw notFound()
    const { before, after, isHanded } = await this.#deps.journal.change(caller, async (tx, record) => {
      const command = await lockCommand(tx, client.key, at.commandId)
      if (command === undefined) throw notFound()
      const { status, taskId } = command
      const isHanded = taskId !== null
      if (!isOpen(status)) return { before: status, after: status, isHanded: false }
      if (isHanded) await releaseCommandRun(tx, command.key)
      if (command.isDue) {
        const told = await endDueCommand(tx, command.key)
        record(entryOf('expire', told))
        return { before: status, after: told.status, isHanded }
      }
      await endCommand(tx, command.key, { status: 'cancelled' })
      record(entryOf('cancel', { ...command, status: 'cancelled' }))
      return { before: status, after: 'cancelled' as const, isHanded }
    })
    if (before !== after) COMMAND_METRICS.ended.add({ status: after })
    if (isHanded) hintCommandRuns(this.#deps.bus)
    if (after !== 'cancelled') throw new ServiceError('invalid_state', `the command has ended before: it is ${after}`)
    return await this.#found(client.key, at.commandId)
  }

  /** Throws `forbidden` for a domain without access and `not_found` for a client without `read`. */
  async #enter(
    caller: UserPrincipal,
    { domainId, clientId }: ClientAt,
    action: string,
  ): Promise<{ domain: DomainAccess; client: ClientRecord }> {
    const { access, database } = this.#deps
    const domain = await access.enter(caller, domainId)
    const client = isId(clientId) ? await clientTable.find(database.db, domain.domainKey, clientId) : undefined
    return { domain, client: await domain.requireOn(client, action) }
  }

  async #found(clientKey: number, id: string): Promise<CommandRecord> {
    const record = isId(id) ? await findCommand(this.#deps.database.db, clientKey, id) : undefined
    if (record === undefined) throw notFound()
    return record
  }

  /** Returns the id of the new command, or of the one that was given with the same key. */
  async #giveNew(
    caller: UserPrincipal,
    client: ClientRecord,
    input: NewCommand,
    idempotency: Idempotency | undefined,
  ): Promise<string> {
    const fields = commandOf(input, Date.now())
    await this.#deps.quotas.requireToday(client.domainKey, 'commands_per_day')
    const row = { ...fields, id: newId(), clientKey: client.key, createdBy: caller.id, idempotency }
    return await this.#give(caller, client, row)
  }

  async #give(caller: UserPrincipal, client: ClientRecord, row: NewCommandRow): Promise<string> {
    const { key: clientKey, id: clientId, domainKey } = client
    let isHanded = false
    const id = await this.#deps.journal.change(caller, async (tx, record) => {
      if (!(await lockClient(tx, clientKey))) throw new ServiceError('not_found', 'entity not found')
      const repeated = await repeatedOf(tx, clientKey, row.idempotency)
      if (repeated !== undefined) return repeated
      if (row.idempotency !== undefined) await forgetKey(tx, clientKey, row.idempotency)
      await requireOpenRoom(tx, clientKey, row.bytes)
      await removeBeyond(tx, [clientKey])
      ;({ isHanded } = await insertCommand(tx, row))
      record(entryOf('create', { domainKey, clientKey, clientId, id: row.id, name: row.name, status: 'queued' }))
      return row.id
    })
    if (id === row.id) COMMAND_METRICS.created.add({})
    if (isHanded) hintCommandRuns(this.#deps.bus)
    return id
  }

  async #untilEnded(clientKey: number, id: string, waitMs: number, signal: AbortSignal): Promise<CommandRecord> {
    const deadlineMs = monotonicMs() + waitMs
    const wait = this.#deps.waits.begin(clientKey)
    try {
      for (;;) {
        const record = await this.#found(clientKey, id)
        if (!isOpen(record.status) || signal.aborted || monotonicMs() >= deadlineMs) return record
        await wait.next(deadlineMs, signal)
      }
    } finally {
      wait.end()
    }
  }
}

/** The id of the command that was given with this key. Throws `unprocessable` if it was another one. */
async function repeatedOf(
  db: Queryable,
  clientKey: number,
  idempotency: Idempotency | undefined,
): Promise<string | undefined> {
  const found = idempotency === undefined ? undefined : await findRepeated(db, clientKey, idempotency)
  if (found?.isSame === false) throw usedWithAnotherBody()
  return found?.id
}

/** Throws `malformed`. */
function statesOf(text: string | undefined): string[] | undefined {
  if (text === undefined || text === '') return undefined
  return text.split(',').flatMap((given) => {
    const name = given.trim()
    if (name === 'open') return [...OPEN_STATES]
    if (COMMAND_STATES.some((state) => state === name)) return [name]
    throw refusedField('status', `must be open, ${COMMAND_STATES.join(', ')}, or several of them separated by commas`)
  })
}
