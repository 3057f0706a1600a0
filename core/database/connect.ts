/**
 * The connection to PostgreSQL: one pool for requests, dedicated connections for whoever must not wait behind them.
 * Values are read so that nothing is lost: int8 as a checked integer, timestamptz as UTC text with microseconds.
 */
import { Kysely, PostgresDialect } from 'kysely'
import type { Transaction as KyselyTransaction } from 'kysely'
import pg from 'pg'
import type { Logger } from '../logging/index.ts'
import { isRepeatable, translateDatabaseError } from './errors.ts'

/** Repositories name their own tables with `withTables`; the core knows none. */
// eslint-disable-next-line typescript/no-empty-object-type -- Kysely's own type for "no tables yet" is an empty object
export type NoTables = {}
export type Queryable = Kysely<NoTables>
export type Transaction = KyselyTransaction<NoTables>

export type DatabaseAddress =
  | { url: string }
  | { host: string; port: number; user: string; password: string; database: string }

export type DatabaseOptions = {
  address: DatabaseAddress
  /** Connections of the pool; dedicated ones come on top. */
  maxConnections: number
  applicationName: string
  logger: Logger
}

export type Database = {
  readonly db: Queryable
  readonly pool: pg.Pool
  /**
   * Runs the work in one transaction. A deadlock or a serialisation failure is repeated, so the work must have no
   * effect outside the database. Inside it only `tx` may be used.
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>
  /** A connection of its own, outside the pool; the caller ends it. Rejects with `unavailable`. */
  dedicated(applicationName: string): Promise<pg.Client>
  close(): Promise<void>
}

/** No request waits longer for a free connection. */
const CONNECT_DEADLINE_MS = 10_000
/** No statement of a request runs longer; exports and maintenance set their own on their own connections. */
const STATEMENT_DEADLINE_MS = 30_000
const IDLE_CONNECTION_MS = 60_000
/** Attempts at a transaction that PostgreSQL asks to repeat. */
const TRANSACTION_ATTEMPTS = 4

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

function clientConfig(address: DatabaseAddress, applicationName: string): pg.ClientConfig {
  return {
    ...('url' in address ? { connectionString: address.url } : address),
    application_name: applicationName,
    connectionTimeoutMillis: CONNECT_DEADLINE_MS,
    keepAlive: true,
    options: '-c TimeZone=UTC -c client_encoding=UTF8 -c default_transaction_isolation=read\\ committed',
    types,
  }
}

export function createDatabase({ address, maxConnections, applicationName, logger }: DatabaseOptions): Database {
  const pool = new pg.Pool({
    ...clientConfig(address, applicationName),
    max: maxConnections,
    idleTimeoutMillis: IDLE_CONNECTION_MS,
    statement_timeout: STATEMENT_DEADLINE_MS,
  })
  // An idle connection that breaks must not take the process down; the next query gets a new one or an error.
  pool.on('error', (error) => logger.warn({ err: error }, 'an idle database connection broke'))
  const db = new Kysely<NoTables>({ dialect: new PostgresDialect({ pool }) })

  return {
    db,
    pool,
    async transaction(work) {
      for (let attempt = 1; ; attempt++) {
        try {
          return await db.transaction().execute(work)
        } catch (error) {
          if (attempt < TRANSACTION_ATTEMPTS && isRepeatable(error)) continue
          throw translateDatabaseError(error)
        }
      }
    },
    async dedicated(name) {
      const client = new pg.Client(clientConfig(address, name))
      client.on('error', (error) => logger.warn({ err: error, connection: name }, 'a database connection broke'))
      try {
        await client.connect()
      } catch (error) {
        throw translateDatabaseError(error)
      }
      return client
    },
    async close() {
      await db.destroy()
    },
  }
}
