/** Connections of the run writer: one for each batch that is written at a time. */
import type { Client } from 'pg'

/**
 * Every statement of the writer finds its rows by an index, however few there are today. So one plan is made for each, for
 * good: planning anew took longer than a small batch, and a plan from when the table was empty would read all of it later.
 */
const PLANNING = `
  SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`

export class WriterConnections {
  readonly #connect: () => Promise<Client>
  /** Connections on which nothing is written now. */
  readonly #idle: Client[] = []
  /** Connections that have ended by themselves. */
  readonly #gone = new WeakSet<Client>()

  constructor(connect: () => Promise<Client>) {
    this.#connect = connect
  }

  async take(): Promise<Client> {
    return this.#idle.pop() ?? (await this.#open())
  }

  giveBack(connection: Client): void {
    if (!this.#gone.has(connection)) this.#idle.push(connection)
  }

  async close(): Promise<void> {
    await Promise.all(this.#idle.map((connection) => connection.end().catch(() => undefined)))
  }

  async #open(): Promise<Client> {
    // Statements of a batch that do not depend on each other are sent together: the batch waits for PostgreSQL three or
    // four times instead of once per statement.
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
