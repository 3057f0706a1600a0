/** What a process knows of the batches that it committed itself, and how it adds them to the projections. */
import type { Rest } from './pace.ts'
import { Tally } from './tally.ts'
import { Unmerged } from './unmerged.ts'

export type OwnBatches = {
  /** What was added up since it was taken last. */
  readonly tally: Tally
  takeTally(): Tally
  readonly unmerged: Unmerged
  readonly rest: Rest
  /** Batches that are younger are left to the process that committed them: it need not read them. */
  readonly foreignAgeMs: number
}

export function createOwnBatches({ foreignAgeMs, rest }: { foreignAgeMs: number; rest: Rest }): OwnBatches {
  let tally = new Tally()
  /** The one before it, whose memory the next one takes. */
  let spare = new Tally()
  return {
    foreignAgeMs,
    rest,
    unmerged: new Unmerged(),
    get tally() {
      return tally
    },
    takeTally() {
      const taken = tally
      // Of one that was taken and is left over, what is not folded is read from the tables.
      spare.clear()
      tally = spare
      spare = taken
      return taken
    },
  }
}
