/**
 * The connection to PostgreSQL: one pool for requests, and dedicated connections for readers that must not wait for the pool.
 * Values are converted without loss: int8 to a checked integer, timestamptz to UTC text with microseconds.
 */
import pg from 'pg'
import { ServiceError, kindOf } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { withConnection } from './driver.ts'
import { removeSources } from '../metrics/index.ts'
import { DATABASE_UNAVAILABLE_RETRY_SECONDS, noStandby, translateDatabaseError } from './errors.ts'
import { DATABASE_METRICS } from './metrics.ts'
import type { Queryable } from '../sql.ts'
import { withDeadline } from '../time.ts'
import { SocketClient, socketOf } from './corked.ts'
import { Transaction, runTransaction } from './transaction.ts'
import { parseWithExactIntegers } from '../exact-integers.ts'

export type DatabaseAddress =
  | { url: string }
  | { host: string; port: number; user: string; password: string; database: string }

export type DatabaseOptions = {
  address: DatabaseAddress
  /** Connections of the pool; dedicated connections are additional. */
  maxConnections: number
  applicationName: string
  logger: Logger
  connectDeadlineMs?: number
  statementDeadlineMs?: number
  silenceGraceMs?: number
  /**
   * False while a COMMIT waits for synchronous standbys that do not answer; defaults to true. Transactions are refused then: the server
   * does not notice that a client gave up such a COMMIT, and connections that are made again would use up `max_connections`.
   */
  canCommit?: () => boolean
  /** Awaited for each new connection before anything else is sent over it; the connection is given up when it rejects. */
  onConnect?: (client: pg.ClientBase) => Promise<void>
}

/** Sends one statement over a certain connection. */
export type Ask = (text: string, values: readonly unknown[]) => Promise<Record<string, unknown>[]>

/** The source of long reads: the primary, or a standby (`replica.ts`). */
export type SnapshotSource = {
  /**
   * Reads in one snapshot, taken with the first statement of the work. The caller is answered before the transaction has ended,
   * because its end changes nothing. A statement that exceeds the deadline fails with `timeout`.
   */
  snapshot<T>(work: (tx: Transaction) => Promise<T>, statementDeadlineMs: number): Promise<T>
  /** A connection outside of the pool; the caller ends it. Rejects with `unavailable` within the deadline. */
  dedicated(applicationName: string): Promise<pg.Client>
}

export type Database = {
  /** Statements that write are rejected as `transaction` rejects its work. */
  readonly db: Queryable
  readonly pool: pg.Pool
  /**
   * Runs the work in one transaction, which is repeated after a deadlock or a serialization failure. The work must have no
   * effect outside of the database, and may use only `tx`. Rejects with `unavailable` at once while nothing can be committed.
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>
  /** See `SnapshotSource`. `ready` is awaited on the same connection before the snapshot is taken. */
  snapshot<T>(
    work: (tx: Transaction) => Promise<T>,
    statementDeadlineMs: number,
    ready?: (ask: Ask) => Promise<void>,
  ): Promise<T>
  /** See `SnapshotSource`. */
  dedicated(applicationName: string, connectDeadlineMs?: number): Promise<pg.Client>
  /**
   * Closes a dedicated connection when nothing is sent or received over it for `silenceMs` while `isUsed`: its statements fail with
   * `timeout`. A COMMIT that waits for synchronous standbys may take longer, because the server would keep its session.
   */
  limitSilence(client: pg.Client, silenceMs: number, isUsed: () => boolean): void
  /** Resolves when a synchronous standby has everything that is committed; at once on a server without such standbys. */
  replicated(): Promise<void>
  close(): Promise<void>
}

/** The maximum wait of a request for a free connection. */
const CONNECT_DEADLINE_MS = 10_000
/** The maximum duration of a request's statement. Exports and maintenance set their own on their own connections. */
const STATEMENT_DEADLINE_MS = 30_000
/** A server that sends nothing for this long after a statement's deadline is unreachable: the connection is closed. */
const SILENCE_GRACE_MS = 5000
/** The idle time of a connection after which TCP keep-alive probes begin. */
const KEEP_ALIVE_DELAY_MS = 10_000
/**
 * Each connection is a server process of 3 to 7 MiB. The connection that was returned last is used first, so a steady load keeps those
 * that it needs.
 */
const IDLE_CONNECTION_MS = 5_000

/** A statement that is a transaction of its own and has to be committed: also one that writes in its WITH. */
const WRITE = /\b(INSERT INTO|DELETE FROM|MERGE INTO|UPDATE (?!OF\b|SKIP\b|NOWAIT\b)["\w])/i

const INT8 = 20
const INT8_ARRAY: number = 1016
const JSON_TEXT = 114
const JSONB = 3802
const TIMESTAMPTZ = 1184

function parseInt8(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value)) throw new Error(`int8 above 2^53 read from the database: ${text}`)
  return value
}

/** `pg` reads the elements as texts, which equal no key. */
const parseInt8Array = (text: string): (number | null)[] =>
  (pg.types.getTypeParser(INT8_ARRAY, 'text')(text) as (string | null)[]).map((element) =>
    element === null ? null : parseInt8(element),
  )

/** The parsers of `pg` for text and binary, after our own. Binary results are not requested. */
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    if (format !== 'binary') {
      if (oid === INT8) return parseInt8
      if (oid === INT8_ARRAY) return parseInt8Array
      // Numbers of metadata and other free JSON are not rounded.
      if (oid === JSON_TEXT || oid === JSONB) return parseWithExactIntegers
      if (oid === TIMESTAMPTZ) return (text: string) => text
    }
    return pg.types.getTypeParser(oid, format as 'text')
  },
} as pg.CustomTypesConfig

function clientConfig(
  address: DatabaseAddress,
  applicationName: string,
  deadlines: { connectDeadlineMs: number; statementDeadlineMs: number },
): pg.ClientConfig {
  return {
    ...('url' in address ? { connectionString: address.url } : address),
    application_name: applicationName,
    connectionTimeoutMillis: deadlines.connectDeadlineMs,
    // A transaction that is left open delays every changelog reader and, with its locks, other writers. The server does not always notice that
    // its client is gone.
    idle_in_transaction_session_timeout: deadlines.statementDeadlineMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY_MS,
    options: '-c TimeZone=UTC -c client_encoding=UTF8 -c default_transaction_isolation=read\\ committed',
    types,
  }
}

/**
 * Limits the effects of broken and silent connections. `pg` emits `error` on a connection that breaks while a caller uses it, in
 * addition to failing the statement: without a listener, the process would exit. An unreachable server sends nothing, so the
 * connection is closed when a caller waits too long.
 */
function watchConnections(pool: pg.Pool, silenceMs: number, logger: Logger): void {
  const taken = new WeakSet<pg.PoolClient>()
  pool.on('error', (error) => {
    // The server may end a connection while the pool closes it.
    if (!pool.ending) logger.warn({ err: error }, 'an idle database connection broke')
  })
  pool.on('acquire', (client) => void taken.add(client))
  pool.on('release', (_error, client) => void taken.delete(client))
  pool.on('connect', (client) => {
    client.on('error', (error) => {
      if (taken.has(client)) logger.warn({ err: error }, 'a database connection broke during a statement')
    })
    endSilence(client, silenceMs, () => taken.has(client))
  })
}

/** Closes the connection when nothing is sent or received over it for so long, and `isDue` says that an answer is. */
function endSilence(client: pg.ClientBase, silenceMs: number, isDue: () => boolean): void {
  const socket = socketOf(client)
  socket?.setTimeout(silenceMs, () => {
    if (isDue()) socket.destroy(new ServiceError('timeout', 'the database did not answer in time'))
    // A timer that has expired starts again with the next byte only.
    else socket.setTimeout(silenceMs)
  })
}

/**
 * Awaits `onConnect` within the deadline. Its statement may be waiting in the server, so the socket is closed when it fails: a
 * connection that ends in order would wait for the statement.
 */
async function prepare(client: pg.ClientBase, onConnect: Promise<void>, deadlineMs: number): Promise<void> {
  try {
    await withDeadline(onConnect, deadlineMs, 'preparing a connection')
  } catch (error) {
    socketOf(client)?.destroy()
    if (kindOf(error) !== 'timeout') throw error
    // Nothing of the caller was sent.
    throw new ServiceError('unavailable', 'the database did not prepare a connection in time', {
      cause: error,
      retryAfterSeconds: DATABASE_UNAVAILABLE_RETRY_SECONDS,
    })
  }
}

export function createDatabase(options: DatabaseOptions): Database {
  const { address, maxConnections, applicationName, logger, onConnect = () => Promise.resolve() } = options
  const { canCommit = () => true } = options
  const connectDeadlineMs = options.connectDeadlineMs ?? CONNECT_DEADLINE_MS
  const statementDeadlineMs = options.statementDeadlineMs ?? STATEMENT_DEADLINE_MS
  const silenceMs = statementDeadlineMs + (options.silenceGraceMs ?? SILENCE_GRACE_MS)
  const pool = new pg.Pool({
    ...clientConfig(address, applicationName, { connectDeadlineMs, statementDeadlineMs }),
    Client: SocketClient,
    max: maxConnections,
    pipeline: true,
    idleTimeoutMillis: IDLE_CONNECTION_MS,
    statement_timeout: statementDeadlineMs,
    // Awaited by the pool, without a deadline of its own; its types do not declare that it may be asynchronous.
    onConnect: ((client) => prepare(client, onConnect(client), connectDeadlineMs)) as (client: pg.ClientBase) => void,
  })
  watchConnections(pool, silenceMs, logger)
  const name = { db_client_connection_pool_name: applicationName }
  const sources = [
    DATABASE_METRICS.connections.from(() => [
      { labels: { ...name, db_client_connection_state: 'idle' }, value: pool.idleCount },
      { labels: { ...name, db_client_connection_state: 'used' }, value: pool.totalCount - pool.idleCount },
    ]),
    DATABASE_METRICS.maxConnections.from(() => [{ labels: name, value: maxConnections }]),
    DATABASE_METRICS.waiting.from(() => [{ labels: name, value: pool.waitingCount }]),
  ]
  const db: Queryable = {
    async query(statement) {
      if (!canCommit() && WRITE.test(statement.text)) throw noStandby()
      return await withConnection(pool, (connection) => connection.query(statement))
    },
  }

  return {
    db,
    pool,
    async transaction(work) {
      if (!canCommit()) throw noStandby()
      return await runTransaction(pool, work)
    },
    snapshot(work, statementDeadlineMs, ready) {
      return new Promise((resolve, reject) => {
        const refuse = (error: unknown) => reject(translateDatabaseError(error))
        withConnection(pool, async (connection) => {
          await ready?.(
            async (text, values) => (await connection.query<Record<string, unknown>>({ text, values })).rows,
          )
          const tx = new Transaction(connection)
          const text = `START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = ${statementDeadlineMs}`
          // The first read is sent together with the START.
          const begun = connection.query({ text, values: [] })
          const [read, begin] = await Promise.allSettled([work(tx), begun])
          tx.close()
          const failed = [begin, read].find((one) => one.status === 'rejected')
          if (failed !== undefined) refuse(failed.reason)
          else if (read.status === 'fulfilled') resolve(read.value)
          await connection.query({ text: 'ROLLBACK', values: [] })
        }).catch(refuse)
      })
    },
    async dedicated(name, deadlineMs = connectDeadlineMs) {
      const client = new SocketClient(
        clientConfig(address, name, { connectDeadlineMs: deadlineMs, statementDeadlineMs }),
      )
      client.on('error', (error) => logger.warn({ err: error, connection: name }, 'a database connection broke'))
      try {
        await client.connect()
        await prepare(client, onConnect(client), deadlineMs)
      } catch (error) {
        void client.end().catch(() => undefined)
        throw translateDatabaseError(error)
      }
      return client
    },
    limitSilence(client, silenceMs, isUsed) {
      endSilence(client, silenceMs, () => isUsed() && canCommit())
    },
    async replicated() {
      // Transactional: its COMMIT waits for standbys, which receive the write-ahead log in order.
      const statement = { text: "SELECT pg_logical_emit_message(true, 'skein', '')", values: [] }
      await db.query(statement).catch((error: unknown) => {
        throw translateDatabaseError(error)
      })
    },
    async close() {
      removeSources(sources)
      await pool.end()
    },
  }
}
