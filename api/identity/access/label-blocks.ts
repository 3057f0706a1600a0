/**
 * Names, tags and groups of many entities in memory, to be counted by: a string of names and arrays of numbers for each thousand
 * rows, 60 bytes a row where objects would take 300. Whoever keeps them sees to it that they are those of the database.
 */
import { setImmediate } from 'node:timers/promises'

/** `group` is the key of the group above; 0: none. */
export type Labelled = { key: number; status: string; name: string; tags: readonly string[]; group: number }

/** What a caller reaches: whatever lies in these groups, and these entities. */
export type Within = { groups: ReadonlySet<number>; keys: ReadonlySet<number> }

export type LabelFilter = {
  /** Undefined: any. */
  status?: string
  /** What stands in the name, as a regular expression. */
  name?: string
  /** All of them. */
  tags: readonly string[]
}

type Bounds = {
  most?: number | undefined
  /** Undefined: everywhere. */
  within?: Within | undefined
}

export type FoundLabels = { total: number; keys?: readonly number[] }

/** No text of PostgreSQL has it. */
const END_OF_NAME = '\0'
/**
 * So many are read or looked at before others have their turn: three milliseconds to read them. Rows that are added are copied with the last block
 * until it has so many.
 */
export const BLOCK_ROWS = 2048
/** In place of the status of a row that was removed. */
const GONE = 0

type Block = {
  /** Ascending, each once. */
  keys: Float64Array
  groups: Float64Array
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
    const names = sorted.map(({ name }) => name + END_OF_NAME).join('')
    const block = {
      keys: new Float64Array(sorted.length),
      groups: new Float64Array(sorted.length),
      statuses: new Uint8Array(sorted.length),
      names,
      nameEnds: new Uint32Array(sorted.length),
      tags: new Uint32Array(sorted.reduce((sum, row) => sum + row.tags.length, 0)),
      tagEnds: new Uint32Array(sorted.length),
    }
    let [nameEnd, tagEnd] = [0, 0]
    for (const [at, row] of sorted.entries()) {
      block.keys[at] = row.key
      block.groups[at] = row.group
      block.statuses[at] = statuses.of(row.status)
      block.nameEnds[at] = nameEnd += row.name.length + 1
      for (const tag of row.tags) block.tags[tagEnd++] = tags.of(tag)
      block.tagEnds[at] = tagEnd
    }
    const arrays = [block.keys, block.groups, block.statuses, block.nameEnds, block.tags, block.tagEnds]
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
      group: block.groups[row] ?? 0,
      tags: Array.from(block.tags.subarray(block.tagEnds[row - 1] ?? 0, block.tagEnds[row]), tags.textOf),
    })).filter((_, row) => block.statuses[row] !== GONE)
  }

  function add(rows: readonly Labelled[]): void {
    const last = blocks.at(-1)
    const isOpen = last !== undefined && last.keys.length + rows.length <= BLOCK_ROWS
    // A key stands in a block once, so what is gone of it goes with the block.
    const all = isOpen ? [...rowsOf(last), ...rows] : rows
    if (isOpen) blocks.pop()
    for (let from = 0; from < all.length; from += BLOCK_ROWS) blocks.push(blockOf(all.slice(from, from + BLOCK_ROWS)))
  }

  function remove(key: number): void {
    for (const block of blocks) {
      if (key < (block.keys[0] ?? 0) || key > (block.keys.at(-1) ?? 0)) continue
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
    /**
     * How many rows match, and their keys in any order if they are at most `most`. Lets others have their turn; nothing may be added or
     * replaced until it is done.
     */
    async find({ status, name, tags: asked }: LabelFilter, { most = 0, within }: Bounds = {}): Promise<FoundLabels> {
      const wantedStatus = status === undefined ? undefined : statuses.find(status)
      const wantedTags = asked.flatMap((tag) => tags.find(tag) ?? [])
      if (wantedTags.length < asked.length || (status !== undefined && wantedStatus === undefined))
        return { total: 0, keys: [] }
      const pattern = name === undefined ? undefined : new RegExp(`${name}[^${END_OF_NAME}]*${END_OF_NAME}`, 'g')
      const [firstTag] = wantedTags
      const rowsToLookAt = (block: Block) => {
        if (pattern !== undefined) return rowsNamed(block, pattern)
        return firstTag === undefined ? block.keys.keys() : rowsTagged(block, firstTag)
      }
      let total = 0
      const keys: number[] = []
      for (const block of blocks) {
        const isCounted = (row: number) => {
          const own = block.statuses[row]
          if (own === GONE || (wantedStatus !== undefined && own !== wantedStatus)) return false
          if (within !== undefined && !isWithin(block, row, within)) return false
          return wantedTags.every(isAmong(block, row))
        }
        for (const row of rowsToLookAt(block)) {
          if (!isCounted(row)) continue
          total += 1
          if (total <= most) keys.push(block.keys[row] ?? 0)
        }
        await setImmediate()
      }
      return total > most ? { total } : { total, keys }
    },
    get rows() {
      return blocks.reduce((sum, { keys, gone }) => sum + keys.length - gone, 0)
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

/** The rows that have the tag, each once. */
function* rowsTagged({ tags, tagEnds }: Block, tag: number): Generator<number> {
  let row = 0
  for (let at = tags.indexOf(tag); at !== -1; at = tags.indexOf(tag, tagEnds[row])) {
    while ((tagEnds[row] ?? Infinity) <= at) row += 1
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

const isWithin = ({ keys: own, groups: above }: Block, row: number, { groups, keys }: Within) =>
  groups.has(above[row] ?? 0) || keys.has(own[row] ?? 0)

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
