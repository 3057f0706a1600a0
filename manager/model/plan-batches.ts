/** Decides which waiting messages of a trigger run next, and which of them run together. Pure. */
import type { BatchTask, Busy, WaitingMessage } from '#queues/index.ts'

/** With more runs of a trigger, a batch that is not full waits until it is, or until one of them has ended. */
const MAX_PARTIAL = 8
/** Runs of a trigger that one round starts. */
const MAX_RUNS = 200
/** Every message has the same lane. */
const ONE_LANE = ''

/**
 * Plans the messages in the order of their arrival. In a lane a message waits until the run of the one before it has ended, or shares that
 * run. Messages of a batch that failed run in batches of at most half its size, and only with each other. Those of one run have at most `maxBytes`,
 * as they are stored; one message alone can be larger.
 */
export function planBatches(
  { batch, ordering }: Pick<BatchTask, 'batch' | 'ordering'>,
  waiting: readonly WaitingMessage[],
  { lanes, runs }: Busy,
  maxBytes: number,
): WaitingMessage[][] {
  const size = batch ?? 1
  const isOrdered = ordering === 'client' || ordering === 'channel'
  const laneOf = ({ lane }: WaitingMessage) => (ordering === 'channel' ? ONE_LANE : lane)
  const busy = new Set(ordering === 'channel' ? (lanes.size > 0 ? [ONE_LANE] : []) : lanes)
  const planned: WaitingMessage[][] = []
  let left = isOrdered ? waiting.filter((message) => !busy.has(laneOf(message))) : [...waiting]
  while (left.length > 0 && planned.length < MAX_RUNS) {
    const { taken, others } = takeOne(left, { size, maxBytes }, isOrdered ? laneOf : undefined)
    const max = Math.min(size, taken[0]?.limit ?? size)
    const isPartial = taken.length < max && taken[0]?.limit === null
    if (isPartial && runs + planned.length >= MAX_PARTIAL) break
    planned.push(taken)
    const used = new Set(taken.map(laneOf))
    left = isOrdered ? others.filter((message) => !used.has(laneOf(message))) : others
  }
  return planned
}

/** The first message, and those that may share its run. `laneOf` undefined: in any order. */
function takeOne(
  left: readonly WaitingMessage[],
  { size, maxBytes }: { size: number; maxBytes: number },
  laneOf: ((message: WaitingMessage) => string) | undefined,
): { taken: WaitingMessage[]; others: WaitingMessage[] } {
  const limit = left[0]?.limit ?? null
  const max = Math.min(size, limit ?? size)
  const [taken, others]: [WaitingMessage[], WaitingMessage[]] = [[], []]
  // If the next message of a lane is left out, the later messages of this lane are left out too.
  const passed = new Set<string>()
  let bytes = 0
  for (const [index, message] of left.entries()) {
    if (taken.length === max) {
      others.push(...left.slice(index))
      break
    }
    const lane = laneOf?.(message)
    const fits = taken.length === 0 || bytes + message.bytes <= maxBytes
    if (message.limit === limit && fits && (lane === undefined || !passed.has(lane))) {
      taken.push(message)
      bytes += message.bytes
      continue
    }
    others.push(message)
    if (lane !== undefined) passed.add(lane)
  }
  return { taken, others }
}
