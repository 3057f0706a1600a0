/**
 * One installation writes to a folder. Each round writes a new word into the database and then into the file `owner`. A copy of an
 * installation, and one whose database was restored, have an older word: they wait for as long as the word changes, because another
 * installation changes it then.
 */
import { randomUUID } from 'node:crypto'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { isStoreExhausted, readText, replaceFile } from './file-store.ts'
import { findOwner, hasTables, storeOwner } from './repository.ts'

/** Six rounds of another installation. Measured by this process, so that no clock matters. */
export const TAKEOVER_MS = 3_600_000
const FILE = 'owner'
const WORD = /^[0-9a-f-]{36}$/

/** What a process has seen of the word of another installation. */
export type ForeignOwner = { word: string; sinceMs: number }
/** What a process remembers from round to round. */
export type OwnerMemory = { foreign?: ForeignOwner | undefined }

/** Throws `unavailable` while the folder may belong to another installation. True when it was taken over: files in it may be unknown. */
export async function claimFolder(
  db: Queryable,
  url: string,
  { memory, takeoverMs }: { memory: OwnerMemory; takeoverMs: number },
): Promise<boolean> {
  const known = await findOwner(db)
  const text = (await readText(`${url}/${FILE}`))?.trim()
  const isKnown = text !== undefined && (text === known?.word || text === known?.earlier)
  // An operator who empties the file begins again in the folder.
  const isGiven = text === ''
  if (text === undefined && known !== undefined && (await hasTables(db)))
    throw new ServiceError(
      'unavailable',
      `the archive ${url} has no file ${FILE}, which this installation wrote: the folder is not mounted, or not shared by all nodes. To begin again in it, create the file empty`,
    )
  if (text !== undefined && !isKnown && !isGiven) {
    const { foreign } = memory
    if (foreign?.word !== text) memory.foreign = { word: text, sinceMs: monotonicMs() }
    if (monotonicMs() - (memory.foreign?.sinceMs ?? 0) < takeoverMs)
      throw new ServiceError(
        'unavailable',
        `the archive ${url} was last written by another installation, or by this one before its database was restored. Copying begins when its file ${FILE} has not changed for an hour. A copy of an installation needs another SKEIN_ARCHIVE_URL`,
      )
  }
  memory.foreign = undefined
  const word = randomUUID()
  // What the file has until it is replaced: a process that ends in between is known again.
  await storeOwner(db, { word, earlier: text !== undefined && WORD.test(text) ? text : null })
  try {
    await replaceFile(`${url}/${FILE}`, `${word}\n`)
  } catch (error) {
    // A full folder needs its sweep, and the word that it has is known.
    if (!isKnown || !isStoreExhausted(error)) throw error
  }
  return !isKnown && text !== undefined
}
