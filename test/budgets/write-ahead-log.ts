/** What PostgreSQL wrote to its log between two places. The test has the server alone, so that nothing else writes. */
import pg from 'pg'

export type Written = { commits: number; 'row changes': number; 'row locks': number; 'WAL bytes': number }

/** The records of the heap that change a row; of a record that inserts several, the description says how many. */
const RECORDS = `
  SELECT span.place AS place, r.resource_manager AS manager, r.record_type AS type, sum(r.record_length)::integer AS bytes,
         sum(coalesce(substring(r.description FROM 'ntuples: ([0-9]+)')::integer, 1))::integer AS count
    FROM unnest($1::pg_lsn[], $2::pg_lsn[]) WITH ORDINALITY AS span(low, high, place), pg_get_wal_records_info(span.low, span.high) r
   WHERE span.low < span.high GROUP BY 1, 2, 3`

/** The description of other records may contain a number of tuples that are no rows. */
const ROW_CHANGES = /^Heap2?\/(INSERT|MULTI_INSERT|UPDATE|HOT_UPDATE|DELETE)(\+INIT)?$/
const ROW_LOCKS = /^Heap2?\/(LOCK|LOCK_UPDATED)$/

type LogRecord = { place: number; manager: string; type: string; bytes: number; count: number }
type Span = readonly [low: string, high: string]

export class WriteAheadLog implements AsyncDisposable {
  readonly #client: pg.Client

  private constructor(client: pg.Client) {
    this.#client = client
  }

  static async open(address: pg.ClientConfig): Promise<WriteAheadLog> {
    const client = new pg.Client(address)
    await client.connect()
    await client.query('CREATE EXTENSION pg_walinspect')
    return new WriteAheadLog(client)
  }

  async place(): Promise<string> {
    const { rows } = await this.#client.query<{ place: string }>('SELECT pg_current_wal_insert_lsn()::text AS place')
    return rows[0]?.place as string
  }

  async written(spans: readonly Span[]): Promise<(Written & { records: string[] })[]> {
    // What is not flushed cannot be read.
    await this.#client.query("SELECT pg_logical_emit_message(false, 'budgets', '', true)")
    const [lows, highs] = [spans.map(([low]) => low), spans.map(([, high]) => high)]
    const { rows } = await this.#client.query<LogRecord>(RECORDS, [lows, highs])
    return spans.map((_span, index) => summary(rows.filter(({ place }) => Number(place) === index + 1)))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client.end()
  }
}

function summary(records: readonly LogRecord[]): Written & { records: string[] } {
  const countOf = (pattern: RegExp) =>
    records.filter(({ manager, type }) => pattern.test(`${manager}/${type}`)).reduce((sum, { count }) => sum + count, 0)
  return {
    commits: countOf(/^Transaction\/COMMIT$/),
    'row changes': countOf(ROW_CHANGES),
    'row locks': countOf(ROW_LOCKS),
    'WAL bytes': records.reduce((sum, { bytes }) => sum + bytes, 0),
    records: records.map(({ manager, type, count, bytes }) => `${count} ${manager}/${type} (${bytes} B)`),
  }
}
