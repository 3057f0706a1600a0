/**
 * SQL as it is written. What stands between the texts of a template leaves as a parameter, so that no value can become SQL;
 * a part that is itself SQL becomes a part of the whole.
 */

/** `$1`, `$2` and so on in the text are the values. With a name each connection parses it once. */
export type Statement = { readonly text: string; readonly values: readonly unknown[]; readonly name?: string }

export type QueryResult<Row> = {
  readonly rows: Row[]
  /** Of INSERT, UPDATE, DELETE and MERGE. */
  readonly numAffectedRows?: bigint
}

/** What runs statements: the pool, each on a connection of its own, or a transaction. */
export type Queryable = {
  query<Row>(statement: Statement): Promise<QueryResult<Row>>
}

/** SQL, or a part of it; `Row` is what it gives. */
export class Sql<Row = unknown> {
  readonly #texts: readonly string[]
  readonly #parts: readonly unknown[]

  /** One text more than parts: they alternate. */
  constructor(texts: readonly string[], parts: readonly unknown[]) {
    this.#texts = texts
    this.#parts = parts
  }

  execute(db: Queryable): Promise<QueryResult<Row>> {
    return db.query<Row>(this.statement())
  }

  statement(): Statement {
    const values: unknown[] = []
    return { text: this.#write(values), values }
  }

  #write(values: unknown[]): string {
    let text = this.#texts[0] as string
    for (const [index, part] of this.#parts.entries()) {
      text += part instanceof Sql ? part.#write(values) : `$${values.push(part)}`
      text += this.#texts[index + 1] as string
    }
    return text
  }
}

function template<Row = unknown>(texts: TemplateStringsArray, ...parts: readonly unknown[]): Sql<Row> {
  return new Sql<Row>(texts, parts)
}

/** As it stands: never with anything in it that came from outside. */
const raw = <Row = unknown>(text: string) => new Sql<Row>([text], [])

/** Names of the database, quoted: `table.column` is both. */
const name = (path: string) =>
  raw(
    path
      .split('.')
      .map((part) => `"${part.replaceAll('"', '""')}"`)
      .join('.'),
  )

const COMMA = raw(', ')

function join(parts: readonly unknown[], separator: Sql = COMMA): Sql {
  const joined = parts.flatMap((part, index) => (index === 0 ? [part] : [separator, part]))
  return new Sql(
    Array.from({ length: joined.length + 1 }, () => ''),
    joined,
  )
}

export const sql = Object.assign(template, { raw, ref: name, table: name, join })
