// docs/guides/commands.md: what a form of a command sends
import { describe, expect, test } from 'vitest'
import { LIVES, NEW_COMMAND, commandOf } from './form.ts'

const NOW = Date.parse('2026-11-30T12:00:00Z')
const DAY_MS = 86_400_000

describe('a form of a command', () => {
  test('leaves out what is not given, and keeps the payload as it is', () => {
    expect(commandOf({ ...NEW_COMMAND, name: 'reboot' }, NOW)).toEqual({ name: 'reboot', timeout: '1m' })
    const payload = '{"delay": 5, "big": 9007199254740993}'
    expect(commandOf({ ...NEW_COMMAND, name: 'a.b-c', payload }, NOW).payload).toEqual({
      delay: 5,
      big: 9_007_199_254_740_993n,
    })
    expect(commandOf({ ...NEW_COMMAND, name: 'say', payload: 'null' }, NOW)).toHaveProperty('payload', null)
  })

  test('a life ends ahead, and within the limit of 30 days', () => {
    for (const [life] of LIVES) {
      const { expires_at: at } = commandOf({ ...NEW_COMMAND, name: 'reboot', life }, NOW)
      if (life === NEW_COMMAND.life) expect(at).toBeUndefined()
      else {
        expect(Date.parse(at ?? '')).toBeGreaterThan(NOW)
        expect(Date.parse(at ?? '')).toBeLessThan(NOW + 30 * DAY_MS)
      }
    }
  })

  test.each([
    ['', '', 'name'],
    ['two words', '', 'name'],
    ['a/b', '', 'name'],
    ['$sys', '', 'name'],
    ['reboot', '{delay: 5}', 'payload'],
  ])('%j with the payload %j is refused at the field %s', (name, payload, field) => {
    expect(() => commandOf({ ...NEW_COMMAND, name, payload }, NOW)).toThrow(expect.objectContaining({ field }) as Error)
  })
})
