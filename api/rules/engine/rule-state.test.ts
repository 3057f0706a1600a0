import { describe, expect, it } from 'vitest'
import { IDLE, advance, advanceTime, dueAt } from './rule-state.ts'
import type { RuleEffect, RuleState, RuleTiming } from './rule-state.ts'

const AT_ONCE: RuleTiming = { forMs: 0, clearForMs: 0, cooldownMs: 0 }

/** A sample at a time, with the results of the condition and of `clear_when`. Only a time: nothing but time passes. */
type Step = [atMs: number, holds?: boolean, clears?: boolean]

/** The effects of the steps as `kind@time(cause)`, where the cause of a sample is its time; and the state after them. */
function run(timing: RuleTiming, steps: readonly Step[], from: RuleState = IDLE) {
  let state = from
  const effects: RuleEffect[] = []
  for (const [atMs, holds, clears] of steps) {
    const advanced =
      holds === undefined
        ? advanceTime(timing, state, atMs)
        : advance(timing, state, { atMs, holds, clears, cause: `m${atMs}` })
    effects.push(...advanced.effects)
    // What is stored is what is read.
    state = JSON.parse(JSON.stringify(advanced.state)) as RuleState
  }
  return { state, log: effects.map(({ kind, atMs, cause }) => `${kind}@${atMs}(${cause})`) }
}

describe('a rule without times', () => {
  it('raises once, counts what repeats, and clears', () => {
    const { log, state } = run(AT_ONCE, [
      [1, false],
      [2, true],
      [3, true],
      [4, true],
      [5, false],
      [6, false],
      [7, true],
    ])
    expect(log).toEqual(['raise@2(m2)', 'repeat@3(m3)', 'repeat@4(m4)', 'clear@5(m5)', 'raise@7(m7)'])
    expect(state).toEqual({ status: 'active', sinceMs: 7, cause: 'm7', count: 1 })
    expect(dueAt(AT_ONCE, state)).toBeUndefined()
  })

  it('stays active between the condition and clear_when', () => {
    const { log } = run(AT_ONCE, [
      [1, true, false],
      [2, false, false],
      [3, false, false],
      [4, false, true],
    ])
    expect(log).toEqual(['raise@1(m1)', 'clear@4(m4)'])
  })

  it('is not cleared while the condition holds', () => {
    expect(
      run(AT_ONCE, [
        [1, true, true],
        [2, true, true],
      ]).log,
    ).toEqual(['raise@1(m1)', 'repeat@2(m2)'])
  })
})

describe('for', () => {
  const timing = { ...AT_ONCE, forMs: 100 }

  it('raises when the condition has held, at that time and not at the call', () => {
    const { state } = run(timing, [
      [10, true],
      [50, true],
    ])
    expect(dueAt(timing, state)).toBe(110)
    expect(run(timing, [[10, true], [50, true], [109]]).log).toEqual([])
    expect(run(timing, [[10, true], [50, true], [500]]).log).toEqual(['raise@110(m10)'])
    expect(
      run(timing, [
        [10, true],
        [500, true],
      ]).log,
    ).toEqual(['raise@110(m10)', 'repeat@500(m500)'])
  })

  it('starts again when the condition did not hold', () => {
    expect(run(timing, [[10, true], [50, false], [60, true], [159]]).log).toEqual([])
    expect(run(timing, [[10, true], [50, false], [60, true], [160]]).log).toEqual(['raise@160(m60)'])
  })

  it('was reached before a later message that ends it', () => {
    expect(
      run(timing, [
        [10, true],
        [500, false],
      ]).log,
    ).toEqual(['raise@110(m10)', 'clear@500(m500)'])
  })
})

describe('clear_for', () => {
  const timing = { ...AT_ONCE, clearForMs: 100 }

  it('clears when the alarm could be cleared for so long', () => {
    const { state, log } = run(timing, [
      [1, true],
      [10, false],
      [50, false],
    ])
    expect(log).toEqual(['raise@1(m1)'])
    expect(dueAt(timing, state)).toBe(110)
    expect(run(timing, [[300]], state).log).toEqual(['clear@110(m10)'])
  })

  it('is broken by the condition, and by a value that does not clear', () => {
    expect(run(timing, [[1, true], [10, false], [50, true], [200]]).log).toEqual(['raise@1(m1)', 'repeat@50(m50)'])
    expect(run(timing, [[1, true], [10, false, true], [50, false, false], [200]]).log).toEqual(['raise@1(m1)'])
  })
})

describe('cooldown', () => {
  const timing = { ...AT_ONCE, cooldownMs: 100 }

  it('delays the next alarm until its end, if the condition still holds', () => {
    const steps: Step[] = [
      [1, true],
      [10, false],
      [20, true],
      [30, true],
    ]
    expect(run(timing, steps).log).toEqual(['raise@1(m1)', 'clear@10(m10)'])
    expect(dueAt(timing, run(timing, steps).state)).toBe(110)
    expect(run(timing, [...steps, [200]]).log.at(-1)).toBe('raise@110(m20)')
    expect(run(timing, [...steps, [40, false], [200], [201, true]]).log.slice(2)).toEqual(['raise@201(m201)'])
  })

  it('counts beside the time that the condition must hold', () => {
    const both = { ...timing, forMs: 30 }
    const steps: Step[] = [[0, true], [30], [40, false]]
    expect(run(both, [...steps, [50, true], [500]]).log.at(-1)).toBe('raise@140(m50)')
    expect(run(both, [...steps, [130, true], [500]]).log.at(-1)).toBe('raise@160(m130)')
  })
})

it('a clock that goes back delays and breaks nothing', () => {
  const timing = { ...AT_ONCE, forMs: 100 }
  expect(run(timing, [[1000, true], [500, true], [1099]]).log).toEqual([])
  expect(run(timing, [[1000, true], [500, true], [1100]]).log).toEqual(['raise@1100(m1000)'])
})
