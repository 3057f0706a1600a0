/** The digest behind an image reference, asked of the proxy under the policy of the domain. */
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import type { ResolvedImage } from '../model/start.ts'
import type { ModulePolicies } from './policies.ts'
import type { ProxyClient, ResolvedReference } from './proxy-client.ts'
import type { UseRecorder } from './uses.ts'

/** References that are asked about at a time, and for one domain: its registry may never answer. */
const MAX_RESOLVED = 128
const MAX_RESOLVED_PER_DOMAIN = 32
const WAIT_MS = 30_000
const MAX_WAITING = 1000

export type ImageResolver = {
  /**
   * Throws `unprocessable` for what is no module or not signed as the policy requires, `unavailable` or `timeout` when proxy
   * or registry are away.
   */
  find(reference: string, domainId: string | null): Promise<ResolvedReference>
  /** `find`, as a start of a run wants it. */
  resolve(reference: string, domainId: string | null): Promise<ResolvedImage>
  /** What a run, and whoever pulled ahead, should know about the answer. */
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
    // A list for people: a start does not fail because of it.
    await record(domainId, reference, found).catch((error: unknown) =>
      logger.warn({ err: error, digest: found.digest }, 'failed to record the use of a module'),
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
  if (stale) notes.push('the registry did not answer, so the tag is taken for what it was before')
  if (signatureProblem !== '') notes.push(signatureProblem)
  return notes
}
