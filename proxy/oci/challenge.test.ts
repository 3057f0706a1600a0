import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseChallenges } from './challenge.ts'

describe('parseChallenges', () => {
  it('reads a Bearer challenge with realm, service and scope', () => {
    const header =
      'Bearer realm="https://auth.example.com/token",service="r.example.com",scope="repository:a/b:pull,push"'
    expect(parseChallenges(header)).toEqual([
      {
        scheme: 'bearer',
        parameters: {
          realm: 'https://auth.example.com/token',
          service: 'r.example.com',
          scope: 'repository:a/b:pull,push',
        },
      },
    ])
  })

  it('reads several challenges in one header', () => {
    expect(parseChallenges('Basic realm="a, b" , BEARER Realm = "x"').map((challenge) => challenge.scheme)).toEqual([
      'basic',
      'bearer',
    ])
  })

  it('takes unquoted values and drops the escapes of quoted ones', () => {
    expect(parseChallenges('Basic realm=plain')[0]?.parameters['realm']).toBe('plain')
    expect(parseChallenges(String.raw`Basic realm="say \"hi\""`)[0]?.parameters['realm']).toBe('say "hi"')
  })

  it('keeps the first of two equal parameters', () => {
    expect(parseChallenges('Bearer realm="a",realm="b"')[0]?.parameters['realm']).toBe('a')
  })

  it('ends on any text without throwing', () => {
    fc.assert(fc.property(fc.string(), (text) => Array.isArray(parseChallenges(text))))
    expect(parseChallenges('Bearer realm="unterminated')).toHaveLength(1)
    expect(parseChallenges('"')).toEqual([])
  })
})
