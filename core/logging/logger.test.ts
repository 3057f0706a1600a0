/** Log lines for collectors and terminals, without secrets. */
import { Writable } from 'node:stream'
import { expect, test, vi } from 'vitest'
import { Secret } from '../config/index.ts'
import { ServiceError } from '../errors/index.ts'

// The lines of terminals are loaded where stdout is one.
const { isTTY } = process.stdout
process.stdout.isTTY = true
vi.resetModules()
const { createHeldLogger, createLogger } = await import('./index.ts')
process.stdout.isTTY = isTTY

function output(isTerminal = false) {
  let text = ''
  const stream = Object.assign(
    new Writable({
      write(chunk: Buffer, _encoding, done) {
        text += chunk.toString()
        done()
      },
    }),
    { isTTY: isTerminal },
  )
  return { stream, text: () => text }
}

function collect(isTTY = false) {
  const { stream, text } = output(isTTY)
  return { logger: createLogger({ name: 'test', level: 'info', stream }), text }
}

function hold(isTTY = false) {
  const { stream, text } = output(isTTY)
  const onRelease = vi.fn()
  return { ...createHeldLogger({ name: 'test', level: 'info', stream }, onRelease), text, onRelease }
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

test('held lines are written in their order when they are released, and later ones at once', () => {
  for (const isTTY of [false, true]) {
    const { logger, held, text, onRelease } = hold(isTTY)
    logger.info('first')
    logger.child({ part: 'a' }).warn('second')
    expect(text()).toBe('')
    held.release()
    expect(text()).toMatch(/first[^]*second/)
    logger.info('third')
    held.releaseWarnings()
    logger.info('fourth')
    expect(text()).toMatch(/second[^]*third[^]*fourth/)
    expect(onRelease).toHaveBeenCalledOnce()
  }
})

test('a start that does not succeed writes its warnings and errors alone', () => {
  const { logger, held, text } = hold()
  logger.info('a step')
  logger.warn('a warning')
  held.releaseWarnings()
  logger.info('stopped')
  logger.error('an error')
  expect(text()).toMatch(/a warning[^]*an error/)
  expect(text()).not.toMatch(/a step|stopped/)
})

test('a warning is not held for longer than five seconds', () => {
  vi.useFakeTimers()
  try {
    const { logger, text } = hold()
    logger.info('a step')
    vi.advanceTimersByTime(60_000)
    logger.warn('a warning')
    vi.advanceTimersByTime(4_999)
    expect(text()).toBe('')
    vi.advanceTimersByTime(1)
    expect(text()).toMatch(/a step[^]*a warning/)
  } finally {
    vi.useRealTimers()
  }
})

test('no more than 10,000 lines are held', () => {
  const { logger, text } = hold()
  for (let line = 0; line < 10_000; line++) logger.info('a step')
  expect(text()).toBe('')
  logger.info('one too many')
  expect(text()).toContain('one too many')
})
