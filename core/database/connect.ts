/**
 * The connection to PostgreSQL: one pool for requests, dedicated connections for whoever must not wait behind them.
 * Values are read so that nothing is lost: int8 as a checked integer, timestamptz as UTC text with microseconds.
 */
import pg from 'pg'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { withConnection } from './driver.ts'
import { translateDatabaseError } from './errors.ts'
import type { Queryable } from '../sql.ts'
import { SocketClient, socketOf } from './together.ts'
import { Transaction, runTransaction } from './transaction.ts'

export type DatabaseAddress =
  | { url: string }
  | { host: string; port: number; user: string; password: string; database: string }

export type DatabaseOptions = {
  address: DatabaseAddress
  /** Connections of the pool; dedicated ones come on top. */
  maxConnections: number
  applicationName: string
  logger: Logger
  connectDeadlineMs?: number
  statementDeadlineMs?: number
  silenceGraceMs?: number
}

export type Database = {
  readonly db: Queryable
  readonly pool: pg.Pool
  /**
   * Runs the work in one transaction. A deadlock or a serialisation failure is repeated, so the work must have no
   * effect outside the database. Inside it only `tx` may be used.
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>
  /**
   * Reads in one snapshot, taken with the first statement of the work. The caller is answered before the transaction has ended, whose
   * end changes nothing. No statement takes longer than the deadline: `timeout`.
   */
  snapshot<T>(work: (tx: Transaction) => Promise<T>, statementDeadlineMs: number): Promise<T>
  /** A connection of its own, outside the pool; the caller ends it. Rejects with `unavailable` within the deadline. */
  dedicated(applicationName: string, connectDeadlineMs?: number): Promise<pg.Client>
  close(): Promise<void>
}

/** No request waits longer for a free connection. */
const CONNECT_DEADLINE_MS = 10_000
/** No statement of a request runs longer; exports and maintenance set their own on their own connections. */
const STATEMENT_DEADLINE_MS = 30_000
/** A server that says nothing for so long after a statement's own deadline is frozen or cut off: the connection is given up. */
const SILENCE_GRACE_MS = 5000
/** A dead peer behind an idle connection is looked for after this. */
const KEEP_ALIVE_DELAY_MS = 10_000
const IDLE_CONNECTION_MS = 60_000

const INT8 = 20
const TIMESTAMPTZ = 1184

function parseInt8(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value)) throw new Error(`int8 above 2^53 read from the database: ${text}`)
  return value
}

/** Text and binary parsers of `pg` with ours in front. Binary results are not asked for. */
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    if (format !== 'binary') {
      if (oid === INT8) return parseInt8
      if (oid === TIMESTAMPTZ) return (text: string) => text
    }
    return pg.types.getTypeParser(oid, format as 'text')
  },
} as pg.CustomTypesConfig

function clientConfig(address: DatabaseAddress, applicationName: string, connectDeadlineMs: number): pg.ClientConfig {
  return {
    ...('url' in address ? { connectionString: address.url } : address),
    application_name: applicationName,
    connectionTimeoutMillis: connectDeadlineMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY_MS,
    options: '-c TimeZone=UTC -c client_encoding=UTF8 -c default_transaction_isolation=read\\ committed',
    types,
  }
}

/**
 * Keeps a broken or silent connection from taking the process or a request with it. `pg` emits `error` on a connection
 * that breaks while a caller has it, beside failing his statement: without a listener that would end the process. A
 * server that is frozen or cut off sends nothing at all, so silence while a caller waits closes the connection.
 */
function watchConnections(pool: pg.Pool, silenceMs: number, logger: Logger): void {
  const taken = new WeakSet<pg.PoolClient>()
  pool.on('error', (error) => {
    // A connection that is being closed may be ended by a server that stops at the same time.
    if (!pool.ending) logger.warn({ err: error }, 'an idle database connection broke')
  })
  pool.on('acquire', (client) => void taken.add(client))
  pool.on('release', (_error, client) => void taken.delete(client))
  pool.on('connect', (client) => {
    client.on('error', (error) => {
      if (taken.has(client)) logger.warn({ err: error }, 'a database connection broke during a statement')
    })
    const socket = socketOf(client)
    socket?.setTimeout(silenceMs, () => {
      if (taken.has(client)) socket.destroy(new ServiceError('timeout', 'the database did not answer in time'))
    })
  })
}

export function createDatabase(options: DatabaseOptions): Database {
  const { address, maxConnections, applicationName, logger } = options
  const connectDeadlineMs = options.connectDeadlineMs ?? CONNECT_DEADLINE_MS
  const statementDeadlineMs = options.statementDeadlineMs ?? STATEMENT_DEADLINE_MS
  const silenceMs = statementDeadlineMs + (options.silenceGraceMs ?? SILENCE_GRACE_MS)
  const pool = new pg.Pool({
    ...clientConfig(address, applicationName, connectDeadlineMs),
    Client: SocketClient,
    max: maxConnections,
    pipeline: true,
    idleTimeoutMillis: IDLE_CONNECTION_MS,
    statement_timeout: statementDeadlineMs,
    // A transaction that is left open holds up every follower of a log and, with its locks, everybody else.
    idle_in_transaction_session_timeout: statementDeadlineMs,
  })
  watchConnections(pool, silenceMs, logger)
  const db: Queryable = { query: (statement) => withConnection(pool, (connection) => connection.query(statement)) }

  return {
    db,
    pool,
    transaction: (work) => runTransaction(pool, work),
    snapshot(work, statementDeadlineMs) {
      return new Promise((resolve, reject) => {
        const refuse = (error: unknown) => reject(translateDatabaseError(error))
        withConnection(pool, async (connection) => {
          const tx = new Transaction(connection)
          const text = `START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = ${statementDeadlineMs}`
          // What is read first leaves with it and is answered behind it.
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
      const client = new SocketClient(clientConfig(address, name, deadlineMs))
      client.on('error', (error) => logger.warn({ err: error, connection: name }, 'a database connection broke'))
      try {
        await client.connect()
      } catch (error) {
        throw translateDatabaseError(error)
      }
      return client
    },
    async close() {
      await pool.end()
    },
  }
}
