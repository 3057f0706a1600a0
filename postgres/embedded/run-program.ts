/** Runs one of PostgreSQL's programs with a deadline and a bounded output. */
import { spawn } from 'node:child_process'
import { ServiceError } from '#core/errors/index.ts'
import { spawnIdentity } from './account.ts'
import type { Account } from './account.ts'
import { programFailure, spawnFailure } from './failures.ts'

export type ProgramRun = {
  file: string
  args: string[]
  account: Account
  environment: Record<string, string>
  /** The purpose of the program, as the subject of an error message. */
  purpose: string
  input?: string
  deadlineMs: number
  signal?: AbortSignal | undefined
}

const MAX_OUTPUT_CHARACTERS = 65_536

/** Resolves when the program exits with 0; otherwise throws `unavailable` with its last output, or `timeout` at the deadline. */
export function runProgram(run: ProgramRun): Promise<void> {
  return new Promise((resolve, reject) => {
    run.signal?.throwIfAborted()
    const child = spawn(run.file, run.args, {
      ...spawnIdentity(run.account),
      cwd: '/',
      env: run.environment,
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    let output = ''
    let refusal: unknown
    const collect = (chunk: string) => {
      output = (output + chunk).slice(-MAX_OUTPUT_CHARACTERS)
    }
    const end = (reason: unknown) => {
      refusal ??= reason
      child.kill('SIGKILL')
    }
    const onAbort = () => end(run.signal?.reason)
    const timer = setTimeout(
      () => end(new ServiceError('timeout', `${run.purpose}: not done within ${run.deadlineMs / 1000} s`)),
      run.deadlineMs,
    )
    run.signal?.addEventListener('abort', onAbort, { once: true })
    const settle = (error: unknown) => {
      clearTimeout(timer)
      run.signal?.removeEventListener('abort', onAbort)
      if (error === undefined) resolve()
      else reject(error as Error)
    }
    child.stdout.setEncoding('utf8').on('data', collect)
    child.stderr.setEncoding('utf8').on('data', collect)
    // A program that ends before it has read its input reports its own error.
    child.stdin.on('error', () => {})
    child.stdin.end(run.input ?? '')
    child.on('error', (error) => settle(spawnFailure(error, run.file)))
    child.on('close', (code) => settle(refusal ?? (code === 0 ? undefined : programFailure(run.purpose, output))))
  })
}
