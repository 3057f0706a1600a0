/**
 * Compares the folder of the archive with the database, once a day and after a folder was taken over: what the steps of a round follow one by
 * one is found here by state. A restored database does not know the files of its future, and lacks files that were deleted meanwhile.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { findLiveAfter, findUnknown, markAllDamaged, markAllRemovedChannels, markDamaged } from './repository.ts'
import type { CheckedFile } from './repository.ts'
import { sizesOf } from './store.ts'
import type { ArchiveStore } from './store.ts'

const FILES = 1000
const DOMAIN = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const MONTH = /^arrived_month=\d{4}-\d{2}$/
/** Names that the archive gives. Other files are not touched. */
const OWN_FILE =
  /^(?:snap-\d{1,16}-|\d{5,16}-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-m\d{1,6})?\.(?:parquet|avro|metadata\.json)$/

export type Audit = {
  /** Ranges that become due because of removed channels. */
  removedChannels: number
  /** Files of current snapshots that are missing, or have another size. What they contain becomes due. */
  damagedFiles: number
  /** Files that no row knew, and that were deleted, and uploads that were never completed. */
  unknownFiles: number
}

export type AuditDeps = {
  database: Database
  store: ArchiveStore
  /** For statements that take long. */
  reader: Queryable
  url: string
  graceSeconds: number
  now: () => number
  /** Rejects when the folder is gone. */
  check: () => Promise<void>
  signal: AbortSignal
}

/** What cannot be looked at is left out; rejects with the first of its errors when the rest is done. */
export async function auditArchive(deps: AuditDeps): Promise<Audit> {
  const failed: unknown[] = []
  const removedChannels = await markAllRemovedChannels(deps.reader)
  const damagedFiles = await checkFiles(deps, failed)
  const unknownFiles = await removeUnknown(deps, failed)
  if (failed.length > 0) throw failed[0]
  return { removedChannels, damagedFiles, unknownFiles }
}

async function checkFiles({ database, store, check, signal }: AuditDeps, failed: unknown[]): Promise<number> {
  const { db } = database
  let damaged = 0
  const damagedDomains = new Set<number>()
  for (let afterKey = 0; ;) {
    const files = await findLiveAfter(db, afterKey, FILES)
    const last = files.at(-1)
    if (last === undefined) return damaged
    afterKey = last.key
    const sizes = await sizesOf(
      store,
      files.map(({ path }) => path),
    )
    for (const [index, file] of files.entries()) {
      signal.throwIfAborted()
      const found = sizes[index]
      // A file that cannot be looked at is not missing.
      if (found !== undefined && 'error' in found) {
        failed.push(found.error)
        continue
      }
      if (found?.size === file.bytes) continue
      await check()
      if (!(await isStillLive(database, file))) continue
      damaged += 1
      const { domainKey, retentionDays, from } = file
      if (retentionDays !== null && from !== null) await markDamaged(db, { domainKey, retentionDays, from })
      else if (!damagedDomains.has(domainKey)) {
        damagedDomains.add(domainKey)
        await database.transaction((tx) => markAllDamaged(tx, domainKey))
      }
    }
  }
}

/** The database may have changed since the files were listed. */
async function isStillLive({ db }: Database, { key }: CheckedFile): Promise<boolean> {
  return (await findLiveAfter(db, key - 1, 1))[0]?.key === key
}

/**
 * Names are read before rows: the row of a file exists before the file, and goes after it. Files that are younger than a day stay for those
 * who read what they belonged to.
 */
async function removeUnknown(
  { database, store, url, graceSeconds, now, check, signal }: AuditDeps,
  failed: unknown[],
): Promise<number> {
  let removed = 0
  let paths: string[] = []
  const look = async () => {
    const unknown = paths.length === 0 ? [] : await findUnknown(database.db, paths)
    paths = []
    if (unknown.length > 0) await check()
    for (const path of unknown) {
      signal.throwIfAborted()
      try {
        const writtenMs = await store.writtenAtMs(path)
        if (writtenMs === undefined || now() - writtenMs < graceSeconds * 1000) continue
        const [error] = (await store.removeFiles([{ path, isPartial: false }])).values()
        if (error === undefined) removed += 1
        else failed.push(error)
      } catch (error) {
        failed.push(error)
      }
    }
  }
  for await (const path of ownFiles(store, url, failed)) {
    signal.throwIfAborted()
    paths.push(path)
    if (paths.length >= FILES) await look()
  }
  await look()
  try {
    removed += await store.removeBegun(url, now() - graceSeconds * 1000, (path) => isOwnFile(url, path))
  } catch (error) {
    signal.throwIfAborted()
    failed.push(error)
  }
  return removed
}

/** The place is one that `ownFiles` looks at. */
function isOwnFile(url: string, path: string): boolean {
  if (!path.startsWith(`${url}/`)) return false
  const [domain = '', table, ...below] = path.slice(url.length + 1).split('/')
  const name = below.pop() ?? ''
  const [kind, month] = below
  const isPlace = below.length === 1 ? kind === 'metadata' : kind === 'data' && below.length === 2
  return (
    DOMAIN.test(domain) &&
    table === 'records' &&
    isPlace &&
    MONTH.test(month ?? 'arrived_month=0000-00') &&
    OWN_FILE.test(name)
  )
}

async function* ownFiles(store: ArchiveStore, url: string, failed: unknown[]): AsyncGenerator<string> {
  for await (const domain of store.namesIn(url)) {
    if (!domain.isFolder || !DOMAIN.test(domain.name)) continue
    const table = `${url}/${domain.name}/records`
    try {
      yield* ownFilesIn(store, `${table}/metadata`)
      for await (const month of store.namesIn(`${table}/data`))
        if (month.isFolder && MONTH.test(month.name)) yield* ownFilesIn(store, `${table}/data/${month.name}`)
    } catch (error) {
      failed.push(error)
    }
  }
}

async function* ownFilesIn(store: ArchiveStore, folder: string): AsyncGenerator<string> {
  for await (const { name, isFolder } of store.namesIn(folder))
    if (!isFolder && OWN_FILE.test(name)) yield `${folder}/${name}`
}
