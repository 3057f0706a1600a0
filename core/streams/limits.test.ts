import { expect, test } from 'vitest'
import { kindOf } from '../errors/index.ts'
import { StreamLimits } from './limits.ts'

const refusal = (open: () => unknown): unknown => {
  try {
    return open()
  } catch (error) {
    return error
  }
}

test.each(['client', 'user', 'domain'] as const)(
  'one %s has a limit, and the error names its setting; another one has its own',
  (scope) => {
    const key = (number: number) => (scope === 'domain' ? String(number) : number)
    const limits = new StreamLimits({ client: 9, user: 9, domain: 9, [scope]: 2 })
    const close = limits.admit({ [scope]: key(1) })
    limits.admit({ [scope]: key(1) })
    const error = refusal(() => limits.admit({ [scope]: key(1) }))
    expect(kindOf(error)).toBe('rate_limited')
    expect((error as Error).message).toContain(`SKEIN_STREAMS_PER_${scope.toUpperCase()}`)
    limits.admit({ [scope]: key(2) })
    expect(limits.size).toBe(3)
    close()
    close()
    expect(limits.size).toBe(2)
    limits.admit({ [scope]: key(1) })
    expect(kindOf(refusal(() => limits.admit({ [scope]: key(1) })))).toBe('rate_limited')
  },
)

test('a stream that one limit rejects is not counted by the others', () => {
  const limits = new StreamLimits({ client: 1, user: 1, domain: 2 })
  limits.admit({ client: 1, domain: 'a' })
  refusal(() => limits.admit({ client: 1, domain: 'a' }))
  limits.admit({ client: 2, domain: 'a' })
  expect(limits.size).toBe(2)
})
