import { describe, expect, it } from 'vitest'
import { MAX_OF_DOMAIN, MAX_OF_PROCESS, judgeWindows } from './window-budget.ts'

const NOW_MS = 1_000_000
const used = (size: number) => ({ size, usedMs: NOW_MS })

describe('windows', () => {
  it('of one domain have a limit', () => {
    const small = used(MAX_OF_DOMAIN)
    const large = used(MAX_OF_DOMAIN + 1)
    expect(judgeWindows(small, [small, used(MAX_OF_DOMAIN)], NOW_MS)).toEqual({ isTooMuch: false, unused: [] })
    expect(judgeWindows(large, [large], NOW_MS)).toEqual({ isTooMuch: true, unused: [] })
  })

  it('of all domains have one, which those exceed that have more than their share', () => {
    const [large, small] = [used(MAX_OF_DOMAIN), used(1_000)]
    const all = [large, used(MAX_OF_DOMAIN), used(MAX_OF_DOMAIN), small]
    expect(judgeWindows(large, all, NOW_MS).isTooMuch).toBe(true)
    expect(judgeWindows(small, all, NOW_MS).isTooMuch).toBe(false)
  })

  it('that nothing used for a minute make room first', () => {
    const [large, old] = [used(MAX_OF_DOMAIN), { size: MAX_OF_PROCESS / 2, usedMs: NOW_MS - 60_001 }]
    expect(judgeWindows(large, [old, large, used(MAX_OF_DOMAIN)], NOW_MS)).toEqual({ isTooMuch: false, unused: [old] })
  })
})
