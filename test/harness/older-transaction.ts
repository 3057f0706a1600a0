import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Runs until it is disposed. Meanwhile the order of messages that were stored after its begin is not final, and readers in this order wait. */
export async function beginOlderTransaction(database: Database): Promise<AsyncDisposable> {
  const begun = Promise.withResolvers<undefined>()
  const end = Promise.withResolvers<undefined>()
  const ended = database.transaction(async (tx) => {
    await sql`SELECT pg_current_xact_id()`.execute(tx)
    begun.resolve(undefined)
    await end.promise
  })
  await Promise.race([begun.promise, ended])
  return {
    async [Symbol.asyncDispose]() {
      end.resolve(undefined)
      await ended
    },
  }
}
