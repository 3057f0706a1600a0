/** When maintenance is: once, or again and again by a schedule in a time zone. Pure. */
import { readCron } from '#core/cron.ts'

export type Plan = {
  /** Epoch milliseconds; with a schedule, bounds. */
  startsAtMs: number | null
  endsAtMs: number | null
  schedule: { expression: string; timezone: string; durationMs: number } | null
}

/** Times that follow each other without a gap and are looked at as one; at the end of these it is looked again. */
const MAX_JOINED = 10
/** Starts that are compared with the duration before a plan is saved, and the time in which these are: to find distant ones takes long. */
const MAX_COMPARED = 20
const COMPARED_MS = 366 * 86_400_000

/** What is known around the last time that was asked for. `endMs` undefined: no maintenance in it. */
type Known = { fromMs: number; toMs: number; endMs: number | undefined }

export class PlannedTimes {
  readonly #plan: Plan
  readonly #cron: ReturnType<typeof readCron> | undefined
  readonly #durationMs: number
  #known: Known | undefined

  constructor(plan: Plan) {
    this.#plan = plan
    this.#cron = plan.schedule === null ? undefined : readCron(plan.schedule.expression, plan.schedule.timezone)
    this.#durationMs = plan.schedule?.durationMs ?? 0
  }

  /** When the maintenance ends that the time is in; undefined: it is in none. Its end is not part of it. */
  endAt(atMs: number): number | undefined {
    const { startsAtMs, endsAtMs } = this.#plan
    if (atMs < (startsAtMs ?? -Infinity) || atMs >= (endsAtMs ?? Infinity)) return undefined
    const endMs = this.#cron === undefined ? Infinity : this.#endOfSchedule(atMs, this.#cron)
    return endMs === undefined ? undefined : Math.min(endMs, endsAtMs ?? Infinity)
  }

  /** When it next starts after the time; undefined: it does not. */
  nextStart(afterMs: number): number | undefined {
    const { startsAtMs, endsAtMs } = this.#plan
    if (this.#cron === undefined) return startsAtMs !== null && startsAtMs > afterMs ? startsAtMs : undefined
    const beginMs = startsAtMs ?? -Infinity
    // A start before the bound lasts beyond it: then the maintenance starts at the bound.
    if (beginMs > afterMs && this.endAt(beginMs) !== undefined) return beginMs
    const nextMs = this.#cron.nextRun(new Date(Math.max(afterMs, beginMs)))?.getTime()
    return nextMs !== undefined && nextMs < (endsAtMs ?? Infinity) ? nextMs : undefined
  }

  #endOfSchedule(atMs: number, cron: ReturnType<typeof readCron>): number | undefined {
    const known = this.#known
    if (known !== undefined && atMs >= known.fromMs && atMs < known.toMs) return known.endMs
    const startMs = cron.nextRun(new Date(atMs - this.#durationMs))?.getTime()
    if (startMs === undefined || startMs > atMs) {
      this.#known = { fromMs: atMs, toMs: startMs ?? Infinity, endMs: undefined }
      return undefined
    }
    let [lastMs, endMs] = [startMs, startMs + this.#durationMs]
    for (let joined = 0; joined < MAX_JOINED; joined++) {
      const nextMs = cron.nextRun(new Date(lastMs))?.getTime()
      if (nextMs === undefined || nextMs > endMs) break
      ;[lastMs, endMs] = [nextMs, nextMs + this.#durationMs]
    }
    this.#known = { fromMs: startMs, toMs: endMs, endMs }
    return endMs
  }
}

/** Whether it lasts as long as the time between two starts, so that it would never end. */
export function neverEnds({ schedule }: Plan, afterMs: number): boolean {
  if (schedule === null) return false
  const cron = readCron(schedule.expression, schedule.timezone)
  let last: number | undefined
  for (let compared = 0; compared < MAX_COMPARED; compared++) {
    const startMs = cron.nextRun(new Date(last ?? afterMs))?.getTime()
    if (startMs === undefined) return false
    if (last !== undefined && startMs - last <= schedule.durationMs) return true
    if (startMs - afterMs > COMPARED_MS) return false
    last = startMs
  }
  return false
}
