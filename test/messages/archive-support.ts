/** Archived records for tests: records whose arrival is moved into the past, and rounds of the archiver. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestApi } from '../harness/api.ts'
import { silentLogger } from '../harness/database.ts'
import { sql } from '#core/sql.ts'
import { lockProjections } from '../../api/messages/projections/lock.ts'
import { projectPending } from '../../api/messages/projections/project.ts'
import { archiveOnce } from '../../api/messages/archive/archiver.ts'
import type { ArchiverOptions, Round } from '../../api/messages/archive/archiver.ts'

const HOUR_MS = 3_600_000

export type ArchiveFolder = Disposable & { readonly url: string; readonly path: string }

export function newArchiveFolder(): ArchiveFolder {
  const path = mkdtempSync(join(tmpdir(), 'skein-archive-'))
  return {
    path,
    url: `file://${path}`,
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  }
}

/** Records that arrived in this hour arrived so many weeks earlier, with everything that is derived from them. */
export async function moveArrivals({ database }: Pick<TestApi, 'database'>, weeks: number): Promise<void> {
  await projectPending(database)
  await database.transaction(async (tx) => {
    await lockProjections(tx)
    await sql`SELECT create_message_partitions(now() - make_interval(weeks => ${weeks + 1}::integer), now() - make_interval(weeks => ${weeks - 1}::integer))`.execute(
      tx,
    )
    await sql`
      UPDATE records SET arrived_at = arrived_at - make_interval(weeks => ${weeks}::integer)
       WHERE arrived_at > now() - interval '1 hour'`.execute(tx)
    for (const table of ['rollups', 'rollup_weeks', 'domain_stored_records'])
      await sql`
        UPDATE ${sql.table(table)} SET arrived_on = arrived_on - make_interval(weeks => ${weeks}::integer)
         WHERE arrived_on >= date_trunc('week', now() - interval '1 hour', 'UTC')`.execute(tx)
  })
}

/** A round of the archiver, whatever age the records have beyond an hour. */
export async function archive(
  { database }: Pick<TestApi, 'database'>,
  url: string,
  options: Partial<ArchiverOptions> = {},
): Promise<Round> {
  const round = await archiveOnce(
    { database, logger: silentLogger, url, afterMs: HOUR_MS, ...options },
    new AbortController().signal,
  )
  if (round === undefined) throw new Error('another process holds the lock of the archive')
  return round
}
