/** What a spool loses: kill -9 at any moment, a disk that is full, a file that was cut or changed (docs/guides/join-a-worker.md). */
import { execFileSync, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Spool } from '#worker/spool/index.ts'

const PROGRAM = join(import.meta.dirname, 'spooling-program.ts')
const GIB = 1024 * 1024 * 1024

let folder: string
let path: string
const children: ChildProcess[] = []

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'skein-spool-'))
  path = join(folder, 'spool')
})
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
  rmSync(folder, { recursive: true })
})

const open = () => Spool.open(path, { maxBytes: GIB })
const payload = (index: number, bytes: number) => new Uint8Array(bytes).fill(index)

/** Runs the program until `isEnough` says so of one of its lines, and kills it then. Returns its lines. */
async function spoolUntil(
  { bytes, kept, prefix = [] }: { bytes: number | string; kept: 'all' | 'newest'; prefix?: string[] },
  isEnough: (line: string, child: ChildProcess) => boolean,
): Promise<string[]> {
  const [file, ...words] = [...prefix, process.execPath, '--disable-warning=ExperimentalWarning', PROGRAM]
  const child = spawn(file, [...words, path, String(bytes), kept], { stdio: ['ignore', 'pipe', 'inherit'] })
  children.push(child)
  const exited = once(child, 'exit')
  const lines: string[] = []
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line)
    if (isEnough(line, child)) child.kill('SIGKILL')
  }
  await exited
  return lines
}

const numbers = (lines: readonly string[], word: string) =>
  lines.flatMap((line) => (line.startsWith(`${word} `) ? [Number(line.slice(word.length + 1))] : []))

test('a result that was kept is there after kill -9 at any moment, once, also while the file is compacted', async () => {
  const BYTES = 1024 * 1024
  const acknowledged = new Set<number>()
  const isKept = new Set<number>()
  for (const killAfter of [2, 37, 61, 90, 43, 75]) {
    let seen = 0
    const lines = await spoolUntil({ bytes: BYTES, kept: 'newest' }, () => ++seen > killAfter)
    for (const index of numbers(lines, 'kept')) isKept.add(index)
    for (const index of numbers(lines, 'acknowledge')) acknowledged.add(index)
    const begun = new Set(numbers(lines, 'begin'))
    const spool = await open()
    const results = spool.results()
    const found = results.map(({ key }) => Number(key))
    expect(new Set(found).size).toBe(found.length)
    expect(found).toEqual(expect.arrayContaining([...isKept].filter((index) => !acknowledged.has(index))))
    for (const index of found) expect(isKept.has(index) || begun.has(index)).toBe(true)
    for (const result of results) expect(result.payload).toEqual(payload(Number(result.key), BYTES))
    await spool.close()
    expect(existsSync(`${path}.new`)).toBe(false)
    for (const index of found) isKept.add(index)
  }
  expect(acknowledged.size).toBeGreaterThan(40)
}, 240_000)

test('a file that was cut after any byte has all results before it', async () => {
  const ends: number[] = []
  let spool = await open()
  for (let index = 0; index < 4; index++) {
    await spool.add(String(index), payload(index, 30 + index))
    ends.push(statSync(path).size)
  }
  await spool.close()
  const whole = readFileSync(path)
  for (let length = 0; length <= whole.length; length++) {
    writeFileSync(path, whole.subarray(0, length))
    spool = await open()
    const complete = ends.filter((end) => end <= length).length
    expect(spool.results().map(({ key }) => key)).toEqual(['0', '1', '2', '3'].slice(0, complete))
    const bytes = length - (ends[complete - 1] ?? 0)
    expect(spool.damage).toEqual(bytes === 0 ? undefined : { bytes, isInside: false })
    // What comes next is not lost behind the rest of another.
    await spool.add('next', payload(9, 20))
    await spool.close()
    spool = await open()
    expect(spool.results().map(({ key }) => key)).toEqual([...['0', '1', '2', '3'].slice(0, complete), 'next'])
    expect(spool.damage).toBeUndefined()
    await spool.close()
  }
})

test('a changed byte of a result loses this result only, and says so once', async () => {
  let spool = await open()
  for (let index = 0; index < 3; index++) await spool.add(String(index), payload(index, 30))
  await spool.close()
  const whole = readFileSync(path)
  const recordBytes = whole.length / 3
  // The first seven bytes say how long the record is.
  for (let at = recordBytes + 7; at < 2 * recordBytes; at++) {
    const changed = Buffer.from(whole)
    changed.writeUInt8((changed[at] ?? 0) ^ 0x41, at)
    writeFileSync(path, changed)
    spool = await open()
    expect(spool.results().map(({ key }) => key)).toEqual(['0', '2'])
    expect(spool.damage).toEqual({ bytes: recordBytes, isInside: true })
    await spool.close()
    spool = await open()
    expect(spool.results().map(({ key }) => key)).toEqual(['0', '2'])
    expect(spool.damage).toBeUndefined()
    await spool.close()
  }
})

test('changed results side by side lose themselves only', async () => {
  let spool = await open()
  for (let index = 0; index < 6; index++) await spool.add(String(index), payload(index, 30))
  await spool.close()
  const changed = readFileSync(path)
  const recordBytes = changed.length / 6
  // As after a sector of the disk with zeros: the payloads of three results.
  for (const index of [1, 2, 3]) changed.fill(0, index * recordBytes + 12, (index + 1) * recordBytes)
  writeFileSync(path, changed)
  spool = await open()
  expect(spool.results().map(({ key }) => key)).toEqual(['0', '4', '5'])
  expect(spool.damage).toEqual({ bytes: 3 * recordBytes, isInside: true })
  await spool.close()
  spool = await open()
  expect(spool.results().map(({ key }) => key)).toEqual(['0', '4', '5'])
  expect(spool.damage).toBeUndefined()
  await spool.close()
})

test('a changed byte anywhere invents no result', async () => {
  let spool = await open()
  for (let index = 0; index < 3; index++) await spool.add(String(index), payload(index, 30))
  await spool.close()
  const whole = readFileSync(path)
  for (let at = 0; at < whole.length; at++) {
    const changed = Buffer.from(whole)
    changed.writeUInt8((changed[at] ?? 0) ^ 0x83, at)
    writeFileSync(path, changed)
    spool = await open()
    for (const { key, payload: found } of spool.results()) expect(found).toEqual(payload(Number(key), 30))
    expect(spool.size).toBe(new Set(spool.results().map(({ key }) => key)).size)
    expect(spool.damage).toBeDefined()
    await spool.close()
  }
})

const LIMIT_BYTES = 8192

test('a full disk keeps what it has, refuses new work, and gets the rest when there is room again', async () => {
  const lines = await spoolUntil(
    // A write beyond the limit is cut, as on a full disk.
    { bytes: 500, kept: 'all', prefix: ['prlimit', `--fsize=${LIMIT_BYTES}:unlimited`] },
    (line, child) => {
      if (line.startsWith('full')) {
        expect(line).toBe('full true')
        expect(statSync(path).size).toBeLessThanOrEqual(LIMIT_BYTES)
        execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:unlimited'])
      }
      return line.startsWith('saved')
    },
  )
  const refused = numbers(lines, 'refused')
  const all = [...numbers(lines, 'kept'), ...refused]
  expect(refused.length).toBeGreaterThan(0)
  expect(lines.some((line) => line.startsWith('saved'))).toBe(true)
  const spool = await open()
  expect(spool.damage).toBeUndefined()
  const found = new Set(spool.results().map(({ key }) => Number(key)))
  for (const index of all) expect(found.has(index)).toBe(true)
  for (const { key, payload: bytes } of spool.results()) expect(bytes).toEqual(payload(Number(key), 500))
  await spool.close()
}, 60_000)

test('a result that does not fit on the disk takes no smaller one with it', async () => {
  const SIZES = [500, 20_000, 300]
  const lines = await spoolUntil(
    { bytes: SIZES.join(','), kept: 'all', prefix: ['prlimit', `--fsize=${LIMIT_BYTES}:unlimited`] },
    (line, child) => {
      if (line === 'begin 9') execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:unlimited'])
      return line.startsWith('saved')
    },
  )
  expect(numbers(lines, 'refused').slice(0, 3)).toEqual([1, 4, 7])
  expect(numbers(lines, 'kept').slice(0, 6)).toEqual([0, 2, 3, 5, 6, 8])
  expect(lines.some((line) => line.startsWith('saved'))).toBe(true)
  const spool = await open()
  const found = new Map(spool.results().map((result) => [Number(result.key), result.payload]))
  for (const index of [...numbers(lines, 'kept'), ...numbers(lines, 'refused')])
    expect(found.get(index)).toEqual(payload(index, SIZES[index % SIZES.length] ?? 0))
  await spool.close()
}, 60_000)

test('a file that cannot be compacted takes further results', async () => {
  const MIB = 1024 * 1024
  let spool = await open()
  // Nothing can be written beside the file.
  mkdirSync(`${path}.new`)
  for (let index = 0; index < 40; index++) {
    await spool.add(String(index), payload(index, MIB))
    if (index > 0) spool.acknowledge(String(index))
  }
  await spool.add('next', payload(41, 20))
  expect(spool.isRefused).toBe(false)
  expect(statSync(path).size).toBeGreaterThan(40 * MIB)
  rmSync(`${path}.new`, { recursive: true })
  await spool.close()
  spool = await open()
  expect(spool.results()).toEqual([
    { key: '0', payload: payload(0, MIB) },
    { key: 'next', payload: payload(41, 20) },
  ])
  await spool.close()
})
