/**
 * Commits a snapshot of a table: manifests of the months that changed, a manifest list and a metadata file are written first, and then one
 * transaction moves the pointer. A crash before it leaves files that no snapshot refers to.
 */
import { randomInt, randomUUID } from 'node:crypto'
import type { Database, Transaction } from '#core/database/index.ts'
import { encodeManifest, encodeManifestList } from './manifests.ts'
import { SCHEMA, SPEC, metadataOf } from './metadata.ts'
import type { SnapshotFacts } from './metadata.ts'
import { findDataFiles, findManifests, insertFile, moveTable } from './repository.ts'
import type {
  CommittedFile,
  FileKind,
  LiveFile,
  LiveManifest,
  ManifestDetails,
  RangeKey,
  TableRow,
} from './repository.ts'
import type { FileStatistics } from './statistics.ts'
import type { ArchiveStore } from './store.ts'

export type NewDataFile = {
  key: number
  path: string
  month: number
  records: number
  bytes: number
  statistics: FileStatistics
}

export type SnapshotChange = {
  /** The ranges whose files are replaced by the new ones. */
  ranges: readonly RangeKey[]
  /** Files of one range. */
  added: readonly NewDataFile[]
}

/** The steps of an export, in order; tests stop the process at each. */
export type Step =
  | 'planned'
  | 'data file begun'
  | 'data file written'
  | 'manifest written'
  | 'manifest list written'
  | 'metadata written'
  | 'committed'
  | 'files deleted'

/** Avro's library of JavaScript writes integers below 2^53. */
const MAX_SNAPSHOT_ID = 2 ** 48 - 1

export type TableCommitDeps = {
  database: Database
  store: ArchiveStore
  now: () => number
  /** Rejects when the folder is gone. */
  check: () => Promise<void>
  atStep: (step: Step) => Promise<void>
}

/** False when there was nothing to commit. `also` runs in the transaction that moves the pointer. */
export async function commitSnapshot(
  { database, store, now, check, atStep }: TableCommitDeps,
  table: TableRow,
  { ranges, added }: SnapshotChange,
  also: (tx: Transaction) => Promise<void>,
): Promise<boolean> {
  const { db } = database
  const { domainKey, location } = table
  const isReplaced = (file: { retentionDays: number; from: string }) =>
    ranges.some(({ retentionDays, from }) => retentionDays === file.retentionDays && sameTime(from, file.from))
  const months = [...new Set([...ranges.map(({ from }) => monthOfText(from)), ...added.map(({ month }) => month)])]
  const present = await findDataFiles(db, domainKey, months)
  const replaced = present.filter(isReplaced)
  if (replaced.length === 0 && added.length === 0) return false
  await check()

  const snapshotId = randomInt(1, MAX_SNAPSHOT_ID)
  const sequenceNumber = table.sequenceNumber + 1
  const write: WriteFile = async (kind, name, bytes) => {
    const path = `${location}/metadata/${name}`
    const key = await insertFile(db, domainKey, kind, path)
    await store.writeNewFile(path, new Uint8Array(bytes))
    return { key, path }
  }
  const committed: CommittedFile[] = added.map((file) => dataFileOf(file, ranges[0]))
  const manifests = await findManifests(db, domainKey)
  const outdated = manifests.filter(({ month }) => months.includes(month))
  const listed: Omit<LiveManifest, 'key'>[] = manifests.filter((manifest) => !outdated.includes(manifest))
  for (const month of months.toSorted((left, right) => left - right)) {
    const manifest = await manifestOf(month, {
      kept: present.filter((file) => file.month === month && !isReplaced(file)),
      added: added.filter((file) => file.month === month),
      snapshotId,
      sequenceNumber,
    })
    if (manifest === undefined) continue
    const { content, details } = manifest
    const { key, path } = await write('manifest', `${randomUUID()}-m${month}.avro`, content)
    await atStep('manifest written')
    const [bytes, records] = [content.length, details.addedRows + details.existingRows]
    listed.push({ path, month, bytes, records, snapshotId, sequenceNumber, details })
    committed.push({ key, bytes, records, month, retentionDays: null, from: null, details })
  }
  const operation = replaced.length === 0 ? 'append' : added.length === 0 ? 'delete' : 'overwrite'
  const snapshot = { id: snapshotId, sequenceNumber, timestampMs: now(), operation } as const
  const { list, file, metadata } = await writeSnapshot(table, { snapshot, added, listed, write, atStep })
  committed.push(list, file)

  await database.transaction(async (tx) => {
    const isMoved = await moveTable(tx, {
      table,
      snapshotId,
      sequenceNumber,
      metadataPath: file.path,
      metadata,
      added: committed,
      removedKeys: [...replaced, ...outdated].map(({ key }) => key),
    })
    if (!isMoved) throw new Error('another process has committed to the archive; the export is repeated')
    await also(tx)
  })
  await atStep('committed')
  return true
}

type WriteFile = (kind: FileKind, name: string, bytes: Buffer) => Promise<{ key: number; path: string }>

const OF_NO_RANGE = { records: 0, month: null, retentionDays: null, from: null, details: null }

function dataFileOf(
  { key, month, records, bytes, statistics }: NewDataFile,
  range: RangeKey | undefined,
): CommittedFile {
  const [retentionDays, from] = [range?.retentionDays ?? null, range?.from ?? null]
  return { key, bytes, records, month, retentionDays, from, details: statistics }
}

type NewSnapshot = {
  snapshot: Pick<SnapshotFacts, 'id' | 'sequenceNumber' | 'timestampMs' | 'operation'>
  added: readonly NewDataFile[]
  listed: readonly Omit<LiveManifest, 'key'>[]
  write: WriteFile
  atStep: (step: Step) => Promise<void>
}

/** Writes the manifest list and the metadata file. */
async function writeSnapshot(
  { tableId, location }: TableRow,
  { snapshot, added, listed, write, atStep }: NewSnapshot,
): Promise<{ list: CommittedFile; file: CommittedFile & { path: string }; metadata: string }> {
  const listBytes = await encodeManifestList(
    listed
      .toSorted((left, right) => left.month - right.month)
      .map(({ details, ...manifest }) => ({ ...manifest, ...details })),
    snapshot,
  )
  const list = await write('manifest_list', `snap-${snapshot.id}-${randomUUID()}.avro`, listBytes)
  await atStep('manifest list written')
  const facts: SnapshotFacts = {
    ...snapshot,
    listPath: list.path,
    addedFiles: added.length,
    addedRecords: sum(added, ({ records }) => records),
    files: sum(listed, ({ details }) => details.addedFiles + details.existingFiles),
    records: sum(listed, ({ records }) => records),
    bytes: sum(listed, ({ details }) => details.dataBytes),
  }
  const metadata = JSON.stringify(metadataOf({ tableId, location, snapshot: facts }))
  const name = `${String(snapshot.sequenceNumber).padStart(5, '0')}-${randomUUID()}.metadata.json`
  const file = await write('metadata', name, Buffer.from(metadata))
  await atStep('metadata written')
  return {
    list: { ...OF_NO_RANGE, key: list.key, bytes: listBytes.length },
    file: { ...OF_NO_RANGE, ...file, bytes: Buffer.byteLength(metadata) },
    metadata,
  }
}

type MonthOfSnapshot = {
  kept: readonly LiveFile[]
  added: readonly NewDataFile[]
  snapshotId: number
  sequenceNumber: number
}

/** The manifest of the files of a month; undefined without files. */
async function manifestOf(
  month: number,
  { kept, added, snapshotId, sequenceNumber }: MonthOfSnapshot,
): Promise<{ content: Buffer; details: ManifestDetails } | undefined> {
  if (kept.length + added.length === 0) return undefined
  const content = await encodeManifest(
    [
      ...kept.map(({ details, ...file }) => ({ ...file, isAdded: false, statistics: details })),
      ...added.map((file) => ({ ...file, month, isAdded: true, snapshotId, sequenceNumber })),
    ],
    { schema: SCHEMA, spec: SPEC },
  )
  const details = {
    minSequenceNumber: Math.min(sequenceNumber, ...kept.map((file) => file.sequenceNumber)),
    addedFiles: added.length,
    existingFiles: kept.length,
    addedRows: sum(added, ({ records }) => records),
    existingRows: sum(kept, ({ records }) => records),
    dataBytes: sum([...kept, ...added], (file) => file.bytes),
  }
  return { content, details }
}

function sum<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((total, item) => total + of(item), 0)
}

/** Times of the database, `2026-11-30 00:00:00+00`. */
const msOf = (text: string) => Date.parse(`${text.slice(0, 10)}T${text.slice(11, 19)}Z`)
const sameTime = (left: string, right: string) => msOf(left) === msOf(right)

function monthOfText(text: string): number {
  return (Number(text.slice(0, 4)) - 1970) * 12 + Number(text.slice(5, 7)) - 1
}
