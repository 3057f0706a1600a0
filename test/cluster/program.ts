/** Programs that are killed and started again, configured by the files of `deploy/ha/`. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { createWriteStream, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Account } from '#postgres/embedded/account.ts'
import { familyOf } from '../harness/whole.ts'
import type { Site } from './network.ts'

export const DEPLOY = join(import.meta.dirname, '../../deploy/ha')

/** `KEY=VALUE` lines of an environment file, with the addresses and folders of the test in place of those of the machines. */
export function environmentOf(file: string, replace: (key: string, value: string) => string): Record<string, string> {
  const lines = readFileSync(join(DEPLOY, file), 'utf8').split('\n')
  const pairs = lines.filter((line) => /^[A-Z]/.test(line)).map((line) => line.split(/=(.*)/s) as [string, string])
  return Object.fromEntries(pairs.map(([key, value]) => [key, replace(key, value)]))
}

/** A program that is killed and started again. It writes its output to a file of the folder. */
export class Program {
  readonly #start: () => ChildProcess
  #child: ChildProcess | undefined
  #hasEnded = Promise.resolve()

  constructor(
    name: string,
    options: {
      site: Site
      file: string
      args: string[]
      env: Record<string, string>
      folder: string
      account: Account
    },
  ) {
    const { site, env, folder, account } = options
    const { file, args, identity } = site.command(options.file, options.args, account)
    this.#start = () => {
      const log = createWriteStream(join(folder, `${name}.log`), { flags: 'a' })
      const child = spawn(file, args, {
        ...identity,
        cwd: '/',
        env: { PATH: process.env['PATH'] ?? '', HOME: folder, LC_ALL: 'C.UTF-8', ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      child.stdout?.pipe(log, { end: false })
      child.stderr?.pipe(log, { end: false })
      child.once('close', () => log.end())
      return child
    }
  }

  begin(): void {
    const child = this.#start()
    this.#child = child
    this.#hasEnded = new Promise((resolve) => {
      child.once('exit', () => resolve())
      child.once('error', () => resolve())
    })
  }

  /** With everything that it started. */
  get family(): number[] {
    const { pid, exitCode, signalCode } = this.#child ?? {}
    return pid === undefined || exitCode !== null || signalCode !== null ? [] : familyOf(pid)
  }

  async kill(): Promise<void> {
    for (const pid of this.family) signal(pid, 'SIGKILL')
    await this.#hasEnded
  }
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // It has ended.
  }
}
