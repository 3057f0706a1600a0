/** Log lines for collectors and terminals, without secrets. */
import { Writable } from 'node:stream'
import { expect, test } from 'vitest'
import { Secret } from '../config/index.ts'
import { ServiceError } from '../errors/index.ts'
import { createLogger } from './index.ts'

function collect(isTTY = false) {
  let text = ''
  const stream = Object.assign(
    new Writable({
      write(chunk: Buffer, _encoding, done) {
        text += chunk.toString()
        done()
      },
    }),
    { isTTY },
  )
  return { logger: createLogger({ name: 'test', level: 'info', stream }), text: () => text }
}

test('the logger writes one JSON object per line, with the name, at its level and above', () => {
  const { logger, text } = collect()
  logger.debug('not this')
  logger.info({ part: 'a' }, 'up')
  expect(JSON.parse(text())).toMatchObject({ name: 'test', level: 30, part: 'a', msg: 'up' })
})

test('the logger writes readable lines on a terminal', () => {
  const { logger, text } = collect(true)
  logger.info({ part: 'a' }, 'up')
  expect(text()).toMatch(/INFO.*up/)
  expect(text()).not.toMatch(/^\{/)
})

test('the logger redacts secrets by name and by type', () => {
  const { logger, text } = collect()
  const token = 'hunter2'
  logger.info({ token, password: token, headers: { authorization: token }, config: { key: new Secret(token) } }, 'up')
  logger.child({ secret: token }).info('up')
  expect(text()).not.toContain('hunter2')
  expect(text()).toContain('[redacted]')
})

test('the logger logs an error with its stack and causes, without the rows that PostgreSQL quotes', () => {
  const { logger, text } = collect()
  const cause = Object.assign(new Error('new row violates a check'), {
    code: '23514',
    constraint: 'users_check',
    detail: 'Failing row contains (7, hunter2).',
    where: 'COPY users, line 1: "hunter2"',
  })
  logger.error({ err: new ServiceError('internal', 'internal error', { cause }) }, 'failed')
  logger.error({ err: cause }, 'failed')
  expect(text()).not.toContain('hunter2')
  expect(text()).toContain('new row violates a check')
  expect(text()).toContain('users_check')
  expect(text()).toContain('logger.test.ts')
})
