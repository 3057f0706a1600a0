/** Connections of the run writer: one for each concurrent batch. */
import type { Client } from 'pg'

/**
 * Every statement of the writer finds its rows by an index, also in small tables. So one generic plan is used
 * permanently: planning took longer than a small batch, and a plan from the time of an empty table would scan it later.
 */
const PLANNING = `
  SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`

export class WriterConnections {
  readonly #connect: () => Promise<Client>
  /** Idle connections. */
  readonly #idle: Client[] = []
  /** Connections that the server or the network closed. */
  readonly #gone = new WeakSet<Client>()

  constructor(connect: () => Promise<Client>) {
    this.#connect = connect
  }

  async acquire(): Promise<Client> {
    return this.#idle.pop() ?? (await this.#open())
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
    const opened = Object.assign(await this.#connect(), { pipeline: true })
    await opened.query(PLANNING)
    const leave = () => {
      this.#gone.add(opened)
      const at = this.#idle.indexOf(opened)
      if (at >= 0) this.#idle.splice(at, 1)
    }
    opened.on('end', leave)
    opened.on('error', leave)
    return opened
  }
}
