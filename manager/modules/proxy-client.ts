/** What the manager asks of the module proxy, over gRPC. */
import { once } from 'node:events'
import { create } from '@bufbuild/protobuf'
import { Metadata, status } from '@grpc/grpc-js'
import type { ServiceError as GrpcError } from '@grpc/grpc-js'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { countPassing } from '#core/passing-buffers.ts'
import {
  ModuleService,
  PushRequestSchema,
  RegistryService,
  SignaturePolicy,
  createServiceClient,
  dialPinned,
  dialPlainly,
} from '#proto/index.ts'
import type { PushResponse } from '#proto/index.ts'
import type { ModulePolicy } from './policies.ts'

/** What a reference stands for now. */
export type ResolvedReference = {
  digest: string
  sizeBytes: number
  reference: string
  stale: boolean
  signed: boolean
  signatureProblem: string
}

/** A module in the proxy's cache. */
export type ProxiedModule = { digest: string; sizeBytes: number; exports: unknown[] | undefined }

export type PushTarget = {
  reference: string
  /** Null: the platform. */
  domainId: string | null
  /** At the registry; undefined: those that the proxy is configured with. */
  login: { username: string; password: Secret } | undefined
}

export type ProxyClient = {
  resolve(reference: string, domainId: string | null, policy: ModulePolicy): Promise<ResolvedReference>
  /** Resolves when the module is in the proxy's cache. */
  pull(digest: string, reference: string): Promise<void>
  /** What they export is read and sent where it is asked for. */
  describe(digests: readonly string[], withExports: boolean): Promise<ProxiedModule[]>
  remove(digest: string): Promise<void>
  /** The reference with the digest of the manifest. */
  push(target: PushTarget, bytes: AsyncIterable<Uint8Array>): Promise<string>
  close(): void
}

/** A registry may be slow; a start waits no longer. */
const RESOLVE_DEADLINE_MS = 30_000
/** The proxy's own deadline of a pull is ten minutes. */
const PULL_DEADLINE_MS = 11 * 60_000
const CACHE_DEADLINE_MS = 3_000
const PUSH_PART_BYTES = 256 * 1024

const POLICIES = {
  off: SignaturePolicy.OFF,
  warn: SignaturePolicy.WARN,
  require: SignaturePolicy.REQUIRE,
} as const satisfies Record<ModulePolicy['signatures'], SignaturePolicy>

/**
 * Over TLS the proxy shows the certificate of the manager. What goes wrong is `unprocessable` when it is about the
 * reference or the module, `timeout` or `unavailable` when proxy or registry are away.
 */
export function createProxyClient(address: string, certificate: Buffer | undefined, proxyToken: Secret): ProxyClient {
  const dialling = certificate === undefined ? dialPlainly() : dialPinned(address, certificate.toString())
  const modules = createServiceClient(ModuleService, address, dialling.credentials, dialling.options)
  const registries = createServiceClient(RegistryService, address, dialling.credentials, dialling.options)
  const metadata = new Metadata()
  metadata.set('authorization', `Bearer ${proxyToken.reveal()}`)

  return {
    async resolve(reference, domainId, { signatures, keys }) {
      const policy = { signaturePolicy: POLICIES[signatures], signatureKeys: [...keys] }
      try {
        const found = await modules.resolve(
          { reference, domainId: domainId ?? '', ...policy },
          { deadlineMs: RESOLVE_DEADLINE_MS, metadata },
        )
        return { ...found, sizeBytes: Number(found.sizeBytes) }
      } catch (error) {
        throw refusalOf(error as GrpcError, `image_url ${reference}`)
      }
    },

    async pull(digest, reference) {
      try {
        await registries.pull({ digest, reference }, { deadlineMs: PULL_DEADLINE_MS, metadata })
      } catch (error) {
        throw refusalOf(error as GrpcError, reference)
      }
    },

    async describe(digests, withExports) {
      const request = { digests: [...digests], withoutExports: !withExports }
      const found = await registries.describe(request, { deadlineMs: CACHE_DEADLINE_MS, metadata })
      return found.modules.map(({ digest, sizeBytes, exportsJson }) => ({
        digest,
        sizeBytes: Number(sizeBytes),
        exports: exportsJson === '' ? undefined : (JSON.parse(exportsJson) as unknown[]),
      }))
    },

    async remove(digest) {
      try {
        await registries.remove({ digest }, { deadlineMs: CACHE_DEADLINE_MS, metadata })
      } catch (error) {
        throw refusalOf(error as GrpcError, digest)
      }
    },

    async push({ reference, domainId, login }, bytes) {
      const call = registries.push({ deadlineMs: PULL_DEADLINE_MS, metadata })
      let failure: unknown
      let pushed = ''
      call.on('data', (answer: PushResponse) => void (pushed = answer.reference))
      const ended = new Promise<void>((resolve) => {
        call.on('error', (error) => resolve(void (failure = error)))
        call.on('end', resolve)
      })
      const username = login?.username ?? ''
      const password = login?.password.reveal() ?? ''
      const header = { reference, domainId: domainId ?? '', username, password }
      call.write(create(PushRequestSchema, { part: { case: 'header', value: header } }))
      try {
        for await (const piece of bytes) {
          countPassing(piece.length)
          for (let offset = 0; offset < piece.length && failure === undefined; offset += PUSH_PART_BYTES) {
            const value = piece.subarray(offset, offset + PUSH_PART_BYTES)
            const isRoom = call.write(create(PushRequestSchema, { part: { case: 'data', value } }))
            if (!isRoom) await Promise.race([once(call, 'drain'), ended]).catch(() => undefined)
          }
          if (failure !== undefined) break
        }
      } catch (error) {
        call.cancel()
        throw error
      }
      call.end()
      await ended
      if (failure !== undefined) throw refusalOf(failure as GrpcError, reference)
      return pushed
    },

    close() {
      modules.close()
      registries.close()
    },
  }
}

function refusalOf(error: GrpcError, subject: string): ServiceError {
  const options = { cause: error }
  switch (error.code) {
    case status.NOT_FOUND:
    case status.INVALID_ARGUMENT:
    case status.FAILED_PRECONDITION:
    case status.RESOURCE_EXHAUSTED:
    case status.PERMISSION_DENIED:
    case status.UNAUTHENTICATED:
      return new ServiceError('unprocessable', `${subject}: ${error.details}`, options)
    case status.DEADLINE_EXCEEDED:
      return new ServiceError('timeout', `${subject}: the registry did not answer in time`, options)
    default:
      // What gRPC says of a connection is for the log: it names addresses of ours.
      return new ServiceError('unavailable', `${subject}: ${awayReason(error)}`, { ...options, retryAfterSeconds: 5 })
  }
}

/** The proxy's own words where it said some. */
function awayReason({ code, details }: GrpcError): string {
  return code === status.UNAVAILABLE && /connect|resolution/i.test(details)
    ? 'the module proxy cannot be reached'
    : details
}
