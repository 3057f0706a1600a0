/**
 * Rotates the secret key of an installation: every value is decrypted with the previous key and encrypted with the current one
 * before requests are served. A start with both keys resumes an interrupted rotation; until then, a start with one key fails.
 */
import type { Database } from '../database/index.ts'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { IS_DEAD } from '../nodes/index.ts'
import { sql } from '../sql.ts'
import type { Keyring } from './keyring.ts'

/** A column of sealed values. */
export type SealedColumn = {
  table: string
  column: string
  /** The key column of the rows, and its type. */
  key: string
  keyType: 'bigint' | 'text'
  /** SQL of the context of each value. */
  context: string
  /** The purposes that a value may have been sealed for. */
  purposes: readonly [string, ...string[]]
  /** The column with the MAC of the value. */
  mac?: string
}

type Client = Awaited<ReturnType<Database['dedicated']>>

const ROWS_PER_BATCH = 1000
/** The key of the advisory lock. */
const ROTATION_LOCK = 7_240_118
/** The longest time after which a node is dead. */
const DEAD_AFTER_SECONDS = 30

export type RotationOptions = {
  database: Database
  current: Keyring
  previous: Keyring
  columns: readonly SealedColumn[]
  logger: Logger
}

/**
 * Seals every value with the current key if the database still uses the previous one. Concurrent calls wait for each other.
 * Throws `invalid_state` while another process of the installation is running, and for a value that neither key opens.
 */
export async function rotateSecretKey(options: RotationOptions): Promise<void> {
  const { database, current, previous, logger } = options
  const client = await database.dedicated('skein secret key')
  try {
    await client.query('SET statement_timeout = 0')
    await client.query('SELECT pg_advisory_lock($1)', [ROTATION_LOCK])
    const { rows } = await client.query<{ name: string; value: string }>(
      `SELECT name, value #>> '{}' AS value FROM installation WHERE name IN ('secret_key_fingerprint', 'secret_key_rotation')`,
    )
    const known = new Map(rows.map(({ name, value }) => [name, value]))
    const fingerprint = known.get('secret_key_fingerprint')
    if (fingerprint === previous.fingerprint) await begin(client, options)
    else if (fingerprint !== current.fingerprint || known.get('secret_key_rotation') !== previous.fingerprint) return
    let count = 0
    for (const column of options.columns) count += await resealColumn(client, options, column)
    await client.query(`DELETE FROM installation WHERE name = 'secret_key_rotation'`)
    logger.info({ values: count }, 'rotated the secret key; remove SKEIN_SECRET_KEY_PREVIOUS')
  } finally {
    await client.end()
  }
}

async function begin(client: Client, { current, previous }: RotationOptions): Promise<void> {
  const alive = await client.query<{ id: string }>(
    sql`SELECT id FROM nodes WHERE NOT (${IS_DEAD}) ORDER BY id`.statement().text,
  )
  if (alive.rows.length > 0) {
    throw new ServiceError(
      'invalid_state',
      `the secret key cannot be rotated while other processes are running; stop ${alive.rows.map(({ id }) => id).join(', ')} (a killed process is ignored after ${DEAD_AFTER_SECONDS} s)`,
    )
  }
  // One statement: at no moment does the fingerprint claim that the previous key opens every value.
  await client.query(
    `INSERT INTO installation (name, value) VALUES ('secret_key_rotation', to_jsonb($1::text)), ('secret_key_fingerprint', to_jsonb($2::text))
       ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value`,
    [previous.fingerprint, current.fingerprint],
  )
}

type SealedRow = { key: string; context: string; sealed: Buffer }
type Resealed = { key: string; sealed: Buffer; mac: Buffer }

async function resealColumn(client: Client, options: RotationOptions, column: SealedColumn): Promise<number> {
  const { table, key, keyType, context, mac } = column
  let count = 0
  let last: string | null = null
  for (;;) {
    const found: { rows: SealedRow[] } = await client.query<SealedRow>(
      `SELECT ${key}::text AS key, (${context})::text AS context, ${column.column} AS sealed FROM ${table} t
        WHERE ${column.column} IS NOT NULL AND ($1::${keyType} IS NULL OR t.${key} > $1::${keyType}) ORDER BY t.${key} LIMIT ${ROWS_PER_BATCH}`,
      [last],
    )
    const resealed = found.rows.map((row) => reseal(row, options, column)).filter((row) => row !== undefined)
    await client.query(
      `UPDATE ${table} t SET ${column.column} = list.sealed${mac === undefined ? '' : `, ${mac} = list.mac`}
         FROM unnest($1::${keyType}[], $2::bytea[], $3::bytea[]) AS list (key, sealed, mac) WHERE t.${key} = list.key`,
      [resealed.map((row) => row.key), resealed.map((row) => row.sealed), resealed.map((row) => row.mac)],
    )
    count += resealed.length
    last = found.rows.at(-1)?.key ?? null
    if (found.rows.length < ROWS_PER_BATCH) return count
  }
}

/** Undefined for a value that is already sealed with the current key. */
function reseal(row: SealedRow, { current, previous }: RotationOptions, column: SealedColumn): Resealed | undefined {
  const { table, purposes } = column
  if (purposes.some((purpose) => opened(current, purpose, row) !== undefined)) return undefined
  for (const purpose of purposes) {
    const text = opened(previous, purpose, row)
    if (text !== undefined)
      return { key: row.key, sealed: current.seal(purpose, row.context, text), mac: current.mac(purpose, text) }
  }
  throw new ServiceError('invalid_state', `a secret of ${table} ${row.key} cannot be decrypted with either secret key`)
}

function opened(keyring: Keyring, purpose: string, { context, sealed }: SealedRow): string | undefined {
  try {
    return keyring.open(purpose, context, sealed)
  } catch {
    return undefined
  }
}
