/**
 * How statements reach PostgreSQL. Those that one turn of the event loop sends leave in one write, BEGIN before the first of
 * them, COMMIT behind the last: each write wakes a server process, which costs both sides more than a small statement does.
 */
import type pg from 'pg'
import type { QueryResult, Statement } from '../sql.ts'
import { socketOf } from './together.ts'

const WRITES = new Set(['INSERT', 'UPDATE', 'DELETE', 'MERGE'])

const connections = new WeakMap<pg.PoolClient, Connection>()

/** A connection of a pool that lets statements be sent before those ahead of them are answered (`pipeline`); to be released. */
export async function takeConnection(pool: pg.Pool): Promise<Connection> {
  const client = await pool.connect()
  const known = connections.get(client)
  if (known !== undefined) return known
  const made = new Connection(client)
  connections.set(client, made)
  return made
}

/** Has the work done on a connection of the pool. */
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
  /** Of the running transaction, the first. */
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
      // It was made where the answer was read, which tells nobody who asked.
      if (error instanceof Error) Error.captureStackTrace(error)
      throw error
    }
  }

  /** Its failure is that of the statements behind it. */
  begin(): void {
    this.#failure = undefined
    this.#send({ text: 'begin' }).catch(() => undefined)
  }

  /** Throws what the first statement that failed threw, awaited or not. */
  async commit(): Promise<void> {
    const { command } = await this.#send({ text: 'commit' })
    // A transaction in which a statement failed is rolled back by its COMMIT.
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

  /** Until everything that runs now has sent what it has to send. */
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
