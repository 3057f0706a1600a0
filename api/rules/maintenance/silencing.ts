/** Which of what rules raise is in a maintenance window. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { createTurns, inTurns } from '#core/turns.ts'
import type { Turns } from '#core/turns.ts'
import { PlannedTimes } from './planned-times.ts'
import { findAbout, listPlanned } from './repository.ts'
import type { StoredWindow } from './repository.ts'

/** Rules that are behind evaluate messages as old as this. */
const MAX_AGE_MS = 8 * 86_400_000

/** The maintenance window that something is in, and when it ends. */
export type Silence = { id: string; name: string; untilMs: number }

/** What is asked for: the rule, the clients that it is about, and the time. No client: none sent a message. */
export type Asked = { ruleId: string; clientIds: readonly string[]; atMs: number }

type Active = { window: StoredWindow; untilMs: number }
type Planned = { window: StoredWindow; times: PlannedTimes }

const isAboutClients = ({ clients, groups, tags }: StoredWindow) => clients !== null || groups !== null || tags !== null

export class Silencing {
  readonly #planned: readonly Planned[]

  constructor(windows: readonly StoredWindow[]) {
    this.#planned = windows.map((window) => ({ window, times: new PlannedTimes(window.plan) }))
  }

  static async of(db: Queryable, domainKey: number): Promise<Silencing> {
    return new Silencing(await listPlanned(db, domainKey, Date.now() - MAX_AGE_MS))
  }

  /** The domain has no maintenance windows. */
  get isEmpty(): boolean {
    return this.#planned.length === 0
  }

  /**
   * The window that each is in; of several, the one that ends last. What is about many clients is in windows that are about all of them, one or
   * the other.
   */
  async find(tx: Transaction, domainKey: number, asked: readonly Asked[]): Promise<(Silence | undefined)[]> {
    if (this.isEmpty) return asked.map(() => undefined)
    const known = new Map<string, Active[]>()
    const found: Active[][] = []
    const turns = createTurns()
    for (const { ruleId, atMs } of asked) {
      if (turns.isOver) await turns.next()
      // What many messages of a batch cause has one time.
      const key = `${ruleId} ${atMs}`
      const active = known.get(key) ?? (await this.#activeAt(ruleId, atMs, turns))
      known.set(key, active)
      found.push(active)
    }
    const [windowKeys, clientIds] = [new Set<number>(), new Set<string>()]
    for (const [index, active] of found.entries()) {
      const about = active.filter(({ window }) => isAboutClients(window))
      for (const { window } of about) windowKeys.add(window.key)
      if (about.length > 0) for (const id of asked[index]?.clientIds ?? []) clientIds.add(id)
    }
    const rows = await findAbout(tx, domainKey, { windowKeys: [...windowKeys], clientIds: [...clientIds] })
    const about = new Set<string>()
    await inTurns(rows, ({ windowKey, clientId }) => about.add(`${windowKey} ${clientId}`))
    const silences: (Silence | undefined)[] = []
    for (const [index, { clientIds: ids }] of asked.entries())
      silences.push(await silenceOf(found[index] ?? [], ids, about, turns))
    return silences
  }

  async #activeAt(ruleId: string, atMs: number, turns: Turns): Promise<Active[]> {
    const active: Active[] = []
    for (const { window, times } of this.#planned) {
      if (window.rules !== null && !window.rules.includes(ruleId)) continue
      // To find the times of a rare schedule takes milliseconds.
      if (turns.isOver) await turns.next()
      const untilMs = times.endAt(atMs)
      if (untilMs !== undefined) active.push({ window, untilMs })
    }
    return active
  }
}

/** `about`: which windows are about which clients. */
async function silenceOf(
  active: readonly Active[],
  clientIds: readonly string[],
  about: ReadonlySet<string>,
  turns: Turns,
): Promise<Silence | undefined> {
  if (active.length === 0) return undefined
  const latest = active.toSorted((one, other) => other.untilMs - one.untilMs)
  const whole = latest.find(({ window }) => !isAboutClients(window))
  const partial = latest.filter(({ window }) => isAboutClients(window))
  // An alarm of many clients is looked at again when the first of their windows ends.
  let first: Active | undefined
  for (const id of clientIds) {
    if (turns.isOver) await turns.next()
    const last = partial.find(({ window }) => about.has(`${window.key} ${id}`))
    if (last === undefined) {
      first = undefined
      break
    }
    if (last.untilMs < (first?.untilMs ?? Infinity)) first = last
  }
  const last = whole !== undefined && whole.untilMs >= (first?.untilMs ?? -Infinity) ? whole : first
  return last === undefined ? undefined : { id: last.window.id, name: last.window.name, untilMs: last.untilMs }
}
