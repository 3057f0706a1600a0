import { describe, expect, it } from 'vitest'
import { matchOf } from './match.ts'

const SCREENS = ['/', '/d/$domain', '/d/$domain/alarms/$id', '/d/$domain/alarms/maintenance'].map((path) => ({ path }))
const found = (path: string) => matchOf(SCREENS, path)

describe('the screen of a path', () => {
  it('is the one whose parts fit, with the values of its variables', () => {
    expect(found('/d/a/alarms/b')).toEqual({ screen: SCREENS[2], parts: { domain: 'a', id: 'b' } })
  })

  it('is rather one with a word than one with a variable', () => {
    expect(found('/d/a/alarms/maintenance')?.screen).toBe(SCREENS[3])
  })

  it('is the same with a slash at the end, and the first one without any part', () => {
    expect(found('/d/a/')).toEqual({ screen: SCREENS[1], parts: { domain: 'a' } })
    expect(found('')?.screen).toBe(SCREENS[0])
    expect(found('/')?.screen).toBe(SCREENS[0])
  })

  it('is none for a path of another length or with other words', () => {
    expect(['/d', '/d/a/alarms', '/d/a/alarms/b/c', '/sign-in', '/e/a'].map(found)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
    ])
  })
})
