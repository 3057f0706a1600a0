/**
 * One installation writes to a folder. Each round writes a new word into the database and then into the file `owner`. A copy of an
 * installation, and one whose database was restored, have an older word: they wait for as long as the word changes, because another
 * installation changes it then. A copy that has just been made has the same word, so a process trusts a word that it knows only when it has
 * seen that this database follows it.
 */
import { randomUUID } from 'node:crypto'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import { findOwner, hasTables, storeOwner } from './repository.ts'
import type { OwnerWords } from './repository.ts'
import { ChangedByOther } from './store.ts'
import type { ArchiveStore, TextVersion } from './store.ts'

/** What a word of another installation must not have changed for. Measured by this process, so that no clock matters. */
export const TAKEOVER_MS = 3_600_000
/** The same for a known word: two pauses between the rounds of the installation whose copy this one may be. */
export const CONFIRM_MS = 1_200_000
/** A round may take hours. */
export const RENEW_MS = 300_000
const FILE = 'owner'

/** What a process remembers from round to round. */
export type OwnerMemory = {
  /** What the file had when it was last seen to change, the word of the database at that time, and since when. */
  seen?: { text: string; word: string | undefined; sinceMs: number } | undefined
  /** Whether the words of the database are those of the installation that writes to the folder. */
  isConfirmed?: boolean
}

/** Where the archive lies. */
export type Place = { store: ArchiveStore; url: string }

export type Pauses = { takeoverMs: number; confirmMs: number }

/**
 * Throws `unavailable` while the folder may belong to another installation. `waits`: it may be that of the installation that this one is a
 * copy of. `taken over`: files in it may be unknown.
 */
export async function claimFolder(
  db: Queryable,
  place: Place,
  { memory, takeoverMs, confirmMs }: Pauses & { memory: OwnerMemory },
): Promise<'waits' | 'own' | 'taken over'> {
  const { url } = place
  const found = await lookAt(db, place)
  const { text, known, isKnown } = found
  if (text === undefined && known !== undefined && (await hasTables(db))) throw missingOwner(url)
  if (!isKnown) memory.isConfirmed = false
  // An operator who empties the file begins again in the folder.
  if (text !== undefined && text !== '' && memory.isConfirmed !== true) {
    const { seen } = memory
    // Another node of this installation has written both: nobody writes to the database of a copy.
    const isRenewed = text === known?.word && seen !== undefined && seen.word !== text
    if (seen?.text !== text) memory.seen = { text, word: known?.word, sinceMs: monotonicMs() }
    const isStill = monotonicMs() - (memory.seen?.sinceMs ?? 0) >= (isKnown ? confirmMs : takeoverMs)
    if (!isStill && !isRenewed) {
      if (isKnown) return 'waits'
      throw foreignOwner(url)
    }
  }
  await writeWord(db, place, found)
  memory.isConfirmed = true
  memory.seen = undefined
  return isKnown || text === undefined ? 'own' : 'taken over'
}

export type KeptFolder = {
  /** Aborted with an error when the folder is gone, or is not that of this installation any more. */
  readonly signal: AbortSignal
  /** Looks at it now. Call it before anything is concluded from a file that is missing, and before folders are created. */
  check(): Promise<void>
  stop(): Promise<void>
}

/** Goes on writing words to a claimed folder, so that nobody takes over what a long round works on. */
export function keepFolder(db: Queryable, place: Place, renewMs: number): KeptFolder {
  const lost = new AbortController()
  const look = async () => {
    const found = await lookAt(db, place)
    if (found.text === undefined) throw missingOwner(place.url)
    if (!found.isKnown) throw foreignOwner(place.url)
    return found
  }
  const renewals = startPeriodicRounds({
    firstPauseMs: renewMs,
    pauseMs: renewMs,
    round: async () => await writeWord(db, place, await look()),
    onFailure: (error) => lost.abort(error),
  })
  return {
    signal: lost.signal,
    async check() {
      try {
        await look()
      } catch (error) {
        lost.abort(error)
        throw error
      }
    },
    stop: () => renewals.stop(),
  }
}

type FoundWord = {
  text: string | undefined
  version: TextVersion
  known: OwnerWords | undefined
  isKnown: boolean
}

/** The file is read first: a word is in the database before it is in the file. */
async function lookAt(db: Queryable, { store, url }: Place): Promise<FoundWord> {
  const read = await store.readText(`${url}/${FILE}`)
  const text = read?.text.trim()
  const known = await findOwner(db)
  const isKnown = text !== undefined && (text === known?.word || text === known?.earlier)
  return { text, version: read?.version, known, isKnown }
}

/** What the file has stays known beside the new word: a process that ends before the file is written is known again. */
async function writeWord(db: Queryable, { store, url }: Place, { text, version, isKnown }: FoundWord): Promise<void> {
  const word = randomUUID()
  await storeOwner(db, { word, earlier: isKnown && text !== undefined ? text : null })
  try {
    await store.replaceText(`${url}/${FILE}`, `${word}\n`, text === undefined ? undefined : { version })
  } catch (error) {
    throw error instanceof ChangedByOther ? foreignOwner(url) : error
  }
}

const missingOwner = (url: string) =>
  new ServiceError(
    'unavailable',
    `the archive has no file ${FILE}, which this installation wrote: the folder is not mounted, or not shared by all nodes. To begin again in it, create the file empty`,
    { context: { folder: url } },
  )

const foreignOwner = (url: string) =>
  new ServiceError(
    'unavailable',
    `the archive was last written by another installation, or by this one before its database was restored. Copying begins when its file ${FILE} has not changed for an hour. A copy of an installation needs another SKEIN_ARCHIVE_URL`,
    { context: { folder: url } },
  )
