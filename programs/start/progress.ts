/** Progress of `npm start`: one line per step, which gets its duration on a terminal. */
import { monotonicMs } from '#core/time.ts'

export type Progress = {
  /** Begins a step and ends the previous one. */
  step(what: string): void
  /** Ends the last step; returns the seconds since the start of the process. */
  done(): number
  /** Other output follows: it begins in a line of its own. */
  endLine(): void
  /** The start is stopped or has failed: nothing more is shown. */
  end(): void
}

export function createProgress(stream: Pick<NodeJS.WriteStream, 'isTTY' | 'write'>): Progress {
  let current: { what: string; sinceMs: number } | undefined
  let isOver = false
  const endLine = () => {
    if (current !== undefined && stream.isTTY) stream.write('\n')
  }
  const finish = () => {
    if (current === undefined) return
    const seconds = ((monotonicMs() - current.sinceMs) / 1000).toFixed(2)
    if (stream.isTTY) stream.write(`\r  ${current.what.padEnd(36)} ${seconds} s\n`)
    current = undefined
  }
  return {
    step(what) {
      if (isOver) return
      finish()
      current = { what, sinceMs: monotonicMs() }
      stream.write(`  ${what} ...${stream.isTTY ? '' : '\n'}`)
    },
    done() {
      finish()
      // The time origin is the start of the process.
      return performance.now() / 1000
    },
    endLine,
    end() {
      endLine()
      isOver = true
      current = undefined
    },
  }
}
