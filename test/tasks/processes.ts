/** Managers and workers as processes of their own, to be killed. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { until } from './support.ts'

const PROGRAMS = join(import.meta.dirname, '../../programs')

export type TestProcess = {
  child: ChildProcess
  output: () => string
  kill(): Promise<void>
  stop(): Promise<number | null>
}

/** Starts a program with these settings and nothing of our own environment but what Node needs. */
export function startProgram(name: 'manager' | 'worker', environment: Record<string, string>): TestProcess {
  const child = spawn(process.execPath, [join(PROGRAMS, `${name}.ts`)], {
    env: { PATH: process.env['PATH'], ...COMPILE_CACHE, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  child.stdout.on('data', (data: Buffer) => (output += data.toString()))
  child.stderr.on('data', (data: Buffer) => (output += data.toString()))
  const end = async (signal: NodeJS.Signals) => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill(signal)
    await ended
  }
  return {
    child,
    output: () => output,
    kill: () => end('SIGKILL'),
    async stop() {
      await end('SIGTERM')
      return child.exitCode
    },
  }
}

/** Resolves when the address answers `GET /health`. */
export async function untilHealthy(base: string, program: TestProcess): Promise<void> {
  await until(
    'health',
    async () => {
      if (program.child.exitCode !== null) throw new Error(`it ended: ${program.output()}`)
      return await fetch(`${base}/health`).then(
        (response) => response.status,
        () => 0,
      )
    },
    (status) => status === 200,
    60_000,
  )
}
