/** Pushes of modules to a registry: received into the cache, validated, and pushed from there. */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { isDigest } from '#core/digest.ts'
import { ModuleRefusal } from '#guests/wasm/index.ts'
import { readInPieces } from '../cache/index.ts'
import { interfacesOf, readModuleFacts } from './module-facts.ts'
import type { ModuleSource } from './module-source.ts'
import { moduleInvalid, parseReference, pinnedReference, pushModule } from '../oci/index.ts'
import type { Credentials, RegistryHttp, Reference } from '../oci/index.ts'

export type PushOrder = {
  reference: string
  /** Undefined: any digest. */
  digest: string | undefined
  /** Undefined: any size up to the limit. */
  sizeBytes: number | undefined
  /** Empty: the platform. */
  domainId: string
  /** Credentials of the caller for this registry. */
  credentials: Credentials | undefined
}

/** The credentials that the registry required. */
export type PushLogin = 'own' | 'configured' | 'none'

export type Pushed = {
  /** Includes the digest of the manifest. */
  reference: string
  login: PushLogin
}

export type Pushes = {
  /**
   * Throws `malformed` for invalid bytes or a digest mismatch, `forbidden` if the reference cannot be written, and the
   * errors of the registry.
   */
  push(order: PushOrder, bytes: AsyncIterable<Buffer>): Promise<Pushed>
}

export type PushesDeps = {
  source: ModuleSource
  /** Requests with the credentials of the call, with the configured ones if there are any, or without. */
  registryHttpFor: (registry: string, credentials: Credentials | 'configured' | 'none') => RegistryHttp
  /** Whether credentials are configured for the default registry. */
  hasConfiguredLogin: boolean
  defaultRegistry: string | undefined
  limits: { maxModuleBytes: number; pullDeadlineMs: number }
  signal: AbortSignal
}

/** Concurrent pushes, and per domain: its registry may never answer. */
const MAX_PUSHES = 8
const MAX_PUSHES_PER_DOMAIN = 2
/** Managers have a limit too; pushes of several managers wait. */
const WAIT_MS = 30_000
const MAX_WAITING = 8

export function createPushes(deps: PushesDeps): Pushes {
  const { source, registryHttpFor, defaultRegistry, hasConfiguredLogin, limits, signal } = deps
  const slots = new Slots({
    what: 'modules being pushed',
    max: MAX_PUSHES,
    share: MAX_PUSHES_PER_DOMAIN,
    waitMs: WAIT_MS,
    maxWaiting: MAX_WAITING,
    shareKind: 'unavailable',
  })

  async function push(order: PushOrder, bytes: AsyncIterable<Buffer>): Promise<Pushed> {
    const reference = parseReference(order.reference, defaultRegistry)
    const allowed = loginFor(reference, order, defaultRegistry)
    const login =
      allowed === 'configured' && !(hasConfiguredLogin && reference.registry === defaultRegistry) ? 'none' : allowed
    if (order.digest !== undefined && !isDigest(order.digest))
      throw new ServiceError('malformed', 'digest must be sha256:<64 hexadecimal digits>')
    const maxBytes = order.sizeBytes ?? limits.maxModuleBytes
    if (maxBytes > limits.maxModuleBytes) {
      throw new ServiceError('too_large', `a module must be at most ${limits.maxModuleBytes} bytes`)
    }
    const { digest } = await source.keep(limited(bytes, maxBytes), order.digest)
    const module = await source.open(digest, '')
    await using handle = module.handle
    const facts = await readModuleFacts(handle, module.sizeBytes, order.domainId).catch(async (error: unknown) => {
      await source.discard(digest)
      throw error instanceof ModuleRefusal ? moduleInvalid(error.message) : error
    })
    const pushed = {
      digest,
      sizeBytes: module.sizeBytes,
      kind: facts.kind,
      interfaces: interfacesOf(facts),
      read: () => readInPieces(handle),
    }
    const late = AbortSignal.timeout(limits.pullDeadlineMs)
    const registryHttp = registryHttpFor(
      reference.registry,
      login === 'own' ? (order.credentials as Credentials) : login,
    )
    const manifestDigest = await pushModule(
      registryHttp,
      reference,
      pushed,
      new Date(),
      AbortSignal.any([signal, late]),
    ).catch((error: unknown) => {
      throw login === 'none' && kindOf(error) === 'unauthenticated' ? wantsLogin(reference, order, error) : error
    })
    return { reference: pinnedReference(reference, manifestDigest), login }
  }

  /** The remedy for a push without credentials to a registry that requires them. */
  function wantsLogin({ registry, repository }: Reference, { domainId }: PushOrder, cause: unknown): ServiceError {
    const below =
      domainId !== '' && hasConfiguredLogin
        ? `, or push below ${defaultRegistry}/${domainId}/, where the configured one is used`
        : ''
    const message = `${registry} requires credentials for ${repository}: send them as Registry-Authorization (skein modules push --registry-user)${below}`
    return new ServiceError('unauthenticated', message, { cause })
  }

  return { push: (order, bytes) => slots.run(order.domainId, () => push(order, bytes)) }
}

/**
 * The registry authorizes writes. The configured credentials are used for the platform, and for a domain below its own
 * id: otherwise one tenant could replace the modules of another. A domain cannot write below the id of another domain.
 */
function loginFor(reference: Reference, order: PushOrder, configured: string | undefined): PushLogin {
  if (reference.digest !== undefined) {
    throw new ServiceError('malformed', 'the reference of a push must have a tag and no digest')
  }
  const isOwn = order.credentials !== undefined
  if (order.domainId === '') return isOwn ? 'own' : 'configured'
  const [first = ''] = reference.repository.split('/')
  const isOfDomain = reference.registry === configured && isId(first)
  if (isOfDomain && first !== order.domainId) {
    throw new ServiceError('forbidden', `${configured}/${first}/ belongs to another domain`)
  }
  return isOwn ? 'own' : isOfDomain ? 'configured' : 'none'
}

async function* limited(bytes: AsyncIterable<Buffer>, sizeBytes: number): AsyncGenerator<Buffer> {
  let left = sizeBytes
  for await (const piece of bytes) {
    left -= piece.length
    if (left < 0) throw moduleInvalid(`module has more than ${sizeBytes} bytes, its announced or accepted size`)
    yield piece
  }
}
