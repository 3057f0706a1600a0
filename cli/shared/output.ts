/**
 * The forms of output (contract section 13): data, created, ok, revoked, usage, error; colours on a terminal only. All
 * terminal output passes through here, where control characters in text of servers, devices and guests are escaped; only
 * our own styles remain. Output to a pipe is not escaped.
 */
import { forTerminal, oneLine, safeJson } from './plain-text.ts'
import { renderResponse } from './table.ts'
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
const STYLES = new RegExp(`(\\u001B\\[(?:${Object.values(CODES).flat().join('|')})m)`)
const CLEAR_SCREEN = '\u001B[H\u001B[2J'
const CLEAR_LINE = '\r\u001B[K'

export type Stream = {
  isTTY?: boolean
  columns?: number
  write: (text: string, done?: (error?: Error | null) => void) => boolean
}

export type Output = {
  /** Whether standard output is a terminal; then data are tables. */
  readonly isTerminal: boolean
  /** Whether standard error is a terminal; then progress is shown. */
  readonly isErrorTerminal: boolean
  readonly isRaw: boolean
  data(value: unknown, view?: View): void
  created(id: string): void
  ok(): void
  revoked(time: string): void
  /** One line of text on standard output, or several. */
  line(text: string): void
  /** The same, but composed of painted parts and of texts that `oneLine` made safe. */
  styledLine(text: string): void
  /** Text without a line end. Resolves when there is room for more. */
  text(text: string): Promise<void>
  /** One event of a stream: a line of JSON for a pipe. */
  event(value: unknown, asText: () => string): void
  /** One event that replaces everything on the screen of a terminal. */
  screen(value: unknown, asText: () => string): void
  /** A line on standard error that replaces itself; empty removes it. It is shown only on a terminal. */
  progress(text: string): void
  /** Information for the user on standard error, not part of the data. */
  note(text: string): void
  /** A possible problem of a successful call: standard error. */
  hint(text: string): void
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
  const plain = (stream: Stream, text: string) => (stream.isTTY === true ? forTerminal(text) : text)
  // Foreign text in it went through `oneLine`; text that did not can at most be bold.
  const withStyles = (stream: Stream, text: string) =>
    stream.isTTY === true
      ? text
          .split(STYLES)
          .map((part, index) => (index % 2 === 1 ? part : forTerminal(part)))
          .join('')
      : text
  const out = (text: string) => void stdout.write(`${plain(stdout, text)}\n`)
  const styledOut = (text: string) => void stdout.write(`${withStyles(stdout, text)}\n`)
  const err = (text: string) => void stderr.write(`${plain(stderr, text)}\n`)
  return {
    isTerminal,
    isErrorTerminal: stderr.isTTY === true,
    isRaw,
    paint,
    data(value, view = {}) {
      if (isTerminal) styledOut(renderResponse(value, view, stdout.columns ?? DEFAULT_WIDTH, paint))
      else out(safeJson(value, 2))
    },
    created: (id) => (isRaw ? out(id) : styledOut(paint('blue', `created: ${oneLine(id)}`))),
    ok: () => styledOut(paint('blue', 'ok')),
    revoked: (time) => (isRaw ? out(time) : styledOut(paint('blue', `revoked: ${oneLine(time)}`))),
    line: out,
    styledLine: styledOut,
    text: (text) => new Promise((resolve) => void stdout.write(plain(stdout, text), () => resolve())),
    event: (value, asText) => (isTerminal ? styledOut(asText()) : out(safeJson(value))),
    screen(value, asText) {
      if (isTerminal) stdout.write(CLEAR_SCREEN)
      if (isTerminal) styledOut(asText())
      else out(safeJson(value))
    },
    progress(text) {
      if (stderr.isTTY === true) stderr.write(`${CLEAR_LINE}${oneLine(text)}`)
    },
    note: err,
    hint: (text) => void stderr.write(`${paintError('yellow', 'hint:')} ${oneLine(text)}\n`),
    error(message, hint) {
      stderr.write(`${paintError('red', 'error:')} ${oneLine(message)}\n`)
      if (hint !== undefined) stderr.write(`${paintError('dim', plain(stderr, hint))}\n`)
    },
    usage(usage, message) {
      if (message !== undefined) err(message)
      stderr.write(`${paintError('yellow', 'usage:')} ${plain(stderr, usage)}\n`)
    },
  }
}
