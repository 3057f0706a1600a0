/**
 * The `sql` template tag. Values between the texts are passed as parameters, so no value can become SQL; an `Sql` value is embedded
 * as a part of the statement.
 */

/** `$1`, `$2` and so on in the text are the values. With a name, each connection parses it once. */
export type Statement = { readonly text: string; readonly values: readonly unknown[]; readonly name?: string }

export type QueryResult<Row> = {
  readonly rows: Row[]
  /** Set for INSERT, UPDATE, DELETE and MERGE. */
  readonly numAffectedRows?: bigint
}

/** Runs statements: the pool, which uses any connection for each, or a transaction. */
export type Queryable = {
  query<Row>(statement: Statement): Promise<QueryResult<Row>>
}

/** SQL, or a part of it, with rows of type `Row`. */
export class Sql<Row = unknown> {
  readonly #texts: readonly string[]
  readonly #parts: readonly unknown[]

  /** Texts and parts alternate; there is one text more than parts. */
  constructor(texts: readonly string[], parts: readonly unknown[]) {
    this.#texts = texts
    this.#parts = parts
  }

  execute(db: Queryable): Promise<QueryResult<Row>> {
    return db.query<Row>(this.statement())
  }

  /**
   * Executes the statement, which each connection parses and plans once. `name` identifies the statement: its text must be the same at
   * every call, so its parts may differ in values only.
   */
  executePrepared(db: Queryable, name: string): Promise<QueryResult<Row>> {
    return db.query<Row>({ ...this.statement(), name })
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

/** SQL without quoting: never pass external input. */
const raw = <Row = unknown>(text: string) => new Sql<Row>([text], [])

/** Quoted identifiers: `table.column` quotes both. */
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
