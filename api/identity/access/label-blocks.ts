/**
 * Names and tags of many entities in memory, to be counted by: a string of names and arrays of numbers for each few thousand
 * rows, 50 bytes a row where objects would take 300. Whoever keeps them sees to it that they are those of the database.
 */
import { setImmediate } from 'node:timers/promises'

export type Labelled = { key: number; status: string; name: string; tags: readonly string[] }

export type LabelFilter = {
  /** Undefined: any. */
  status?: string
  /** What stands in the name, as a regular expression. */
  name?: string
  /** All of them. */
  tags: readonly string[]
}

/** No text of PostgreSQL has it. */
const END_OF_NAME = '\0'
/** A block is counted within a millisecond; between two of them others have their turn. */
export const BLOCK_ROWS = 8192
/** Rows that are added join the last block until it has so many: they are copied with it. */
const OPEN_ROWS = 1024
/** In place of the status of a row that was removed. */
const GONE = 0

type Block = {
  /** Ascending, each once. */
  keys: Float64Array
  statuses: Uint8Array
  /** Each followed by END_OF_NAME. */
  names: string
  nameEnds: Uint32Array
  tags: Uint32Array
  tagEnds: Uint32Array
  gone: number
  bytes: number
}

/** Texts as numbers, from 1. */
function createNumbers() {
  const known = new Map<string, number>()
  const texts: string[] = []
  return {
    find: (text: string) => known.get(text),
    of(text: string): number {
      const number = known.get(text) ?? known.size + 1
      if (number > texts.length) {
        known.set(text, number)
        texts.push(text)
      }
      return number
    },
    textOf: (number: number) => texts[number - 1] ?? '',
    get bytes() {
      return texts.length * 100
    },
  }
}

export type LabelBlocks = ReturnType<typeof createLabelBlocks>

export function createLabelBlocks() {
  const blocks: Block[] = []
  const statuses = createNumbers()
  const tags = createNumbers()

  function blockOf(rows: readonly Labelled[]): Block {
    const sorted = rows.toSorted((left, right) => left.key - right.key)
    let [nameEnd, tagEnd] = [0, 0]
    const names = sorted.map(({ name }) => name + END_OF_NAME).join('')
    const block = {
      keys: Float64Array.from(sorted, ({ key }) => key),
      statuses: Uint8Array.from(sorted, ({ status }) => statuses.of(status)),
      names,
      nameEnds: Uint32Array.from(sorted, ({ name }) => (nameEnd += name.length + 1)),
      tags: Uint32Array.from(sorted.flatMap((row) => row.tags.map(tags.of))),
      tagEnds: Uint32Array.from(sorted, (row) => (tagEnd += row.tags.length)),
    }
    const arrays = [block.keys, block.statuses, block.nameEnds, block.tags, block.tagEnds]
    // A string takes two bytes a letter as soon as one of them needs it; the bytes in UTF-8 are near enough.
    return {
      ...block,
      gone: 0,
      bytes: Buffer.byteLength(names) + arrays.reduce((sum, { byteLength }) => sum + byteLength, 0),
    }
  }

  function rowsOf(block: Block): Labelled[] {
    const names = block.names.split(END_OF_NAME)
    return Array.from(block.keys, (key, row) => ({
      key,
      status: statuses.textOf(block.statuses[row] ?? GONE),
      name: names[row] ?? '',
      tags: Array.from(block.tags.subarray(block.tagEnds[row - 1] ?? 0, block.tagEnds[row]), tags.textOf),
    })).filter((_, row) => block.statuses[row] !== GONE)
  }

  function add(rows: readonly Labelled[]): void {
    const last = blocks.at(-1)
    const isOpen = last !== undefined && last.keys.length + rows.length <= OPEN_ROWS
    // A key stands in a block once, so what is gone of it goes with the block.
    const all = isOpen ? [...rowsOf(last), ...rows] : rows
    if (isOpen) blocks.pop()
    for (let from = 0; from < all.length; from += BLOCK_ROWS) blocks.push(blockOf(all.slice(from, from + BLOCK_ROWS)))
  }

  function remove(key: number): void {
    for (const block of blocks) {
      const row = placeOf(block.keys, key)
      if (block.keys[row] !== key || block.statuses[row] === GONE) continue
      block.statuses[row] = GONE
      block.gone += 1
    }
  }

  /** Copies what is left of blocks of which most is gone. */
  function dropGone(): void {
    const sparse = blocks.filter(({ keys, gone }) => gone > keys.length / 2)
    for (const block of sparse) blocks.splice(blocks.indexOf(block), 1)
    const left = sparse.flatMap(rowsOf)
    if (left.length > 0) add(left)
  }

  return {
    /** Rows that are not there yet. */
    add,
    /** These are all that there is of these keys. */
    replace(keys: readonly number[], rows: readonly Labelled[]): void {
      keys.forEach(remove)
      if (rows.length > 0) add(rows)
      dropGone()
    },
    /** Lets others have their turn; nothing may be added or replaced until it is done. */
    async count({ status, name, tags: asked }: LabelFilter): Promise<number> {
      const wantedStatus = status === undefined ? undefined : statuses.find(status)
      const wantedTags = asked.flatMap((tag) => tags.find(tag) ?? [])
      if (wantedTags.length < asked.length || (status !== undefined && wantedStatus === undefined)) return 0
      const pattern = name === undefined ? undefined : new RegExp(`${name}[^${END_OF_NAME}]*${END_OF_NAME}`, 'g')
      let total = 0
      for (const block of blocks) {
        const isCounted = (row: number) => {
          const own = block.statuses[row]
          if (own === GONE || (wantedStatus !== undefined && own !== wantedStatus)) return false
          return wantedTags.every(isAmong(block, row))
        }
        for (const row of pattern === undefined ? block.keys.keys() : rowsNamed(block, pattern)) {
          if (isCounted(row)) total += 1
        }
        await setImmediate()
      }
      return total
    },
    get bytes() {
      return blocks.reduce((sum, block) => sum + block.bytes, tags.bytes)
    },
  }
}

/** The rows whose names match, each once: a match reaches to the end of its name. */
function* rowsNamed({ names, nameEnds }: Block, pattern: RegExp): Generator<number> {
  pattern.lastIndex = 0
  for (let row = 0; pattern.test(names); row++) {
    while ((nameEnds[row] ?? Infinity) < pattern.lastIndex) row += 1
    yield row
  }
}

function isAmong({ tags, tagEnds }: Block, row: number): (tag: number) => boolean {
  const [from, to] = [tagEnds[row - 1] ?? 0, tagEnds[row] ?? 0]
  return (tag) => {
    for (let at = from; at < to; at++) if (tags[at] === tag) return true
    return false
  }
}

/** Where the key stands in the ascending list, or would. */
function placeOf(keys: Float64Array, key: number): number {
  let [from, to] = [0, keys.length]
  while (from < to) {
    const middle = (from + to) >>> 1
    if ((keys[middle] ?? Infinity) < key) from = middle + 1
    else to = middle
  }
  return from
}
