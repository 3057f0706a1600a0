/**
 * Selects the strongest isolation level of this machine for processes that handle input of tenants (task-manager.md
 * section 4). Each level is tested with a real process before it is used.
 */
import { spawn } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { processEnvironment } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { ISOLATION_LEVELS } from './levels.ts'
import type { Isolation, IsolationLevel } from './levels.ts'
import { reachableBinary } from './reachable-folder.ts'
import { commandFor } from './command.ts'

/** Folders of bubblewrap in addition to PATH: a service often starts with a short one. */
const BWRAP_FOLDERS = ['/usr/bin', '/usr/local/bin', '/bin']
const PROBE_DEADLINE_MS = 10_000
const MAX_PROBE_OUTPUT_CHARACTERS = 500

export type EstablishOptions = {
  /** The level that the operator requires; a weaker one is refused. */
  required: IsolationLevel
  /** Levels above this one are not tried. */
  strongest?: IsolationLevel | undefined
  /** Folder of the worker that other users can enter; Node is copied there if they cannot reach it elsewhere. */
  folder: string
}

/**
 * Selects the strongest working level. Throws `unprocessable` if it is weaker than the required one, with the reason for
 * each level that does not work.
 */
export async function establishIsolation({ required, strongest, folder }: EstablishOptions): Promise<Isolation> {
  const reasons: string[] = []
  for (const level of ISOLATION_LEVELS.slice(ISOLATION_LEVELS.indexOf(strongest ?? 'namespace'))) {
    const isolation = await prepare(level, folder)
    const reason = typeof isolation === 'string' ? isolation : await probe(isolation)
    if (typeof isolation !== 'string' && reason === undefined) return isolation
    reasons.push(`${level}: ${reason}`)
    if (level === required) {
      throw new ServiceError('unprocessable', `SKEIN_WORKER_ISOLATION requires ${required} (${reasons.join('; ')})`)
    }
  }
  throw new ServiceError('unprocessable', `failed to start an isolated process (${reasons.join('; ')})`)
}

/** A string: the reason why the level does not work. */
async function prepare(level: IsolationLevel, folder: string): Promise<Isolation | string> {
  const isRoot = process.getuid?.() === 0
  switch (level) {
    case 'namespace': {
      if (process.platform !== 'linux') return 'needs Linux'
      const bwrap = findBwrap()
      if (bwrap === undefined) return 'bwrap is not installed (package bubblewrap)'
      const node = isRoot ? await reachableBinary(folder) : process.execPath
      return { level, changesUser: isRoot, node, namespace: { bwrap, libraries: librariesOfNode() } }
    }
    case 'uid':
      if (!isRoot) return 'the worker does not run as root'
      // The binary can be below a folder that the other user cannot enter; this name needs no path to it.
      return { level, changesUser: true, node: process.platform === 'linux' ? '/proc/self/exe' : process.execPath }
    case 'process':
      return { level, changesUser: false, node: process.execPath }
  }
}

function findBwrap(): string | undefined {
  const folders = [...BWRAP_FOLDERS, ...(processEnvironment()['PATH'] ?? '').split(delimiter)]
  return folders.map((folder) => join(folder, 'bwrap')).find(isExecutable)
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** Shared objects of this process, by their loaded names; an isolated Node needs no other files. */
function librariesOfNode(): string[] {
  const report = process.report as NodeJS.ProcessReport & { excludeNetwork: boolean }
  const isNetworkExcluded = report.excludeNetwork
  // Otherwise the report queries name servers about every open connection.
  report.excludeNetwork = true
  const { sharedObjects } = report.getReport() as { sharedObjects: string[] }
  report.excludeNetwork = isNetworkExcluded
  return sharedObjects.filter((path) => path.startsWith('/') && path !== process.execPath)
}

/** Starts Node in it once. Undefined: it works; else the reason. */
async function probe(isolation: Isolation): Promise<string | undefined> {
  const { command, args, options } = commandFor(isolation, { codeFolder: undefined, user: 0, node: ['--version'] })
  const startedMs = monotonicMs()
  let output = ''
  let timer: NodeJS.Timeout | undefined
  try {
    // Throws for a user that a user namespace of this process does not know.
    const child = spawn(command, args, { ...options, stdio: ['ignore', 'ignore', 'pipe'] })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(-MAX_PROBE_OUTPUT_CHARACTERS)
    })
    timer = setTimeout(() => child.kill('SIGKILL'), PROBE_DEADLINE_MS)
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('close', resolve)
      child.once('error', reject)
    })
    if (code === 0) return undefined
    if (monotonicMs() - startedMs >= PROBE_DEADLINE_MS) return `did not start within ${PROBE_DEADLINE_MS / 1_000} s`
    return output.trim() === '' ? `exited with code ${code}` : output.trim()
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  } finally {
    clearTimeout(timer)
  }
}
