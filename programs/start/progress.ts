/** Progress of `npm start`: one line per step on a terminal, log lines elsewhere. */
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'

export type Progress = {
  /** Begins a step and ends the previous one. */
  step(what: string): void
  /** Ends the last step; returns the seconds since the start of the process. */
  done(): number
}

export function createProgress(logger: Logger, stream: NodeJS.WriteStream): Progress {
  let current: { what: string; sinceMs: number } | undefined
  const finish = () => {
    if (current === undefined) return
    const seconds = ((monotonicMs() - current.sinceMs) / 1000).toFixed(2)
    if (stream.isTTY) stream.write(`\r  ${current.what.padEnd(36)} ${seconds} s\n`)
    else logger.debug({ seconds: Number(seconds) }, current.what)
    current = undefined
  }
  return {
    step(what) {
      finish()
      current = { what, sinceMs: monotonicMs() }
      if (stream.isTTY) stream.write(`  ${what} ...`)
    },
    done() {
      finish()
      // The time origin is the start of the process.
      return performance.now() / 1000
    },
  }
}
