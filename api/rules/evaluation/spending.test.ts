import { describe, expect, it } from 'vitest'
import { Spending } from './spending.ts'

describe('the time of one message', () => {
  it('ends the rule that took the most of it, and the others go on', () => {
    const spending = new Spending<string>()
    spending.begin()
    const ended: string[] = []
    for (let record = 0; record < 1_000; record++)
      for (const [rule, ms] of [
        ['dear', 10],
        ['cheap', 1],
      ] as const)
        if (!ended.includes(rule)) {
          const costliest = spending.add(rule, { ms, chars: 0 })
          if (costliest === undefined) continue
          ended.push(costliest.rule)
          expect(costliest.took).toBe('took 2.7 s')
        }
    expect(ended).toEqual(['dear'])
  })

  it('is that of each message, without what the process waited for', () => {
    const spending = new Spending<string>()
    for (let message = 0; message < 10; message++) {
      spending.begin()
      for (let record = 0; record < 100; record++)
        expect(spending.add('rule', { ms: 60_000, chars: 0 })).toBeUndefined()
    }
    let ended = 0
    for (let record = 0; record < 51; record++)
      if (spending.add('rule', { ms: 60_000, chars: 0 }) !== undefined) ended++
    expect(ended).toBe(1)
  })

  it('limits what the message causes too', () => {
    const spending = new Spending<string>()
    spending.begin()
    for (let record = 0; record < 31; record++)
      expect(spending.add(record === 0 ? 'small' : 'large', { ms: 0, chars: 1024 * 1024 })).toBeUndefined()
    const costliest = spending.add('large', { ms: 0, chars: 2 * 1024 * 1024 })
    expect(costliest).toEqual({ rule: 'large', took: 'caused 32.0 MB of alarms and messages' })
    expect(spending.add('small', { ms: 0, chars: 1024 * 1024 })).toBeUndefined()
  })
})
