import { describe, expect, it } from 'vitest'
import type { Transaction } from '#core/database/index.ts'
import type { CompiledRule } from '../compile.ts'
import type { RuleClient } from '../engine/index.ts'
import { Evaluation } from './evaluation.ts'
import type { Caused } from './evaluation.ts'
import { judgeSilence } from './judging.ts'
import type { StepDomain } from './repository.ts'
import { SilenceWatch } from './silence.ts'

const AFTER_MS = 5_000
const CLIENTS = 30
/** What each client causes: a step causes at most four times as much, and what began below that. */
const CHARS = 1024 * 1024
const FITTING = 5

const idOf = (at: number) => `00000000-0000-4000-8000-${String(at).padStart(12, '0')}`
const IDS = Array.from({ length: CLIENTS }, (_, at) => idOf(at))

const RULE = {
  key: 1,
  silence: { afterMs: AFTER_MS, share: 1 },
  filter: {},
  timing: { forMs: 0, clearForMs: 0, cooldownMs: 0 },
  escalations: [],
} as unknown as CompiledRule

/** A database with the clients that are watched, and the states that steps have stored. */
class Store {
  watched = new Set(IDS)
  readonly states = new Map<string, unknown>()
  /** Clients that were read, for each statement. */
  readonly read: number[] = []

  readonly tx = {
    query: async ({ text, values }: { text: string; values: readonly unknown[] }) => {
      if (text.includes('rule_states')) return { rows: this.#statesOf() }
      const among = values.find((value) => Array.isArray(value)) as string[] | undefined
      const ids = [...(among ?? IDS)].filter((id) => this.watched.has(id))
      if (!text.includes('metadata')) return { rows: ids.map((id) => ({ id, createdAt: '' })) }
      this.read.push(among?.length ?? 0)
      return { rows: ids.map((id) => ({ id, name: id, tags: [], metadata: {} })) }
    },
  } as unknown as Transaction

  #statesOf(): object[] {
    return [...this.states].map(([id, state]) => ({
      rule_key: 1,
      publisher_id: id,
      channel_key: 0,
      subtopic: '',
      name: '',
      state: { state },
    }))
  }

  /** What a step commits. */
  keep({ states }: Evaluation): void {
    for (const { series, state } of states)
      if (state.status === 'idle') this.states.delete(series.publisherId)
      else this.states.set(series.publisherId, state)
  }
}

function setUp() {
  const clock = { nowMs: 0 }
  const store = new Store()
  const watch = new SilenceWatch(RULE, 1, clock)
  const told: string[][] = []
  /** One step. `chars`: what each client causes. */
  const step = async (chars = CHARS): Promise<boolean> => {
    const collected = { chars: 0 }
    const tolds: string[] = []
    const clients = new Map<string, RuleClient>()
    const evaluation = new Evaluation(({ effect, series }: Caused) => {
      collected.chars += chars
      expect(effect.kind === 'clear' || clients.has(series.publisherId)).toBe(true)
      tolds.push(`${effect.kind} ${series.publisherId}`)
    })
    const domain = { domainKey: 1 } as StepDomain
    const judged = { domain, watches: [[RULE, watch]] as const, paused: new Map(), clients }
    const hasMore = await judgeSilence(store.tx, { evaluation, collected }, judged)
    store.keep(evaluation)
    told.push(tolds)
    return hasMore
  }
  const begin = async () => {
    watch.restore(new Set(store.states.keys()))
    await watch.refresh(store.tx)
    clock.nowMs += 2 * AFTER_MS
  }
  const finish = async () => {
    for (let turn = 0; turn < CLIENTS && (await step()); turn++);
  }
  return { clock, store, watch, told, step, begin, finish, all: () => told.flat() }
}

const of = (kind: string, ids: readonly string[]) => ids.map((id) => `${kind} ${id}`)

describe('silence of many clients', () => {
  it('raises in steps of what one can store, each client once, in order', async () => {
    const { told, step, begin, finish, all } = setUp()
    await begin()
    expect(await step()).toBe(true)
    await finish()
    expect(all()).toEqual(of('raise', IDS))
    expect(told.map(({ length }) => length)).toEqual(Array.from({ length: CLIENTS / FITTING }, () => FITTING))
  })

  it('goes on with at least one client in each step, whatever it causes', async () => {
    const { told, step, begin } = setUp()
    await begin()
    expect(await step(100 * CHARS)).toBe(true)
    expect(await step(100 * CHARS)).toBe(true)
    expect(told).toEqual([of('raise', [idOf(0)]), of('raise', [idOf(1)])])
  })

  it('raises nothing for a client that was heard meanwhile, nor for one that is not watched any more', async () => {
    const { store, watch, step, begin, finish, all } = setUp()
    await begin()
    await step()
    watch.heard(idOf(10))
    store.watched.delete(idOf(11))
    await finish()
    expect(all()).toEqual(
      of(
        'raise',
        IDS.filter((id) => id !== idOf(10) && id !== idOf(11)),
      ),
    )
  })

  it('raises once also when the rules of the domain are read again in between', async () => {
    const { store, watch, step, begin, finish, all } = setUp()
    await begin()
    await step()
    watch.restore(new Set(store.states.keys()))
    await finish()
    expect(all()).toEqual(of('raise', IDS))
  })

  it('ends for clients that nobody watches any more, in such steps too', async () => {
    const { clock, store, watch, told, step, begin, finish } = setUp()
    await begin()
    await finish()
    told.length = 0
    store.watched.clear()
    clock.nowMs += 60_000
    await watch.refresh(store.tx)
    expect(await step()).toBe(true)
    // Those that are left are not silent again, although their states are stored.
    watch.restore(new Set(store.states.keys()))
    await finish()
    expect(told.flat()).toEqual(of('clear', IDS))
    expect(Math.max(...told.map(({ length }) => length))).toBe(FITTING)
    expect(store.states.size).toBe(0)
    expect(watch.size).toBe(0)
  })

  it('reads some clients at a time', async () => {
    const { store, step, begin } = setUp()
    await begin()
    await step(0)
    expect(store.read.length).toBeGreaterThan(0)
    expect(Math.max(...store.read)).toBeLessThanOrEqual(50)
  })
})
