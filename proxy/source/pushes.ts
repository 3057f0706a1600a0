/** A module on its way into a registry: gathered in the cache, checked, and pushed from there. */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { isDigest } from '#core/digest.ts'
import { ModuleRefusal } from '#core/wasm/index.ts'
import { readInPieces } from '../cache/index.ts'
import { readModuleFacts } from './module-facts.ts'
import type { ModuleSource } from './module-source.ts'
import { moduleInvalid, parseReference, pinnedReference, pushModule } from '../oci/index.ts'
import type { Credentials, Exchange, Reference } from '../oci/index.ts'

export type PushOrder = {
  reference: string
  /** Undefined: whatever comes. */
  digest: string | undefined
  /** Undefined: up to the limit. */
  sizeBytes: number | undefined
  /** Empty: the platform. */
  domainId: string
  /** The caller's own for this registry. */
  credentials: Credentials | undefined
}

/** Whose login the registry was shown where it asked for one. */
export type PushLogin = 'own' | 'configured' | 'none'

export type Pushed = {
  /** With the digest of the manifest. */
  reference: string
  login: PushLogin
}

export type Pushes = {
  /**
   * Throws `malformed` for bytes that are no module or not those of the digest, `forbidden` when the reference may not be
   * written, and what the registry answers.
   */
  push(order: PushOrder, bytes: AsyncIterable<Buffer>): Promise<Pushed>
}

export type PushesDeps = {
  source: ModuleSource
  /** With credentials of the call, with the configured ones where there are any, or without. */
  exchangeFor: (registry: string, credentials: Credentials | 'configured' | 'none') => Exchange
  /** Whether credentials are configured for the default registry. */
  hasConfiguredLogin: boolean
  defaultRegistry: string | undefined
  limits: { maxModuleBytes: number; pullDeadlineMs: number }
  signal: AbortSignal
}

/** Pushes at a time, and for one domain: its registry may never answer. */
const MAX_PUSHES = 8
const MAX_PUSHES_PER_DOMAIN = 2
/** Managers bound them too; a few of several managers wait. */
const WAIT_MS = 30_000
const MAX_WAITING = 8

export function createPushes(deps: PushesDeps): Pushes {
  const { source, exchangeFor, defaultRegistry, hasConfiguredLogin, limits, signal } = deps
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
      throw new ServiceError('too_large', `a module may have at most ${limits.maxModuleBytes} bytes`)
    }
    const { digest } = await source.keep(atMost(bytes, maxBytes), order.digest)
    const module = await source.open(digest, '')
    await using handle = module.handle
    const { kind } = await readModuleFacts(handle, module.sizeBytes, order.domainId).catch(async (error: unknown) => {
      await source.discard(digest)
      throw error instanceof ModuleRefusal ? moduleInvalid(error.message) : error
    })
    const pushed = { digest, sizeBytes: module.sizeBytes, kind, read: () => readInPieces(handle) }
    const late = AbortSignal.timeout(limits.pullDeadlineMs)
    const exchange = exchangeFor(reference.registry, login === 'own' ? (order.credentials as Credentials) : login)
    const manifestDigest = await pushModule(
      exchange,
      reference,
      pushed,
      new Date(),
      AbortSignal.any([signal, late]),
    ).catch((error: unknown) => {
      throw login === 'none' && kindOf(error) === 'unauthenticated' ? wantsLogin(reference, order, error) : error
    })
    return { reference: pinnedReference(reference, manifestDigest), login }
  }

  /** What a push without a login can do where the registry wants one. */
  function wantsLogin({ registry, repository }: Reference, { domainId }: PushOrder, cause: unknown): ServiceError {
    const below =
      domainId !== '' && hasConfiguredLogin
        ? `, or push below ${defaultRegistry}/${domainId}/, where the configured one is used`
        : ''
    const message = `${registry} wants a login for ${repository}: send yours as Registry-Authorization (skein modules push --registry-user)${below}`
    return new ServiceError('unauthenticated', message, { cause })
  }

  return { push: (order, bytes) => slots.run(order.domainId, () => push(order, bytes)) }
}

/**
 * The registry decides who may write; the configured login is used for the platform, and for a domain below its own id: otherwise
 * one tenant could replace the modules of another. Below the id of another domain a domain writes with no login at all.
 */
function loginFor(reference: Reference, order: PushOrder, configured: string | undefined): PushLogin {
  if (reference.digest !== undefined) {
    throw new ServiceError('malformed', 'a module is pushed under a tag: the reference must not have a digest')
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

async function* atMost(bytes: AsyncIterable<Buffer>, sizeBytes: number): AsyncGenerator<Buffer> {
  let left = sizeBytes
  for await (const piece of bytes) {
    left -= piece.length
    if (left < 0) throw moduleInvalid(`module has more than the ${sizeBytes} bytes that were announced or are accepted`)
    yield piece
  }
}
