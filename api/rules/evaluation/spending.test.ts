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
          const costliest = spending.add(rule, ms)
          if (costliest === undefined) continue
          ended.push(costliest.rule)
          expect(costliest.seconds).toBeCloseTo(2.73, 1)
        }
    expect(ended).toEqual(['dear'])
  })

  it('is that of each message, without what the process waited for', () => {
    const spending = new Spending<string>()
    for (let message = 0; message < 10; message++) {
      spending.begin()
      for (let record = 0; record < 100; record++) expect(spending.add('rule', 60_000)).toBeUndefined()
    }
    let ended = 0
    for (let record = 0; record < 51; record++) if (spending.add('rule', 60_000) !== undefined) ended++
    expect(ended).toBe(1)
  })
})
