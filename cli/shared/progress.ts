/** A progress line on standard error. Silent without a terminal. */
import type { Output } from './output.ts'

const MIN_BETWEEN_MS = 100
const BAR_WIDTH = 24

export type Progress = {
  /** `done` of `total`, both in `unit`. */
  at(done: number, total: number): void
  /** The current step, without an amount. */
  say(text: string): void
  /** Removes the line. */
  end(): void
}

export function createProgress(output: Output, what: string, format: (amount: number) => string = String): Progress {
  let shownAt = -Infinity
  let isShown = false
  const show = (text: string) => {
    isShown = true
    output.progress(text)
  }
  return {
    at(done, total) {
      const now = performance.now()
      if (!output.isErrorTerminal || (now - shownAt < MIN_BETWEEN_MS && done < total)) return
      shownAt = now
      const share = total === 0 ? 1 : Math.min(done / total, 1)
      const bar = '#'.repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH, '.')
      show(`${what} [${bar}] ${format(done)} of ${format(total)}`)
    },
    say(text) {
      const now = performance.now()
      if (!output.isErrorTerminal || now - shownAt < MIN_BETWEEN_MS) return
      shownAt = now
      show(`${what} ${text}`)
    },
    end() {
      if (isShown) output.progress('')
      isShown = false
    },
  }
}

export function formatBytes(bytes: number): string {
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(0)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`
}
