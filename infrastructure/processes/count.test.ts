import { Writable } from 'node:stream'
import { expect, test } from 'vitest'
import { createLogger } from '#core/logging/index.ts'
import { poolSizeOf, processCount } from './count.ts'

function logged() {
  const lines: string[] = []
  const stream = new Writable({ write: (chunk: Buffer, _encoding, done) => (lines.push(chunk.toString()), done()) })
  return { lines, logger: createLogger({ name: 'test', level: 'info', stream }) }
}

test('auto is one process below four cores, then half of the cores, at most eight', () => {
  const { lines, logger } = logged()
  const counts = [1, 2, 3, 4, 6, 8, 16, 64].map((cores) => processCount('auto', { cores, platform: 'linux' }, logger))
  expect(counts).toEqual([1, 1, 1, 2, 3, 4, 8, 8])
  expect(processCount(3, { cores: 1, platform: 'linux' }, logger)).toBe(3)
  expect(lines).toEqual([])
})

test('a single process serves if ports cannot be shared, and logs it once', () => {
  const { lines, logger } = logged()
  expect(processCount(4, { cores: 8, platform: 'darwin' }, logger)).toBe(1)
  expect(processCount('auto', { cores: 2, platform: 'darwin' }, logger)).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toContain('only Linux lets several share a port (SKEIN_API_PROCESSES=4)')
})

test('all pools together have as many connections as two processes have alone', () => {
  expect([1, 2, 3, 4, 8].map(poolSizeOf)).toEqual([16, 16, 10, 8, 4])
})
