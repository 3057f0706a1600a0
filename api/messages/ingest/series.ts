/**
 * The keys of series: from a bounded cache, otherwise from the table; missing series are created in their own transaction before the
 * messages are written. A key is cached only after its commit.
 */
import { createHash } from 'node:crypto'
import type { ChannelAccess } from '#api/devices/index.ts'
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Database } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { inTurns } from '#core/turns.ts'
import type { IncomingMessage } from '../model/message.ts'
import type { SeriesLimits, WantedSeries } from './series-table.ts'
import { SERIES_LIMITS, createSeries, readKeys } from './series-table.ts'

export type SeriesKeys = {
  /** The keys of the message's records, in order, when all of them are cached. */
  find(message: IncomingMessage): number[] | undefined
  /**
   * The keys of each message's records. A message that would exceed a limit gets its own `unprocessable` error with the limit. May be
   * repeated.
   */
  resolve(messages: readonly IncomingMessage[]): Promise<(number[] | ServiceError)[]>
}

/** The memory of the cache, estimated by the length of names. */
const MAX_CACHE_BYTES = 32 * 1024 * 1024
const ENTRY_BYTES = 96
/** A prefix of SHA-256: long enough to exclude collisions, and short for the index. */
const DIGEST_BYTES = 16
/** The most that fit in an integer of a number. */
const ORDER_BYTES = 6
/** The part of a series that all records of a message share, in the cache. Keys are found by unit and name. */
type Stream = { units: Map<string, Map<string, number>>; bytes: number }

/** A wanted series, its stream in the cache, and the beginning of its digest as a number, for sorting. */
type Wanted = WantedSeries & { streamId: string; order: number }

export function createSeriesKeys(database: Database, limits: SeriesLimits = SERIES_LIMITS): SeriesKeys {
  const streams = new BoundedCache<string, Stream>({ maxSize: MAX_CACHE_BYTES, sizeOf: (stream) => stream.bytes })

  function find(message: IncomingMessage): number[] | undefined {
    if (message.content.kind !== 'records') return []
    const stream = streams.get(streamIdOf(message))
    if (stream === undefined) return undefined
    const keys: number[] = []
    let unitOfNames: string | undefined
    let names: ReadonlyMap<string, number> | undefined
    for (const { name, unit } of message.content.records) {
      // Records of one unit are often adjacent.
      if (unit !== unitOfNames) {
        unitOfNames = unit
        names = stream.units.get(unit)
      }
      const key = names?.get(name)
      if (key === undefined) return undefined
      keys.push(key)
    }
    return keys
  }

  /** Adds a key whose transaction is committed. */
  function remember({ streamId, name, unit }: Wanted, key: number): void {
    const stream: Stream = streams.get(streamId) ?? { units: new Map(), bytes: ENTRY_BYTES + streamId.length }
    const names = stream.units.get(unit) ?? new Map<string, number>()
    if (names.size === 0) stream.bytes += ENTRY_BYTES + unit.length
    if (!names.has(name)) stream.bytes += ENTRY_BYTES + name.length
    stream.units.set(unit, names.set(name, key))
    streams.set(streamId, stream, { size: stream.bytes })
  }

  return {
    find,
    async resolve(messages) {
      const cached = messages.map(find)
      if (!cached.includes(undefined)) return cached as number[][]
      const unknown = messages.filter((_, index) => cached[index] === undefined)
      const wanted = await seriesOf(unknown)
      const found = new Map<Wanted, number>()
      await readKeys(database, wanted, found)
      const absent = wanted.filter((series) => !found.has(series))
      const refused = absent.length === 0 ? NO_REFUSALS : await createSeries(database, absent, limits, found)
      await inTurns(found, ([series, key]) => remember(series, key))

      // The answers are read from the local result: the bounded cache may have evicted what was just found.
      const answers = new Map<string, number | ServiceError>()
      for (const [series, key] of found) answers.set(idOf(series), key)
      for (const [series, refusal] of refused) answers.set(idOf(series), refusal)
      return messages.map((message, index) => cached[index] ?? keysOf(message, answers))
    },
  }
}

const NO_REFUSALS: ReadonlyMap<Wanted, ServiceError> = new Map()

/** The keys of a message's records, or the first error. */
function keysOf(
  message: IncomingMessage,
  answers: ReadonlyMap<string, number | ServiceError>,
): number[] | ServiceError {
  if (message.content.kind !== 'records') return []
  const streamId = streamIdOf(message)
  const keys: number[] = []
  for (const { name, unit } of message.content.records) {
    const answer = answers.get(`${streamId}\n${entryOf(name, unit)}`)
    if (answer === undefined) throw new Error('a series was neither found nor refused')
    if (typeof answer !== 'number') return answer
    keys.push(answer)
  }
  return keys
}

/**
 * The beginning of the ids of a publisher's streams. The messages of a publisher share their access, which the gate keeps, so that the
 * text is made and hashed once and not for each message.
 */
const ownIds = new WeakMap<ChannelAccess, string>()

function streamIdOf({ access, subtopic }: IncomingMessage): string {
  let id = ownIds.get(access)
  if (id === undefined) ownIds.set(access, (id = `${access.channelKey} ${access.publisherKey ?? ''} `))
  return subtopic === '' ? id : id + subtopic
}

/** Names contain no line feed (SenML), so it separates the two parts. */
function entryOf(name: string, unit: string): string {
  return unit === '' ? name : `${name}\n${unit}`
}

function idOf({ streamId, name, unit }: Wanted): string {
  return `${streamId}\n${entryOf(name, unit)}`
}

/** The series that the messages need, without duplicates, sorted. It works in turns: a message can have thousands of new series. */
async function seriesOf(messages: readonly IncomingMessage[]): Promise<Wanted[]> {
  const wanted = new Map<string, Wanted>()
  for (const message of messages) {
    if (message.content.kind !== 'records') continue
    const { access, subtopic } = message
    const streamId = streamIdOf(message)
    await inTurns(message.content.records, ({ name, unit }) => {
      const id = `${streamId}\n${entryOf(name, unit)}`
      if (wanted.has(id)) return
      const digest = digestOf(access.publisherKey, subtopic, name, unit)
      wanted.set(id, {
        domainKey: access.domainKey,
        channelKey: access.channelKey,
        publisherKey: access.publisherKey,
        publisherId: access.publisherId ?? '',
        subtopic,
        name,
        unit,
        digest,
        streamId,
        order: digest.readUIntBE(0, ORDER_BYTES),
      })
    })
  }
  // Sorted, like every statement over many rows: unsorted ones could deadlock.
  return [...wanted.values()].toSorted(
    (left, right) =>
      left.domainKey - right.domainKey ||
      left.channelKey - right.channelKey ||
      left.order - right.order ||
      left.digest.compare(right.digest),
  )
}

function digestOf(publisherKey: number | null, subtopic: string, name: string, unit: string): Buffer {
  // None of the parts can contain a NUL character.
  return createHash('sha256')
    .update(`${publisherKey ?? ''}\0${subtopic}\0${name}\0${unit}`)
    .digest()
    .subarray(0, DIGEST_BYTES)
}
