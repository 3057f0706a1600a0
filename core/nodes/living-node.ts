/**
 * The row of this process in `nodes`, with one sign of life for everything that the process holds. A node that gave none for the time
 * that its row states is dead: another one removes what it held, and then its row. A node whose row is missing was declared dead.
 */
import { hostname } from 'node:os'
import type { Database, Transaction } from '../database/index.ts'
import { newId } from '../ids.ts'
import type { Logger } from '../logging/index.ts'
import { startPeriodicRounds } from '../rounds.ts'
import type { PeriodicRounds } from '../rounds.ts'
import type { Queryable } from '../sql.ts'
import { sql } from '../sql.ts'
import { monotonicMs } from '../time.ts'
import { IS_DEAD } from './dead-nodes.ts'
import { startWatch } from './watch.ts'

/** Several signs of life, and a short outage of the database. */
const DEAD_AFTER_SECONDS = 15
/** The part of that time after which a node without changes gives a sign of life: each is a commit, which an idle disk should not have often. */
const BEAT_SHARE = 1 / 5

export type LivingNodeOptions = {
  database: Database
  logger: Logger
  /** The kind of process, such as `api`. */
  kind: string
  version: string
  /** The newest migration that the process knows. */
  migration: number
  /** Overrides for tests. */
  deadAfterSeconds?: number
}

/** The changes that are written with a sign of life, in the same transaction. */
export type Beat = {
  /** The position of this node in the log of messages. */
  position: string | undefined
  also: (tx: Transaction) => Promise<void>
}

/** The part of the name of a node that says nothing about the installation. */
export const instanceOf = (node: string) => node.slice(node.lastIndexOf('-') + 1)

export class LivingNode {
  /** Unique for each start. It contains the name of the machine, for operators only; `instanceOf` names no machine. */
  readonly id: string
  readonly deadAfterMs: number
  readonly #options: LivingNodeOptions
  readonly #mayDeclareDead: (nowMs: number) => boolean
  readonly #declaredDead = new Set<() => void>()
  #removeDead: (() => Promise<void>) | undefined
  #removing: Promise<void> | undefined
  #rounds: PeriodicRounds | undefined
  #beatenAtMs = -Infinity
  #position: string | undefined
  #isKept = false

  constructor(options: LivingNodeOptions) {
    this.#options = options
    this.id = `${options.kind}-${hostname()}-${newId().slice(-12)}`
    this.deadAfterMs = (options.deadAfterSeconds ?? DEAD_AFTER_SECONDS) * 1000
    this.#mayDeclareDead = startWatch(this.deadAfterMs, monotonicMs())
  }

  /** Resolves when the node has its row. */
  static async start(options: LivingNodeOptions): Promise<LivingNode> {
    const node = new LivingNode(options)
    await node.beat()
    const pauseMs = node.deadAfterMs * BEAT_SHARE
    node.#rounds = startPeriodicRounds({
      firstPauseMs: pauseMs,
      pauseMs,
      // Another part of the process may have given one just before, with its changes.
      round: async () => {
        if (monotonicMs() - node.#beatenAtMs >= pauseMs / 2) await node.beat()
      },
      onFailure: (error) => options.logger.debug({ err: error }, 'failed to record that the process is alive'),
    })
    return node
  }

  /** Monotonic milliseconds before the last sign of life was written. */
  get beatenAtMs(): number {
    return this.#beatenAtMs
  }

  /** The position that was last written. */
  get position(): string | undefined {
    return this.#position
  }

  /** Calls the listener after this node was declared dead, and has its row again: others have removed what it held. */
  onDeclaredDead(listener: () => void): void {
    this.#declaredDead.add(listener)
  }

  /** This process removes what dead nodes held, with this function. */
  removeDeadWith(remove: () => Promise<void>): void {
    this.#removeDead = remove
  }

  /** Gives a sign of life. Without `changes`, the position of the node stays. */
  async beat(changes?: Beat): Promise<void> {
    const { database, logger } = this.#options
    const atMs = monotonicMs()
    const said =
      changes === undefined
        ? await this.#write(database.db, undefined)
        : await database.transaction(async (tx) => {
            const written = await this.#write(tx, changes)
            await changes.also(tx)
            return written
          })
    const isFirst = this.#beatenAtMs === -Infinity
    this.#beatenAtMs = Math.max(this.#beatenAtMs, atMs)
    if (changes !== undefined) this.#position = changes.position
    if (said.is_new && !isFirst) {
      logger.warn({ node: this.id }, 'other nodes declared this node dead')
      for (const listener of this.#declaredDead) listener()
    }
    if (this.#mayDeclareDead(monotonicMs()) && said.has_dead) this.#startRemoval()
  }

  /** Call it when the data that this node holds could not be removed: the row stays until others have removed it. */
  keepRow(): void {
    this.#isKept = true
  }

  /** Removes the row. Call it when the node holds nothing more. */
  async stop(): Promise<void> {
    await this.#rounds?.stop()
    await this.#removing
    if (this.#isKept) return
    await sql`DELETE FROM nodes WHERE id = ${this.id}`.execute(this.#options.database.db).catch(() => undefined)
  }

  /** A row that is written again has the last position, and a row that exists keeps its own. */
  async #write(db: Queryable, changes: Beat | undefined): Promise<{ is_new: boolean; has_dead: boolean }> {
    const { kind, version, migration } = this.#options
    const position = (changes === undefined ? this.#position : changes.position) ?? null
    const { rows } = await sql<{ is_new: boolean; has_dead: boolean }>`
      INSERT INTO nodes AS n (id, kind, version, migration, dead_after_seconds, position)
        VALUES (${this.id}, ${kind}, ${version}, ${migration}, ${this.deadAfterMs / 1000}, ${position})
      ON CONFLICT ON CONSTRAINT nodes_pkey DO UPDATE
        SET seen_at = now(), position = CASE WHEN ${changes !== undefined} THEN EXCLUDED.position ELSE n.position END
      RETURNING xmax = 0 AS is_new, EXISTS (SELECT FROM nodes WHERE ${IS_DEAD}) AS has_dead`.execute(db)
    return rows[0] as { is_new: boolean; has_dead: boolean }
  }

  #startRemoval(): void {
    if (this.#removeDead === undefined || this.#removing !== undefined) return
    this.#removing = this.#removeDead()
      .catch((error: unknown) =>
        this.#options.logger.warn({ err: error }, 'failed to remove what a dead node held; retrying'),
      )
      .finally(() => {
        this.#removing = undefined
      })
  }
}
