/**
 * The order in which domains get free slots (start-time fair queueing): the domain that was served least comes next, so
 * that a queue of thousands of runs delays the run of another domain by one run. Served is counted in runs divided by the
 * weight of the share. Runs of no domain are a share of their own. Pure: it knows neither workers nor runs.
 */

/** The id of a domain, or null: no domain. */
export type Share = string | null

/** A queue of runs of one share. */
export type WaitingQueue = {
  needs: string
  share: Share
  waiting: number
  /** Runs of this queue for which there is room, at most; fewer than `waiting`: its last claim is a reservation. */
  room: number
}

/** Takes a run from the queue, or reserves its workers because they have no room for its next run. */
export type PlannedClaim = { needs: string; share: Share; reserves: boolean }

/** The position of a share in the order. `virtualTime` is the start tag of its next run. */
type Position = { virtualTime: number; lastServed: number }
/** A share in a plan, with the queues that are not used up. */
type PlannedShare = {
  position: Position
  advance: number
  /** Runs that the share may still get. */
  allowed: number
  queues: { queue: WaitingQueue; taken: number }[]
}

const NEVER_SERVED: Position = { virtualTime: 0, lastServed: 0 }

export class FairShares {
  readonly #weightOf: (share: Share) => number
  /** The virtual time: the start tag of the run that is being served. A share that was idle continues here: it saves nothing. */
  #virtualTime = 0
  #served = 0
  /** Shares that are ahead of the virtual time or were served at it; the others have the position of an idle share. */
  readonly #positions = new Map<Share, Position>()

  /** The weight, at least 1, is asked for each run, so that a change is in force at once. */
  constructor(weightOf: (share: Share) => number = () => 1) {
    this.#weightOf = weightOf
  }

  /** The run of this share was assigned. */
  served(share: Share): void {
    const { virtualTime } = this.#positionOf(share)
    this.#virtualTime = virtualTime
    this.#served += 1
    this.#positions.set(share, { virtualTime: virtualTime + 1 / this.#weightOf(share), lastServed: this.#served })
  }

  /**
   * The order of the next `runs` runs. Among shares of equal start tags, the one that was served longest ago comes first, then
   * the one that has waited longest (the order of `queues`). The queues of a share alternate. A share gets no more runs than
   * `allowedOf` says, and then reserves nothing.
   */
  plan(
    queues: readonly WaitingQueue[],
    runs: number,
    allowedOf: (share: Share) => number = () => Infinity,
  ): PlannedClaim[] {
    this.#removeIdle(new Set(queues.map((queue) => queue.share)))
    const shares = new Map<Share, PlannedShare>()
    for (const queue of queues) {
      const planned = shares.get(queue.share) ?? {
        position: this.#positionOf(queue.share),
        advance: 1 / this.#weightOf(queue.share),
        allowed: allowedOf(queue.share),
        queues: [],
      }
      planned.queues.push({ queue, taken: 0 })
      shares.set(queue.share, planned)
    }
    // The shares are sorted once: a share that was served is inserted again, and one that is done is passed.
    const order = [...shares.values()].toSorted((left, right) => compare(left.position, right.position))
    const planned: PlannedClaim[] = []
    let served = this.#served
    let left = runs
    for (let at = 0; at < order.length;) {
      const share = order[at] as PlannedShare
      const first = share.allowed === 0 ? undefined : share.queues.shift()
      if (first === undefined) {
        at += 1
        continue
      }
      const { queue, taken } = first
      if (taken === queue.waiting) continue
      const reserves = taken === queue.room
      if (!reserves && left === 0) break
      planned.push({ needs: queue.needs, share: queue.share, reserves })
      if (reserves) continue
      left -= 1
      served += 1
      share.allowed -= 1
      share.position = { virtualTime: share.position.virtualTime + share.advance, lastServed: served }
      share.queues.push({ queue, taken: taken + 1 })
      at += 1
      order.splice(placeOf(share, order, at), 0, share)
    }
    return planned
  }

  #positionOf(share: Share): Position {
    const { virtualTime, lastServed } = this.#positions.get(share) ?? NEVER_SERVED
    return { virtualTime: Math.max(virtualTime, this.#virtualTime), lastServed }
  }

  #removeIdle(waiting: ReadonlySet<Share>): void {
    for (const [share, { virtualTime }] of this.#positions)
      if (virtualTime < this.#virtualTime && !waiting.has(share)) this.#positions.delete(share)
  }
}

function compare(left: Position, right: Position): number {
  return left.virtualTime - right.virtualTime || left.lastServed - right.lastServed
}

/** The index at which the share keeps `order` sorted from `from` on, found by halving. */
function placeOf({ position }: PlannedShare, order: readonly PlannedShare[], from: number): number {
  let low = from
  let high = order.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compare((order[middle] as PlannedShare).position, position) < 0) low = middle + 1
    else high = middle
  }
  return low
}
