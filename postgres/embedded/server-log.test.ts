import { Readable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { describe, expect, it } from 'vitest'
import { readLines } from './server-log.ts'

async function linesOf(chunks: string[]): Promise<string[]> {
  const lines: string[] = []
  const stream = Readable.from(chunks.map((chunk) => Buffer.from(chunk)))
  readLines(stream, (line) => lines.push(line))
  await finished(stream)
  return lines
}

describe('the log of the server', () => {
  it('is delivered line by line, independent of chunks, with an unfinished last line', async () => {
    expect(await linesOf(['[startup] LOG:  one\n[check', 'pointer] LOG:  two\n\n', 'three'])).toEqual([
      '[startup] LOG:  one',
      '[checkpointer] LOG:  two',
      'three',
    ])
  })

  it('omits errors of statements that their callers receive, and nothing else', async () => {
    const kept = [
      '[client backend] FATAL:  role "x" does not exist',
      '[checkpointer] ERROR:  could not write',
      'PANIC: x',
    ]
    const left = ['[client backend] ERROR:  duplicate key', '[client backend] STATEMENT:  SELECT 1']
    expect(await linesOf([[...kept, ...left].join('\n')])).toEqual(kept)
  })

  it('bounds each line, also without line breaks', async () => {
    const lines = await linesOf(Array.from({ length: 20 }, () => 'x'.repeat(1000)))
    expect(lines).toEqual(['x'.repeat(4096)])
  })
})
