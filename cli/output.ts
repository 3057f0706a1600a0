/** The forms of output (contract section 13): data, created, ok, revoked, usage, error; colours on a terminal only. */
import { oneLine, safeJson } from './plain-text.ts'
import { renderAnswer } from './table.ts'
import type { View } from './table.ts'
import type { Environment } from './settings.ts'

type Style = 'bold' | 'dim' | 'red' | 'yellow' | 'blue' | 'green'

const CODES: Readonly<Record<Style, readonly [number, number]>> = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  yellow: [33, 39],
  blue: [34, 39],
  green: [32, 39],
}

const DEFAULT_WIDTH = 100

export type Stream = { isTTY?: boolean; columns?: number; write: (text: string) => boolean }

export type Output = {
  /** Whether a person reads standard output; then data are tables. */
  readonly isTerminal: boolean
  /** Whether a person reads standard error; then progress is shown. */
  readonly isErrorTerminal: boolean
  readonly isRaw: boolean
  data(value: unknown, view?: View): void
  created(id: string): void
  ok(): void
  revoked(time: string): void
  /** One line of text on standard output. */
  line(text: string): void
  /** One event of a stream: a line of JSON for a pipe. */
  event(value: unknown, asText: () => string): void
  /** For the user and not for the pipe: standard error. */
  note(text: string): void
  error(message: string, hint?: string): void
  usage(usage: string, message?: string): void
  paint(style: Style, text: string): string
}

export function createOutput(
  streams: { stdout: Stream; stderr: Stream },
  isRaw: boolean,
  environment: Environment,
): Output {
  const { stdout, stderr } = streams
  const mayPaint = (environment['NO_COLOR'] ?? '') === '' && environment['TERM'] !== 'dumb'
  const styled = (stream: Stream) => (style: Style, text: string) =>
    mayPaint && stream.isTTY === true ? `\u001B[${CODES[style][0]}m${text}\u001B[${CODES[style][1]}m` : text
  const paint = styled(stdout)
  const paintError = styled(stderr)
  const isTerminal = stdout.isTTY === true && !isRaw
  const out = (text: string) => void stdout.write(`${text}\n`)
  const err = (text: string) => void stderr.write(`${text}\n`)
  return {
    isTerminal,
    isErrorTerminal: stderr.isTTY === true,
    isRaw,
    paint,
    data(value, view = {}) {
      if (isTerminal) out(renderAnswer(value, view, stdout.columns ?? DEFAULT_WIDTH, paint))
      else out(safeJson(value, 2))
    },
    created: (id) => out(isRaw ? id : paint('blue', `created: ${oneLine(id)}`)),
    ok: () => out(paint('blue', 'ok')),
    revoked: (time) => out(isRaw ? time : paint('blue', `revoked: ${oneLine(time)}`)),
    line: out,
    event: (value, asText) => out(isTerminal ? asText() : safeJson(value)),
    note: err,
    error(message, hint) {
      err(`${paintError('red', 'error:')} ${oneLine(message)}`)
      if (hint !== undefined) err(`${paintError('dim', hint)}`)
    },
    usage(usage, message) {
      if (message !== undefined) err(message)
      err(`${paintError('yellow', 'usage:')} ${usage}`)
    },
  }
}
