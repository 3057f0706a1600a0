/** What the tests of the embedded server share: folders that are removed, programs that are ended, a plain client. */
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { sleep, withDeadline } from '#core/time.ts'
import type { EmbeddedConnection } from '#postgres/embedded/index.ts'

export const isRoot = process.getuid?.() === 0
const DEADLINE_MS = 60_000

export type Folder = { path: string; [Symbol.dispose](): void }

/** Open to every user id, since the server of root runs under another one. */
export function temporaryFolder(mode = 0o755): Folder {
  const path = mkdtempSync(join(tmpdir(), 'skein-embedded-'))
  chmodSync(path, mode)
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 5 }) }
}

export type StartedProgram = {
  pid: number
  /** What it printed: the server, or the refusal. */
  said: {
    connection: EmbeddedConnection
    dataDir: string
    notices: string[]
    pid: number
    kind?: string
    message?: string
  }
  ended: Promise<void>
  /** SIGTERM, and the server stops with it. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Starts `embedded-program.ts`, under another user id where one is given. */
export async function startProgram(options: Record<string, unknown>, uid?: number): Promise<StartedProgram> {
  const file = fileURLToPath(new URL('embedded-program.ts', import.meta.url))
  const child = spawn(process.execPath, [file, JSON.stringify(options)], {
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
    ...(uid === undefined ? {} : { uid, gid: uid }),
  })
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const line = new Promise<string>((resolve, reject) => {
    createInterface(child.stdout)
      .once('line', resolve)
      .once('close', () => reject(new Error('it said nothing')))
  })
  const said = JSON.parse(await withDeadline(line, DEADLINE_MS, 'the program')) as StartedProgram['said']
  return {
    pid: child.pid ?? 0,
    said,
    ended,
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      await withDeadline(ended, DEADLINE_MS, 'the end of the program')
    },
  }
}

/** Runs statements on a connection of their own and returns the rows of the last one. */
export async function query(connection: EmbeddedConnection, ...statements: string[]): Promise<pg.QueryResultRow[]> {
  const client = new pg.Client(connection)
  // The server may be killed under it; the failed statement says so.
  client.on('error', () => {})
  await client.connect()
  try {
    let rows: pg.QueryResultRow[] = []
    for (const statement of statements) rows = (await client.query(statement)).rows
    return rows
  } finally {
    await client.end()
  }
}

export async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const end = performance.now() + DEADLINE_MS
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`${what} did not come true within ${DEADLINE_MS / 1000} s`)
    await sleep(10)
  }
}

/** True while the process runs; one that has ended and waits for its parent to notice does not. */
export function exists(pid: number): boolean {
  const { stdout } = spawnSync('ps', ['-o', 'stat=', '-p', String(pid)], { encoding: 'utf8' })
  return stdout.trim() !== '' && !stdout.startsWith('Z')
}
