/**
 * How statements are sent to PostgreSQL. Statements of one turn of the event loop are sent in one write, with BEGIN before the
 * first and COMMIT after the last: each write wakes a server process, which costs more than a small statement.
 */
import type pg from 'pg'
import type { QueryResult, Statement } from '../sql.ts'
import { monotonicMs } from '../time.ts'
import { DATABASE_METRICS } from './metrics.ts'
import { socketOf } from './corked.ts'

const WRITES = new Set(['INSERT', 'UPDATE', 'DELETE', 'MERGE'])

const connections = new WeakMap<pg.PoolClient, Connection>()

/** A connection of a pool that sends statements before earlier ones are answered (`pipeline`). Call `release` after use. */
export async function takeConnection(pool: pg.Pool): Promise<Connection> {
  const askedMs = monotonicMs()
  const client = await pool.connect()
  DATABASE_METRICS.waitTime.observe({}, (monotonicMs() - askedMs) / 1000)
  const known = connections.get(client)
  if (known !== undefined) return known
  const made = new Connection(client)
  connections.set(client, made)
  return made
}

/** Runs the work with a connection of the pool. */
export async function withConnection<T>(pool: pg.Pool, work: (connection: Connection) => Promise<T>): Promise<T> {
  const connection = await takeConnection(pool)
  try {
    return await work(connection)
  } finally {
    connection.release()
  }
}

export class Connection {
  readonly #client: pg.PoolClient
  #isHeld = false
  #isBroken = false
  /** The first failure in the current transaction. */
  #failure: Error | undefined

  constructor(client: pg.PoolClient) {
    this.#client = client
  }

  async query<Row>({ text, values, name }: Statement): Promise<QueryResult<Row>> {
    try {
      const { command, rowCount, rows } = await this.#send({
        text,
        values: [...values],
        ...(name === undefined ? {} : { name }),
      })
      return { rows: rows as Row[], ...(WRITES.has(command) ? { numAffectedRows: BigInt(rowCount ?? 0) } : {}) }
    } catch (error) {
      // The error is created where the answer is read; its stack does not show the caller.
      if (error instanceof Error) Error.captureStackTrace(error)
      throw error
    }
  }

  /** A failure of BEGIN fails the statements after it. */
  begin(): void {
    this.#failure = undefined
    this.#send({ text: 'begin' }).catch(() => undefined)
  }

  /** Throws the error of the first failed statement, whether it was awaited or not. */
  async commit(): Promise<void> {
    const { command } = await this.#send({ text: 'commit' })
    // COMMIT rolls back a transaction in which a statement failed.
    if (command !== 'COMMIT') throw this.#failure ?? new Error(`COMMIT was answered by ${command}`)
  }

  async rollback(): Promise<void> {
    try {
      await this.#send({ text: 'rollback' })
    } catch (error) {
      this.#isBroken = true
      throw error
    }
  }

  release(): void {
    this.#client.release(this.#isBroken)
  }

  #send(query: { text: string; values?: unknown[]; name?: string }): Promise<pg.QueryResult> {
    this.#hold()
    return new Promise((resolve, reject) => {
      this.#client.query(query, (error: Error | null | undefined, result: pg.QueryResult) => {
        if (error === null || error === undefined) return resolve(result)
        this.#failure ??= error
        reject(error)
      })
    })
  }

  /** Holds writes until the current turn of the event loop has sent all of its statements. */
  #hold(): void {
    if (this.#isHeld) return
    this.#isHeld = true
    const socket = socketOf(this.#client)
    socket?.cork()
    process.nextTick(() => {
      this.#isHeld = false
      socket?.uncork()
    })
  }
}
