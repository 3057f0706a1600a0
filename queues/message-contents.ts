/**
 * `message_contents`: large messages that start runs. Each is stored once: the rows of `task_messages` and the runs of all its triggers refer to
 * it, and it is read when a run is started and when it is sent to its worker. It is removed when nothing refers to it any longer.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { digestOf } from '#core/digest.ts'
import { hasOlderNodes, jsonArray } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { SingleFlight } from '#core/single-flight.ts'
import { sql } from '#core/sql.ts'
import type { MessageHeader, TriggerMessage } from './trigger-message.ts'

/** A smaller message is stored with each of its rows: a reference costs two rows and their reads. */
export const MIN_CONTENT_BYTES = 8 * 1024
/** Contents that a process keeps for the next run of the same message, as JSON. */
const MAX_CACHED_BYTES = 16 * 1024 * 1024
/** A content that was used later than this is not removed: a transaction that refers to it may not have ended. */
const KEPT_SECONDS = 60
/** Rows that one statement removes. */
const STEP_ROWS = 1_000

/** A reference to a content that is stored, with its size. */
export type ContentRef = { key: number; bytes: number }

/** Bytes of a row `m` of `task_messages`, with its content. */
export const MESSAGE_BYTES = sql`coalesce(m.content_bytes, pg_column_size(m.message))`

/** What is stored with a row that refers to a content. */
export type ContentHeader = MessageHeader & { record_count: number }

/**
 * Stores large messages in one transaction. While a process of an earlier build is alive, which does not know references, every message stays
 * with its rows.
 */
export class ContentWriter {
  readonly #tx: Transaction
  /** Messages as JSON, by their identity: the triggers of a channel are given the same object. */
  readonly #encoded = new WeakMap<TriggerMessage, { text: string; bytes: number }>()
  readonly #stored = new WeakMap<TriggerMessage, ContentRef | null>()

  constructor(tx: Transaction) {
    this.#tx = tx
  }

  /** Returns the size of the message as JSON, in bytes. */
  sizeOf(message: TriggerMessage): number {
    return this.#encode(message).bytes
  }

  /** Returns the message as JSON. */
  textOf(message: TriggerMessage): string {
    return this.#encode(message).text
  }

  #encode(message: TriggerMessage): { text: string; bytes: number } {
    const known = this.#encoded.get(message)
    if (known !== undefined) return known
    const text = JSON.stringify(message)
    const encoded = { text, bytes: Buffer.byteLength(text) }
    this.#encoded.set(message, encoded)
    return encoded
  }

  /**
   * Stores the messages and returns their places, in their order; null: the message is with each of its rows. Each is written once, however
   * often it is asked for.
   */
  async store(messages: readonly TriggerMessage[]): Promise<(ContentRef | null)[]> {
    const large = new Set(messages.filter((message) => this.sizeOf(message) >= MIN_CONTENT_BYTES))
    const fresh = [...large].filter((message) => !this.#stored.has(message))
    if (fresh.length > 0) await this.#insert(fresh)
    return messages.map((message) => this.#stored.get(message) ?? null)
  }

  async #insert(messages: readonly TriggerMessage[]): Promise<void> {
    const digested = messages.map((message) => ({ message, digest: digestOf(Buffer.from(this.textOf(message))) }))
    const texts = new Map(digested.map(({ message, digest }) => [digest, this.textOf(message)]))
    // Every transaction inserts in the same order, so that two transactions with the same messages do not wait for each other.
    const { rows } = await sql<{ key: number; digest: string }>`
      INSERT INTO message_contents (digest, content)
      SELECT c.digest, c.content FROM unnest(${[...texts.keys()]}::text[], ${jsonArray([...texts.values()])}::json[]) AS c (digest, content)
      WHERE NOT ${hasOlderNodes('message_contents')}
      ORDER BY c.digest
      ON CONFLICT ON CONSTRAINT message_contents_digest_key DO UPDATE SET used_at = now()
      RETURNING key, digest`.execute(this.#tx)
    const keys = new Map(rows.map(({ key, digest }) => [digest, key]))
    for (const { message, digest } of digested) {
      const key = keys.get(digest)
      this.#stored.set(message, key === undefined ? null : { key, bytes: this.sizeOf(message) })
    }
  }
}

/** What a row keeps of a message whose content is elsewhere. */
export function headerOf({ records, ...header }: TriggerMessage): ContentHeader {
  return { ...header, record_count: records.length }
}

/** A content that was read. */
export type Content = { text: string; message: TriggerMessage }

export type MessageContents = ReturnType<typeof createMessageContents>

/** Reads contents. Runs of one message follow each other, so the last ones are kept in memory. */
export function createMessageContents(db: Queryable) {
  const cache = new BoundedCache<number, Content>({ maxSize: MAX_CACHED_BYTES, sizeOf: ({ text }) => text.length })
  const reads = new SingleFlight<Content | undefined>()

  async function read(key: number): Promise<Content | undefined> {
    const { rows } = await sql<{
      text: string
    }>`SELECT content::text AS text FROM message_contents WHERE key = ${key}`.execute(db)
    const [row] = rows
    if (row === undefined) return undefined
    const content = { text: row.text, message: JSON.parse(row.text) as TriggerMessage }
    cache.set(key, content)
    return content
  }

  return {
    /** Undefined: it was removed. */
    async find(key: number): Promise<Content | undefined> {
      return cache.get(key) ?? (await reads.run(`${key}`, () => read(key)))
    },
  }
}

/** Removes contents that neither a waiting message nor an open run refers to. Returns their number. */
export async function removeUnusedContents(db: Queryable): Promise<number> {
  await sql`DELETE FROM run_contents WHERE run_key IN (
    SELECT c.run_key FROM run_contents c WHERE NOT EXISTS (SELECT FROM runs r WHERE r.key = c.run_key AND r.next_check_at IS NOT NULL)
    LIMIT ${STEP_ROWS} FOR UPDATE SKIP LOCKED)`.execute(db)
  const { numAffectedRows = 0n } = await sql`DELETE FROM message_contents WHERE key IN (
    SELECT c.key FROM message_contents c WHERE c.used_at < now() - make_interval(secs => ${KEPT_SECONDS})
      AND NOT EXISTS (SELECT FROM task_messages m WHERE m.content_key = c.key)
      AND NOT EXISTS (SELECT FROM run_contents r WHERE r.content_key = c.key)
    ORDER BY c.used_at LIMIT ${STEP_ROWS} FOR UPDATE SKIP LOCKED)`.execute(db)
  return Number(numAffectedRows)
}
