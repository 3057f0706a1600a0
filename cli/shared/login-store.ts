/**
 * Contexts (installations of the user) and their tokens, in one file that only its owner can read. Every change takes a
 * lock and replaces the whole file: a refresh token works once (decision 41), so two concurrent commands must not both
 * use it.
 */
import {
  chmodSync,
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { CommandError } from './failures.ts'
import type { Addresses } from './settings.ts'

export type Login = {
  username: string
  access_token: string
  refresh_token: string
  /** Origins that the tokens can be sent to: those in use at login. */
  origins: string[]
}

export type Context = { addresses: Addresses; domain?: string; login?: Login }

export type Contexts = {
  current: string
  contexts: Record<string, Context>
  /** The consent to the addresses, TLS verification and tokens of a `config.toml`, and a digest of them, by the path of the file. */
  folders?: Record<string, { digest: string; isAgreed: boolean }>
}

const LOCK_DEADLINE_MS = 15_000
/** An older lock was left by a command that died: no command holds it longer than one refresh. */
const LOCK_STALE_MS = 30_000
const LOCK_POLL_MS = 20

export function readContexts(path: string): Contexts {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { current: 'default', contexts: {} }
    throw new CommandError(`cannot read ${path}: ${(error as Error).message}`)
  }
  try {
    return JSON.parse(text) as Contexts
  } catch {
    throw new CommandError(`${path} is damaged`, `remove it and log in again: rm ${path} && skein login`)
  }
}

/** Changes the file under the lock; `change` receives its current content. */
export async function changeContexts<T>(path: string, change: (all: Contexts) => T | Promise<T>): Promise<T> {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  const release = await lock(`${path}.lock`)
  try {
    const all = readContexts(path)
    const result = await change(all)
    const next = `${path}.${process.pid}`
    writeFileSync(next, `${JSON.stringify(all, undefined, 2)}\n`, { mode: 0o600 })
    chmodSync(next, 0o600)
    renameSync(next, path)
    return result
  } finally {
    release()
  }
}

async function lock(path: string): Promise<() => void> {
  const end = performance.now() + LOCK_DEADLINE_MS
  for (;;) {
    try {
      closeSync(openSync(path, 'wx', 0o600))
      return () => rmSync(path, { force: true })
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST')
        throw new CommandError(`cannot write ${path}: ${(error as Error).message}`)
    }
    if (isStale(path)) rmSync(path, { force: true })
    else if (performance.now() > end)
      throw new CommandError(
        'another skein command holds the login file',
        `if no command runs, remove the lock: rm ${path}`,
      )
    else await sleep(LOCK_POLL_MS)
  }
}

function isStale(path: string): boolean {
  try {
    return Date.now() - statSync(path).mtimeMs > LOCK_STALE_MS
  } catch {
    return false
  }
}

/** The claims of a JWT, not verified: the server verifies them. Undefined for anything else. */
export function claimsOf(token: string): { exp?: number; iat?: number; sub?: string; domain?: string } | undefined {
  const payload = token.split('.')[1]
  if (payload === undefined) return undefined
  try {
    return JSON.parse(Buffer.from(payload, 'base64url').toString('utf8')) as { exp?: number }
  } catch {
    return undefined
  }
}
