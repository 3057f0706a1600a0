/**
 * Records of successful runs of long suites. A record replaces a run while every file that the suite guards is, byte for byte, what it was
 * at the commit of the record. Whatever cannot be verified means that the suite runs.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export type Summary = { passed: number; failed: number; skipped: number; seconds: number }

export type SuiteRecord = {
  suite: string
  /** The suite ran with a clean checkout of this commit. */
  commit: string
  /** RFC 3339. */
  finished_at: string
  /** Of each guarded path its Git object: the digest of the file, or of all files of the folder. */
  digests: Readonly<Record<string, string>>
  summary: Summary
}

export const MAX_RECORD_DAYS = 7
const DAY_MS = 86_400_000
/** Clocks of the machines that write and read records differ by less. */
const MAX_CLOCK_DIFFERENCE_MS = 10 * 60_000
const GIT_OUTPUT_BYTES = 64 * 1024 * 1024

/** Undefined where Git is absent, or fails: a folder without history, a commit that a shallow clone lacks. */
function git(root: string, ...args: readonly string[]): string | undefined {
  try {
    return execFileSync('git', ['-C', root, ...args], {
      encoding: 'utf8',
      maxBuffer: GIT_OUTPUT_BYTES,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
  } catch {
    return undefined
  }
}

export const headOf = (root: string): string | undefined => git(root, 'rev-parse', 'HEAD')?.trim()

/** Every file of the commit that is checked out; undefined without Git. */
export const trackedFiles = (root: string): string[] | undefined =>
  git(root, 'ls-files', '-z')
    ?.split('\0')
    .filter((path) => path !== '')

/** The object of each path at the commit; undefined when one of them is missing there. */
export function digestsAt(
  root: string,
  commit: string,
  paths: readonly string[],
): Readonly<Record<string, string>> | undefined {
  const objects = git(root, 'rev-parse', ...paths.map((path) => `${commit}:${path}`))
    ?.trim()
    .split('\n')
  if (objects?.length !== paths.length) return undefined
  return Object.fromEntries(paths.map((path, at) => [path, objects[at] ?? '']))
}

/** The first paths that differ from the last commit, untracked files among them; undefined without Git. */
export function uncommitted(root: string, paths: readonly string[]): string[] | undefined {
  return git(root, 'status', '--porcelain', '--untracked-files=all', '--', ...paths)
    ?.split('\n')
    .filter((line) => line !== '')
    .map((line) => line.slice(3))
}

export type Folder = { root: string; records: string }

const fileOf = ({ records }: Folder, suite: string) => join(records, `${suite}.json`)

export function writeRecord(folder: Folder, record: SuiteRecord): string {
  mkdirSync(folder.records, { recursive: true })
  const file = fileOf(folder, record.suite)
  writeFileSync(file, `${JSON.stringify(record, undefined, 2)}\n`)
  return file
}

function readRecord(folder: Folder, suite: string): SuiteRecord | undefined {
  try {
    return JSON.parse(readFileSync(fileOf(folder, suite), 'utf8')) as SuiteRecord
  } catch {
    return undefined
  }
}

export type Verdict =
  | { isDue: true; why: string }
  /** Says which run stands for this one. */
  | { isDue: false; why: string }

/** Whether a suite must run, with the reason. `now` in milliseconds since 1970. */
export function isSuiteDue(folder: Folder, suite: string, paths: readonly string[], now: number): Verdict {
  const due = (why: string): Verdict => ({ isDue: true, why })
  if (!existsSync(fileOf(folder, suite))) return due('no record')
  const record = readRecord(folder, suite)
  if (record?.suite !== suite || !isSuccess(record.summary)) return due('the record is not that of a successful run')
  const ageMs = now - Date.parse(record.finished_at)
  if (!(ageMs >= -MAX_CLOCK_DIFFERENCE_MS)) return due(`the record has an invalid time: ${record.finished_at}`)
  if (ageMs > MAX_RECORD_DAYS * DAY_MS) return due(`the record is older than ${MAX_RECORD_DAYS} days`)
  if (!/^[0-9a-f]{40,64}$/.test(record.commit)) return due('the record names no commit')
  const { root } = folder
  if (git(root, 'merge-base', '--is-ancestor', record.commit, 'HEAD') === undefined)
    return due(`commit ${record.commit.slice(0, 8)} of the record is not in the history of this checkout`)
  if (Object.keys(record.digests).toSorted().join('\n') !== [...new Set(paths)].toSorted().join('\n'))
    return due('the suite guards other paths than at the time of the record')
  const then = digestsAt(root, record.commit, paths)
  const current = digestsAt(root, 'HEAD', paths)
  if (then === undefined || current === undefined) return due('a guarded path does not exist')
  const forged = paths.find((path) => then[path] !== record.digests[path])
  if (forged !== undefined) return due(`the record has another digest of ${forged} than its commit`)
  const changed = paths.filter((path) => current[path] !== then[path])
  if (changed.length > 0) return due(`changed since ${record.commit.slice(0, 8)}: ${changed.join(', ')}`)
  const dirty = uncommitted(root, paths)
  if (dirty === undefined || dirty.length > 0) return due(`not committed: ${dirty?.slice(0, 3).join(', ')}`)
  const { passed, seconds } = record.summary
  const at = record.finished_at.slice(0, 16).replace('T', ' ')
  return {
    isDue: false,
    why: `${passed} passed in ${seconds} s on ${at} UTC at ${record.commit.slice(0, 8)}; nothing that it guards has changed`,
  }
}

export const isSuccess = (summary: Summary | undefined): boolean =>
  summary !== undefined && summary.passed > 0 && summary.failed === 0 && summary.skipped === 0
