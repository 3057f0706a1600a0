/** The digest behind an image reference, asked of the proxy. */
import { Metadata, credentials, status } from '@grpc/grpc-js'
import type { ServiceError as GrpcError } from '@grpc/grpc-js'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { ModuleService, createServiceClient, dialPinned } from '#proto/index.ts'
import type { Dialling } from '#proto/index.ts'
import type { ResolvedImage } from '../runs/start-runs.ts'

/** A registry may be slow; a start waits no longer. */
const RESOLVE_DEADLINE_MS = 30_000

export type ImageResolver = {
  resolve(reference: string, domainId: string | null): Promise<ResolvedImage>
  close(): void
}

/** Over TLS the proxy shows the certificate of the manager. Throws `unprocessable` for what is no module, `unavailable` when proxy or registry are away. */
export function createImageResolver(
  proxyAddress: string,
  certificate: Buffer | undefined,
  proxyToken: Secret,
): ImageResolver {
  const dialling: Dialling =
    certificate === undefined
      ? { credentials: credentials.createInsecure(), options: {} }
      : dialPinned(proxyAddress, certificate.toString())
  const client = createServiceClient(ModuleService, proxyAddress, dialling.credentials, dialling.options)
  const metadata = new Metadata()
  metadata.set('authorization', `Bearer ${proxyToken.reveal()}`)
  return {
    async resolve(reference, domainId) {
      try {
        const request = { reference, domainId: domainId ?? '' }
        const found = await client.resolve(request, { deadlineMs: RESOLVE_DEADLINE_MS, metadata })
        return {
          imageUrl: reference,
          digest: found.digest,
          sizeBytes: Number(found.sizeBytes),
          reference: found.reference,
        }
      } catch (error) {
        throw refusalOf(error as GrpcError, reference)
      }
    },
    close: () => client.close(),
  }
}

function refusalOf(error: GrpcError, reference: string): ServiceError {
  const options = { cause: error }
  switch (error.code) {
    case status.NOT_FOUND:
    case status.INVALID_ARGUMENT:
    case status.FAILED_PRECONDITION:
    case status.RESOURCE_EXHAUSTED:
    case status.PERMISSION_DENIED:
    case status.UNAUTHENTICATED:
      return new ServiceError('unprocessable', `image_url ${reference}: ${error.details}`, options)
    case status.DEADLINE_EXCEEDED:
      return new ServiceError('timeout', `image_url ${reference}: the registry did not answer in time`, options)
    default:
      return new ServiceError('unavailable', `image_url ${reference}: ${error.details}`, {
        ...options,
        retryAfterSeconds: 5,
      })
  }
}
