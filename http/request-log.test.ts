/** Lines of a request say which request it was. */
import { Writable } from 'node:stream'
import type { FastifyBaseLogger } from 'fastify'
import { expect, test } from 'vitest'
import { createLogger } from '#core/logging/index.ts'
import { createRequestLog } from './request-log.ts'

test('a line carries id, method and path of its request, and no query, which may hold credentials', () => {
  const lines: Record<string, unknown>[] = []
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(JSON.parse(chunk.toString()) as Record<string, unknown>)
      done()
    },
  })
  const logger = createLogger({ name: 'test', level: 'info', stream })
  const log = createRequestLog(
    logger as unknown as FastifyBaseLogger,
    { reqId: 'r-1' },
    {},
    {
      method: 'POST',
      url: '/m/d/c/c?authorization=secret',
    },
  )
  log.info('refused')
  expect(lines).toMatchObject([{ reqId: 'r-1', method: 'POST', path: '/m/d/c/c', msg: 'refused' }])
  expect(JSON.stringify(lines)).not.toContain('secret')
})
