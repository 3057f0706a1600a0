/** The server's stderr, line by line and bounded. */
import type { Readable } from 'node:stream'

const MAX_LINE_CHARACTERS = 4096

/** An error of a statement: its caller receives it, and at the rate of ingest it would flood the log. */
const CALLERS_OWN = /^\[client backend\] (ERROR|WARNING|NOTICE|STATEMENT|DETAIL|HINT|CONTEXT):/

export function readLines(stream: Readable, onLine: (line: string) => void): void {
  let rest = ''
  const emit = (line: string) => {
    const text = line.trimEnd()
    if (text !== '' && !CALLERS_OWN.test(text)) onLine(text.slice(0, MAX_LINE_CHARACTERS))
  }
  stream.setEncoding('utf8')
  stream.on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n')
    rest = (lines.pop() ?? '').slice(0, MAX_LINE_CHARACTERS)
    for (const line of lines) emit(line)
  })
  stream.on('end', () => emit(rest))
  // A broken pipe ends the reading; the exit of the server is noticed separately.
  stream.on('error', () => {})
}
