/** The order in which the series of a channel began. */
import { Keyset } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

export const BY_SERIES = new Keyset([{ by: sql`series_key`, type: 'number' }])
