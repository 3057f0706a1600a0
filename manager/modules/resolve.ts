/** The digest behind an image reference, asked of the proxy under the policy of the domain. */
import type { Logger } from '#core/logging/index.ts'
import type { ResolvedImage } from '../runs/start-runs.ts'
import type { ModulePolicies } from './policies.ts'
import type { ProxyClient, ResolvedReference } from './proxy-client.ts'
import type { UseRecorder } from './uses.ts'

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
  async function find(reference: string, domainId: string | null): Promise<ResolvedReference> {
    const found = await proxy.resolve(reference, domainId, await policies.find(domainId))
    // A list for people: a start does not fail because of it.
    await record(domainId, reference, found).catch((error: unknown) =>
      logger.warn({ err: error, digest: found.digest }, 'the use of a module was not recorded'),
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
