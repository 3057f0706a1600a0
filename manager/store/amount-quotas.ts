/**
 * The quotas `tasks`, `workflows`, `schedules`, `triggers`, `state_keys` and `state_bytes` of domains (contract decision 98, docs/decisions/0090): what a domain has is
 * counted about once a second for the domains that add something, and this process adds what it created since, so that a new task costs no
 * statement of its own. Before a refusal it is counted again, if this process has changed something since.
 */
import { DOMAIN_QUOTAS, DomainMeter, requireWithin } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import { TASK_AMOUNTS, countTaskAmount } from '#queues/index.ts'
import type { TaskAmount } from '#queues/index.ts'
import type { TaskQuotas } from '../access/access.ts'
import type { TaskFields } from '../model/task-fields.ts'

/** What a change adds to a domain; negative: it takes it away. */
export type AmountChange = Readonly<Partial<Record<TaskAmount, number>>>

type Scheduled = Partial<Pick<TaskFields, 'schedule' | 'trigger'>>

/** What a task with these fields is. */
export const amountsOf = ({ schedule, trigger }: Scheduled): Record<'tasks' | 'schedules' | 'triggers', number> => ({
  tasks: 1,
  schedules: Number(typeof schedule === 'string'),
  triggers: Number(trigger !== undefined && trigger !== null),
})

/** What a change of these fields adds to a task, or removes from it. */
export function amountsOfChange(before: Required<Scheduled>, fields: Scheduled): AmountChange {
  const { schedules, triggers } = amountsOf(before)
  const after = amountsOf({ ...before, ...fields })
  return { schedules: after.schedules - schedules, triggers: after.triggers - triggers }
}

export function sumOfAmounts(changes: readonly AmountChange[]): AmountChange {
  const sumOf = (name: TaskAmount) => changes.reduce((sum, change) => sum + (change[name] ?? 0), 0)
  return Object.fromEntries(TASK_AMOUNTS.map((name) => [name, sumOf(name)]))
}

/** A caller without room looks again as often, while others of this process add something. */
const MAX_LOOKS = 3
const LOOK_AGAIN_MS = 20

/** Room that is taken until it is disposed of, or for good. */
export type TakenRoom = Disposable & { committed(): void }

const NO_ROOM: TakenRoom = { committed: () => undefined, [Symbol.dispose]: () => undefined }

export class AmountQuotas {
  readonly #meters: Readonly<Record<TaskAmount, DomainMeter<string>>>
  /** What is being added now, by name and domain. */
  readonly #pending = new Map<string, number>()

  constructor({ database: { db }, quotas, logger }: { database: Database; quotas: TaskQuotas; logger: Logger }) {
    const meterOf = (name: TaskAmount) =>
      new DomainMeter<string>({
        limitOf: (domainId) => quotas.ofDomainId(domainId, name),
        read: (domainIds) => countTaskAmount(db, name, domainIds),
        logger,
      })
    this.#meters = {
      tasks: meterOf('tasks'),
      workflows: meterOf('workflows'),
      schedules: meterOf('schedules'),
      triggers: meterOf('triggers'),
      state_keys: meterOf('state_keys'),
      state_bytes: meterOf('state_bytes'),
    }
  }

  /** Returns undefined if the figures of what is added are known. Otherwise resolves when they are, or when the database does not answer. */
  ready(domainId: string | null, change: AmountChange): Promise<void> | undefined {
    if (domainId === null || !this.#addedOf(change).some((name) => this.#isUnsure(domainId, name, change[name] ?? 0)))
      return undefined
    return this.#read(domainId, change)
  }

  /**
   * Takes room for the change: callers of this process have no more of it together than one after another. Call it when `ready` is, and
   * `committed` of the answer with the commit. Throws `quota_exceeded` if what is added exceeds a limit.
   */
  take(domainId: string | null, change: AmountChange): TakenRoom {
    if (domainId === null) return NO_ROOM
    const added = this.#addedOf(change)
    for (const name of added) this.#require(domainId, name, change[name] ?? 0)
    for (const name of added) this.#pend(domainId, name, change[name] ?? 0)
    return {
      committed: () => this.changed(domainId, change),
      [Symbol.dispose]: () => {
        for (const name of added) this.#pend(domainId, name, -(change[name] ?? 0))
      },
    }
  }

  /** Throws `quota_exceeded` if what is added exceeds a limit, as far as is known: see `ready`. */
  require(domainId: string | null, change: AmountChange): void {
    if (domainId !== null) for (const name of this.#addedOf(change)) this.#require(domainId, name, change[name] ?? 0)
  }

  /** Does the work that commits the change, if there is room. Throws `quota_exceeded`. */
  async within<T>(domainId: string | null, change: AmountChange, work: () => Promise<T>): Promise<T> {
    await this.ready(domainId, change)
    using room = this.take(domainId, change)
    const result = await work()
    room.committed()
    return result
  }

  /** This process committed the change. */
  changed(domainId: string | null, change: AmountChange): void {
    if (domainId === null) return
    for (const name of TASK_AMOUNTS) {
      const by = change[name] ?? 0
      if (by > 0) this.#meters[name].add(domainId, by)
      if (by < 0) this.#meters[name].removed(domainId)
    }
  }

  /** This process committed that tasks or workflows are gone. */
  removed(domainId: string | null): void {
    if (domainId !== null) for (const name of TASK_AMOUNTS) this.#meters[name].removed(domainId)
  }

  #addedOf(change: AmountChange): TaskAmount[] {
    return TASK_AMOUNTS.filter((name) => (change[name] ?? 0) > 0)
  }

  /** Whether its figure is not known, or leaves no room. */
  #isUnsure(domainId: string, name: TaskAmount, added: number): boolean {
    const limit = this.#meters[name].limitOf(domainId)
    if (limit === undefined) return false
    return this.#meters[name].used(domainId) === undefined || this.#used(domainId, name) + added > limit
  }

  async #read(domainId: string, change: AmountChange): Promise<void> {
    for (const name of this.#addedOf(change))
      for (let look = 0; look < MAX_LOOKS && this.#isUnsure(domainId, name, change[name] ?? 0); look++) {
        await this.#meters[name].renewed(domainId)
        // What is being added may fail, and what was added just now may be in the figure already.
        if (this.#pending.has(`${name} ${domainId}`)) await sleep(LOOK_AGAIN_MS)
      }
  }

  #require(domainId: string, name: TaskAmount, added: number): void {
    const limit = this.#meters[name].limitOf(domainId)
    if (limit === undefined) return
    const { noun } = DOMAIN_QUOTAS[name]
    requireWithin({ owner: 'domain', noun, limit, used: this.#used(domainId, name), added })
  }

  /** If there is no figure, the database does not answer, and there is room as far as is known. */
  #used(domainId: string, name: TaskAmount): number {
    return (this.#meters[name].used(domainId) ?? 0) + (this.#pending.get(`${name} ${domainId}`) ?? 0)
  }

  #pend(domainId: string, name: TaskAmount, change: number): void {
    const key = `${name} ${domainId}`
    const pending = (this.#pending.get(key) ?? 0) + change
    if (pending === 0) this.#pending.delete(key)
    else this.#pending.set(key, pending)
  }
}
