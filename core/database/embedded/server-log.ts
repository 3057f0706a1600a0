/** What the server says on stderr, line by line and bounded. */
import type { Readable } from 'node:stream'

const MAX_LINE_CHARACTERS = 4096

/** An expected refusal of a statement: its caller has it already, and at the rate of ingest it would drown the log. */
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
  // A pipe that breaks ends the reading; the server's end is noticed by its exit.
  stream.on('error', () => {})
}
