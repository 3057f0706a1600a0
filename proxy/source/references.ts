/**
 * Resolves a reference to the digest of its manifest: a tag is requested once a minute, and keeps its last digest while
 * its registry is unavailable.
 */
import { join } from 'node:path'
import { isRetryable, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { SingleFlight } from '#core/single-flight.ts'
import { openTagCache } from '../cache/index.ts'
import type { TagCache } from '../cache/index.ts'
import { formatReference } from '../oci/index.ts'
import type { FetchedManifest, Reference, RegistryClient } from '../oci/index.ts'
import type { SharedDeadlines } from './deadlines.ts'
import { PROXY_METRICS } from './metrics.ts'

export type Located = {
  manifestDigest: string
  /** The registry was unavailable and an earlier answer is used. */
  stale: boolean
  /** Present if it came with the answer. */
  manifest?: FetchedManifest
}

export type ReferencesOptions = {
  client: RegistryClient
  deadlines: SharedDeadlines
  folder: string
  limits: { tagFreshMs: number; tagHoldMs: number }
  logger: Logger
}

export class References {
  readonly #options: ReferencesOptions
  readonly #tags: TagCache
  readonly #flights = new SingleFlight<Located>()

  private constructor(options: ReferencesOptions, tags: TagCache) {
    this.#options = options
    this.#tags = tags
  }

  static async open(options: ReferencesOptions): Promise<References> {
    const { folder, limits } = options
    const tags = await openTagCache({
      folder: join(folder, 'tags'),
      freshMs: limits.tagFreshMs,
      holdMs: limits.tagHoldMs,
    })
    return new References(options, tags)
  }

  /** Throws the errors of the registry client. */
  async locate(reference: Reference): Promise<Located> {
    if (reference.digest !== undefined) return { manifestDigest: reference.digest, stale: false }
    const name = formatReference(reference)
    return this.#tags.fresh(name) ?? (await this.#flights.run(name, () => this.#ask(reference, name)))
  }

  async #ask(reference: Reference, name: string): Promise<Located> {
    const { client, deadlines, logger } = this.#options
    try {
      const manifest = await client.getManifest(reference, deadlines.signalFor(name))
      PROXY_METRICS.lookups.add({ outcome: 'answered' })
      return { ...(await this.#tags.store(name, manifest.digest)), manifest }
    } catch (error) {
      const earlier = isRetryable(error) && !deadlines.isClosed ? await this.#tags.fallBack(name) : undefined
      PROXY_METRICS.lookups.add({ outcome: earlier === undefined ? kindOf(error) : 'stale' })
      if (earlier === undefined) throw error
      logger.warn(
        { reference: name, err: error },
        'the registry is unavailable; using the last known digest of this tag',
      )
      return earlier
    }
  }
}
