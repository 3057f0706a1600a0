/** Connections of the run writer: one for each concurrent batch. */
import type { Client } from 'pg'
import type { Database } from '#core/database/index.ts'

/**
 * The maximum duration of a statement, and of a pause of this process within a transaction. Without it a session whose client is gone keeps
 * its locks, and with them the changes of every manager.
 */
const STATEMENT_DEADLINE_MS = 10_000
/** A server that sends nothing for this long after a statement's deadline is unreachable. */
const SILENCE_GRACE_MS = 5000

/**
 * Every statement of the writer finds its rows by an index, also in small tables. So one generic plan is used
 * permanently: planning took longer than a small batch, and a plan from the time of an empty table would scan it later.
 */
const SETTINGS = `
  SET statement_timeout = ${STATEMENT_DEADLINE_MS}; SET idle_in_transaction_session_timeout = ${STATEMENT_DEADLINE_MS};
  SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`

export class WriterConnections {
  readonly #database: Pick<Database, 'dedicated' | 'limitSilence'>
  readonly #idle: Client[] = []
  /** Connections that the server or the network closed. */
  readonly #gone = new WeakSet<Client>()

  constructor(database: Pick<Database, 'dedicated' | 'limitSilence'>) {
    this.#database = database
  }

  async acquire(): Promise<Client> {
    return this.#idle.pop() ?? (await this.#open())
  }

  /** Closes the connection, whose server need not answer. */
  discard(connection: Client): void {
    void connection.end().catch(() => undefined)
  }

  release(connection: Client): void {
    if (!this.#gone.has(connection)) this.#idle.push(connection)
  }

  async close(): Promise<void> {
    await Promise.all(this.#idle.map((connection) => connection.end().catch(() => undefined)))
  }

  async #open(): Promise<Client> {
    // Independent statements of a batch are sent together: a batch has three or four round trips to PostgreSQL instead of
    // one per statement.
    const opened = Object.assign(await this.#database.dedicated('skein-run-writer'), { pipeline: true })
    this.#database.limitSilence(opened, STATEMENT_DEADLINE_MS + SILENCE_GRACE_MS, () => !this.#idle.includes(opened))
    const leave = () => {
      this.#gone.add(opened)
      const at = this.#idle.indexOf(opened)
      if (at >= 0) this.#idle.splice(at, 1)
    }
    opened.on('end', leave)
    opened.on('error', leave)
    await opened.query(SETTINGS)
    return opened
  }
}
