/** The newest value of each of several clients, as a list of clients shows it. */
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { findNewest } from './repository.ts'
import type { NewestRow } from './repository.ts'
import { MAX_CLIENTS } from './schema.ts'
import type { NewestQuery, NewestValue, NewestValues } from './schema.ts'

/** The deadline of the statement: clients with very many series do not delay other reads. */
const DEADLINE_MS = 5_000

type NewestDeps = { database: Pick<Database, 'snapshot'>; access: AccessPolicy }

export class NewestService {
  readonly #database: Pick<Database, 'snapshot'>
  readonly #access: AccessPolicy

  constructor({ database, access }: NewestDeps) {
    this.#database = database
    this.#access = access
  }

  /**
   * Throws `forbidden` for a domain that the caller may not enter, `malformed` for too many ids, `timeout` for a query that takes too
   * long.
   */
  async ofClients(caller: UserPrincipal, domainId: string, { client_id: given }: NewestQuery): Promise<NewestValues> {
    const ids = [...new Set(given.split(','))]
    if (ids.length > MAX_CLIENTS) throw refusedField('client_id', `must contain at most ${MAX_CLIENTS} ids`)
    const domain = await this.#access.enter(caller, domainId)
    const rows = await this.#database.snapshot((tx) => findNewest(tx, domain, ids.filter(isId)), DEADLINE_MS)
    return { values: rows.map(present) }
  }
}

function present(row: NewestRow): NewestValue {
  return {
    client_id: row.client_id,
    channel_id: row.channel_id,
    ...(row.subtopic === '' ? {} : { subtopic: row.subtopic }),
    name: row.name,
    ...(row.unit === '' ? {} : { unit: row.unit }),
    time: row.time,
    ...(row.value === null ? {} : { value: row.value }),
    ...(row.string_value === null ? {} : { string_value: row.string_value }),
    ...(row.bool_value === null ? {} : { bool_value: row.bool_value }),
    ...(row.data_bytes === null ? {} : { data_bytes: row.data_bytes }),
    ...(row.sum === null ? {} : { sum: row.sum }),
  }
}
