/**
 * Log lines that wait while a program shows the progress of its start: a reader sees the progress and the addresses first, and then
 * the log.
 */
import { pino } from 'pino'

/** The number of `warn` among the levels of pino. */
const WARN_LEVEL = 40
/** A start that takes longer after a warning no longer holds its lines. */
const WARNING_DELAY_MS = 5_000
/** With more lines than this, they are written and no longer held. */
const MAX_LINES = 10_000

/** An output of pino. */
export class HeldLines {
  /** Tells pino to set `lastLevel` before each line. */
  readonly [pino.symbols.needsMetadataGsym] = true
  lastLevel = 0
  readonly #target: { write(line: string): unknown }
  readonly #onRelease: () => void
  #lines: { level: number; line: string }[] = []
  #state: 'held' | 'warnings' | 'open' = 'held'
  #timer: NodeJS.Timeout | undefined

  /** `onRelease` is called before held lines are written. */
  constructor(target: { write(line: string): unknown }, onRelease: () => void = () => undefined) {
    this.#target = target
    this.#onRelease = onRelease
  }

  write(line: string): void {
    const level = this.lastLevel
    if (this.#state === 'held') {
      this.#lines.push({ level, line })
      if (level >= WARN_LEVEL) this.#timer ??= setTimeout(() => this.release(), WARNING_DELAY_MS).unref()
      if (this.#lines.length > MAX_LINES) this.release()
    } else if (this.#isWritten(level)) this.#target.write(line)
  }

  /** The program is up: writes the lines, and later ones at once. */
  release(): void {
    if (this.#state === 'held') this.#enter('open')
  }

  /** The start failed or is stopped: writes warnings and errors, now and later, and drops other lines. */
  releaseWarnings(): void {
    if (this.#state === 'held') this.#enter('warnings')
  }

  #isWritten(level: number): boolean {
    return this.#state === 'open' || level >= WARN_LEVEL
  }

  #enter(state: 'warnings' | 'open'): void {
    clearTimeout(this.#timer)
    this.#state = state
    const lines = this.#lines.filter(({ level }) => this.#isWritten(level))
    this.#lines = []
    if (lines.length > 0) this.#onRelease()
    for (const { line } of lines) this.#target.write(line)
  }
}
