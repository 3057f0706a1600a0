/**
 * Divides the records of channels into pieces that PostgreSQL sorts one after the other, so that memory and temporary space are those of a
 * piece, whatever a channel received. Channels with few records share a piece; one with many is divided by the time of its chunks.
 */
import type pg from 'pg'

/** What a piece may hold; `storedBytes` are texts and data, as they are stored. */
export type PieceLimits = { records: number; storedBytes: number }

export const PIECE_LIMITS: PieceLimits = { records: 250_000, storedBytes: 32 * 1024 * 1024 }

export type Piece = {
  channelKeys: readonly number[]
  /** Chunks whose `max_time` is above the first and not above the second; undefined: no bound. */
  above?: string | undefined
  upTo?: string | undefined
  /** Chunks of one moment are divided by their messages: the part `index` of `count`. */
  part?: { index: number; count: number }
}

type Amount = { key: number; records: number; bytes: number }

export type PieceSource = {
  client: pg.Client
  limits: PieceLimits
  /** `FROM … WHERE …` of the chunks of these channels, with the alias `m`. */
  of: (keys: readonly number[]) => string
}

/** Call it in a transaction. Pieces stay complete when chunks are deleted or cut meanwhile: these do not become later. */
export async function piecesOf(source: PieceSource, keys: readonly number[]): Promise<Piece[]> {
  const { client, of, limits } = source
  const { rows } = await client.query<Amount>(
    `SELECT m.channel_key AS key, sum(cardinality(m.times))::bigint AS records, sum(${STORED_BYTES})::bigint AS bytes
       ${of(keys)} GROUP BY m.channel_key`,
  )
  const amounts = new Map(rows.map((row) => [row.key, row]))
  const pieces: Piece[] = []
  let shared: Amount[] = []
  const share = () => {
    if (shared.length > 0) pieces.push({ channelKeys: shared.map(({ key }) => key) })
    shared = []
  }
  for (const key of keys) {
    const amount = amounts.get(key)
    if (amount === undefined) continue
    if (!fits([...shared, amount], limits)) share()
    if (fits([amount], limits)) shared.push(amount)
    else pieces.push(...(await piecesOfChannel(source, key)))
  }
  share()
  return pieces
}

/** Without the heads of rows and arrays. */
const STORED_BYTES = 'coalesce(pg_column_size(m.string_values), 0) + coalesce(pg_column_size(m.data_values), 0)'

function fits(amounts: readonly Amount[], limits: PieceLimits): boolean {
  const records = amounts.reduce((sum, amount) => sum + amount.records, 0)
  const bytes = amounts.reduce((sum, amount) => sum + amount.bytes, 0)
  return records <= limits.records && bytes <= limits.storedBytes
}

async function piecesOfChannel({ client, of, limits }: PieceSource, key: number): Promise<Piece[]> {
  // The index of channel and time has the order: a sort of the whole channel would be what the pieces avoid.
  await client.query('SET LOCAL enable_sort = off')
  const { rows } = await client.query<{ upTo: string; records: number; bytes: number }>(
    `SELECT max(max_time)::text AS "upTo", sum(records)::bigint AS records, sum(bytes)::bigint AS bytes
       FROM (SELECT max_time, records, bytes,
                    greatest(sum(records) OVER by_time / ${limits.records}, sum(bytes) OVER by_time / ${limits.storedBytes}) AS piece
               FROM (SELECT m.max_time, cardinality(m.times)::integer AS records, (${STORED_BYTES})::integer AS bytes ${of([key])} OFFSET 0) chunk
             WINDOW by_time AS (ORDER BY max_time)) counted
      GROUP BY piece ORDER BY max(max_time)`,
  )
  await client.query('SET LOCAL enable_sort = on')
  const channelKeys = [key]
  let above: string | undefined
  return rows.flatMap(({ upTo, records, bytes }) => {
    const piece = { channelKeys, above, upTo }
    above = upTo
    // A piece ends with a moment, so it is larger by the records of that moment.
    const count = Math.ceil(Math.max(records / (2 * limits.records), bytes / (2 * limits.storedBytes)))
    if (count <= 1) return [piece]
    return Array.from({ length: count }, (_, index) => ({ ...piece, part: { index, count } }))
  })
}

/** For the chunks `m`. Everything in it is a number, or a time of the server. */
export function conditionOf({ above, upTo, part }: Piece): string {
  const conditions = [
    ...(above === undefined ? [] : [`m.max_time > '${above}'`]),
    ...(upTo === undefined ? [] : [`m.max_time <= '${upTo}'`]),
    ...(part === undefined ? [] : [`(m.batch_seq + m.message) % ${part.count} = ${part.index}`]),
  ]
  return conditions.length === 0 ? 'true' : conditions.join(' AND ')
}
