/** What each input cost: the worst are printed, those that took too long are failures. */
import type { Measured } from './platform.ts'

/** Of processor time of the main thread, at a stretch. */
export const MAX_TURN_MS = 100
/** What twice the input may cost of what the input costs. Linear work costs twice as much, and more garbage; quadratic work 4 times. */
export const MAX_GROWTH = 3
/** Below this the cost is not that of the input. */
const MIN_COMPARED_MS = 100
const PRINTED = 12
/** Of an input whose growth or whose longest turn seems too large. */
export const MAX_TRIES = 5

export type Ledger = {
  note(name: string, measured: Measured): void
  /** Those since it was asked last whose longest turn was too long, with it. */
  tooLong(): string[]
  print(): void
}

/** `subject` is what its inputs are, in what it prints. */
export function createLedger(subject = ''): Ledger {
  const notes: (Measured & { name: string })[] = []
  let told = 0
  const round = (ms: number) => Math.round(ms * 10) / 10
  return {
    note(name, measured) {
      notes.push({ name, ...measured })
    },
    tooLong() {
      const untold = notes.slice(told)
      told = notes.length
      return untold
        .filter(({ longestMs }) => longestMs > MAX_TURN_MS)
        .map(({ name, longestMs }) => `${name}: ${round(longestMs)} ms`)
    },
    print() {
      const worst = notes.toSorted((left, right) => right.longestMs - left.longestMs).slice(0, PRINTED)
      const rows = worst.map(
        ({ name, longestMs, totalMs, healthMs }) =>
          `${round(longestMs)} ms at a stretch, ${round(totalMs)} ms in all, /health within ${round(healthMs)} ms: ${name}`,
      )
      const head = `${subject === '' ? '' : `${subject}: `}the ${worst.length} longest turns of ${notes.length} inputs`
      console.log(`${head}\n${rows.join('\n')}`)
    },
  }
}

/**
 * Measures an input, again while a turn of it was too long. The host of a virtual machine takes time from it that the guest counts as
 * processor time of the thread, and so does a neighbour on the same core: what an input costs is the shortest of its longest turns.
 */
export async function measureInput(measure: () => Promise<Measured>): Promise<Measured> {
  let best = await measure()
  for (let time = 1; time < MAX_TRIES && best.longestMs > MAX_TURN_MS; time++) {
    const next = await measure()
    if (next.longestMs < best.longestMs) best = next
  }
  return best
}

export function cheapest(tries: readonly Measured[]): Measured {
  return tries.reduce((best, one) => (one.totalMs < best.totalMs ? one : best))
}

/** The cost of both, where the larger one costs enough to be compared: what is wrong with it, or undefined. */
export function growthFault(once: Measured, twice: Measured): string | undefined {
  if (twice.totalMs < MIN_COMPARED_MS || twice.totalMs <= once.totalMs * MAX_GROWTH) return undefined
  return `${round1(once.totalMs)} ms for the input, ${round1(twice.totalMs)} ms for twice as much`
}

const round1 = (ms: number) => Math.round(ms * 10) / 10
