/** Resolves an image reference to a digest through the proxy, under the policy of the domain. */
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import type { ResolvedImage } from '../model/start.ts'
import type { ModulePolicies } from './policies.ts'
import type { ProxyClient, ResolvedReference } from './proxy-client.ts'
import type { UseRecorder } from './uses.ts'

/** References that are resolved at the same time, and per domain: its registry may never answer. */
const MAX_RESOLVED = 128
const MAX_RESOLVED_PER_DOMAIN = 32
const WAIT_MS = 30_000
const MAX_WAITING = 1000

export type ImageResolver = {
  /**
   * Throws `unprocessable` if the reference is not a module or not signed as the policy requires, `unavailable` or
   * `timeout` if the proxy or the registry cannot be reached.
   */
  find(reference: string, domainId: string | null): Promise<ResolvedReference>
  /** `find` for the start of a run. */
  resolve(reference: string, domainId: string | null): Promise<ResolvedImage>
  /** Warnings about the answer, for a run or a pre-pull. */
  notesOf(found: ResolvedReference): string[]
}

export type ImageResolverDeps = {
  proxy: ProxyClient
  policies: ModulePolicies
  record: UseRecorder
  logger: Logger
}

export function createImageResolver({ proxy, policies, record, logger }: ImageResolverDeps): ImageResolver {
  const slots = new Slots({
    what: 'image references being resolved',
    max: MAX_RESOLVED,
    share: MAX_RESOLVED_PER_DOMAIN,
    waitMs: WAIT_MS,
    maxWaiting: MAX_WAITING,
  })

  async function find(reference: string, domainId: string | null): Promise<ResolvedReference> {
    const policy = await policies.find(domainId)
    const found = await slots.run(domainId, () => proxy.resolve(reference, domainId, policy))
    // The list of uses is informational: its failure does not fail a start.
    await record(domainId, reference, found).catch((error: unknown) =>
      logger.warn({ err: error, digest: found.digest }, 'failed to record the use of a module; continuing'),
    )
    return found
  }
  return {
    find,
    notesOf,
    async resolve(reference, domainId) {
      const found = await find(reference, domainId)
      const { digest, sizeBytes } = found
      return { imageUrl: reference, digest, sizeBytes, reference: found.reference, notes: notesOf(found) }
    },
  }
}

function notesOf({ stale, signatureProblem }: ResolvedReference): string[] {
  const notes: string[] = []
  if (stale) notes.push('the registry did not answer; the last known digest of the tag is used')
  if (signatureProblem !== '') notes.push(signatureProblem)
  return notes
}
