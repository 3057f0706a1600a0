/** Pulls of blobs into the cache: one pull for all concurrent callers, with a limited number at a time. */
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { SingleFlight } from '#core/single-flight.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs } from '#core/time.ts'
import type { Blob, BlobCache } from '../cache/index.ts'
import type { SharedDeadlines } from './deadlines.ts'
import { PROXY_METRICS } from './metrics.ts'

export type PullsOptions = { blobs: BlobCache; deadlines: SharedDeadlines; pullDeadlineMs: number; logger: Logger }

/** Concurrent pulls, and per registry, which can be slow. */
const MAX_PULLS = 8
const MAX_PULLS_PER_REGISTRY = 6
const MAX_WAITING_PULLS = 256

export class Pulls {
  readonly #options: PullsOptions
  readonly #flights = new SingleFlight<Blob>()
  readonly #slots: Slots

  constructor(options: PullsOptions) {
    this.#options = options
    this.#slots = new Slots({
      what: 'modules being pulled',
      max: MAX_PULLS,
      share: MAX_PULLS_PER_REGISTRY,
      per: 'registry',
      waitMs: options.pullDeadlineMs,
      maxWaiting: MAX_WAITING_PULLS,
      shareKind: 'unavailable',
    })
  }

  /** `key` identifies the blob and its source. */
  async run(from: string, key: string, store: (signal: AbortSignal) => Promise<Blob>): Promise<Blob> {
    const { deadlines, logger } = this.#options
    return await this.#flights.run(key, async () => {
      const signal = deadlines.signalFor(key)
      const work = async () => {
        const beganMs = monotonicMs()
        const blob = await store(signal)
        const ms = Math.round(monotonicMs() - beganMs)
        PROXY_METRICS.pullTime.observe({}, ms / 1000)
        PROXY_METRICS.pulledBytes.add({}, blob.sizeBytes)
        logger.info({ module: key, digest: blob.digest, bytes: blob.sizeBytes, ms }, 'module pulled')
        return blob
      }
      try {
        const blob = await this.#slots.run(from, work, signal)
        PROXY_METRICS.pulls.add({ outcome: 'pulled' })
        return blob
      } catch (error) {
        PROXY_METRICS.pulls.add({ outcome: kindOf(error) })
        throw error
      }
    })
  }
}
