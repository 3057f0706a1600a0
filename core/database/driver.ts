/**
 * How Kysely reaches PostgreSQL. Statements that one turn of the event loop sends leave in one write, BEGIN before the first of
 * them, COMMIT behind the last: each write wakes a server process, which costs both sides more than a small statement does.
 */
import { PostgresAdapter, PostgresIntrospector, PostgresQueryCompiler } from 'kysely'
import type { CompiledQuery, DatabaseConnection, Dialect, Driver, QueryResult, TransactionSettings } from 'kysely'
import type pg from 'pg'
import { streamOf } from './together.ts'

/** A statement that each connection parses once, under this name. */
export type NamedQuery = CompiledQuery & { readonly name?: string }

/** The pool lets statements be sent before those ahead of them are answered (`pipeline`). */
export function pipelinedDialect(pool: pg.Pool): Dialect {
  return {
    createDriver: () => new PipelinedDriver(pool),
    createQueryCompiler: () => new PostgresQueryCompiler(),
    createAdapter: () => new PostgresAdapter(),
    createIntrospector: (db) => new PostgresIntrospector(db),
  }
}

class PipelinedDriver implements Driver {
  readonly #pool: pg.Pool
  readonly #connections = new WeakMap<pg.PoolClient, PipelinedConnection>()

  constructor(pool: pg.Pool) {
    this.#pool = pool
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<PipelinedConnection> {
    const client = await this.#pool.connect()
    const known = this.#connections.get(client)
    if (known !== undefined) return known
    const made = new PipelinedConnection(client)
    this.#connections.set(client, made)
    return made
  }

  async beginTransaction(connection: PipelinedConnection, settings: TransactionSettings): Promise<void> {
    if (settings.isolationLevel !== undefined || settings.accessMode !== undefined)
      throw new Error('transactions are read committed: use database.snapshot for another one')
    connection.begin()
  }

  async commitTransaction(connection: PipelinedConnection): Promise<void> {
    await connection.commit()
  }

  async rollbackTransaction(connection: PipelinedConnection): Promise<void> {
    await connection.rollback()
  }

  async releaseConnection(connection: PipelinedConnection): Promise<void> {
    connection.release()
  }

  async destroy(): Promise<void> {
    await this.#pool.end()
  }
}

class PipelinedConnection implements DatabaseConnection {
  readonly #client: pg.PoolClient
  #isHeld = false
  /** Between the end of a transaction and the release: what comes now would be written outside of it. */
  #isOver = false
  #isBroken = false
  /** Of the running transaction, the first. */
  #failure: Error | undefined

  constructor(client: pg.PoolClient) {
    this.#client = client
  }

  async executeQuery<R>(query: NamedQuery): Promise<QueryResult<R>> {
    if (this.#isOver) throw new Error('the transaction of this statement has ended')
    const { sql: text, parameters, name } = query
    try {
      const answer = await this.#send({ text, values: [...parameters], ...(name === undefined ? {} : { name }) })
      const { command, rowCount, rows } = answer
      const isWrite = command === 'INSERT' || command === 'UPDATE' || command === 'DELETE' || command === 'MERGE'
      return { rows: rows as R[], ...(isWrite ? { numAffectedRows: BigInt(rowCount ?? 0) } : {}) }
    } catch (error) {
      // It was made where the answer was read, which tells nobody who asked.
      if (error instanceof Error) Error.captureStackTrace(error)
      throw error
    }
  }

  // eslint-disable-next-line require-yield -- part of Kysely's interface
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('a connection of the pool cannot be read in pieces: take a dedicated one')
  }

  /** Its failure is that of the statements behind it. */
  begin(): void {
    this.#failure = undefined
    this.#send({ text: 'begin' }).catch(() => undefined)
  }

  /** Throws what the first statement that failed threw, awaited or not. */
  async commit(): Promise<void> {
    const answer = this.#send({ text: 'commit' })
    this.#isOver = true
    const { command } = await answer
    // A transaction in which a statement failed is rolled back by its COMMIT.
    if (command !== 'COMMIT') throw this.#failure ?? new Error(`COMMIT was answered by ${command}`)
  }

  async rollback(): Promise<void> {
    const answer = this.#send({ text: 'rollback' })
    this.#isOver = true
    try {
      await answer
    } catch (error) {
      this.#isBroken = true
      throw error
    }
  }

  release(): void {
    this.#isOver = false
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
    const stream = streamOf(this.#client)
    stream?.cork()
    process.nextTick(() => {
      this.#isHeld = false
      stream?.uncork()
    })
  }
}
