/** A module on its way into a registry: gathered in the cache, checked, and pushed from there. */
import { ServiceError } from '#core/errors/index.ts'
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
  /** Undefined: those that are configured for the registry, if any. */
  credentials: Credentials | undefined
}

export type Pushes = {
  /**
   * Pushes and gives the reference with the digest of the manifest. Throws `malformed` for bytes that are no module or
   * not those of the digest, `forbidden` when the reference may not be written, and what the registry answers.
   */
  push(order: PushOrder, bytes: AsyncIterable<Buffer>): Promise<string>
}

export type PushesDeps = {
  source: ModuleSource
  /** With the credentials of the call; undefined: with the configured ones. */
  exchangeFor: (registry: string, credentials: Credentials | undefined) => Exchange
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

export function createPushes({ source, exchangeFor, defaultRegistry, limits, signal }: PushesDeps): Pushes {
  const slots = new Slots({
    what: 'modules being pushed',
    max: MAX_PUSHES,
    share: MAX_PUSHES_PER_DOMAIN,
    waitMs: WAIT_MS,
    maxWaiting: MAX_WAITING,
    shareKind: 'unavailable',
  })

  async function push(order: PushOrder, bytes: AsyncIterable<Buffer>): Promise<string> {
    const reference = parseReference(order.reference, defaultRegistry)
    requireWritable(reference, order, defaultRegistry)
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
    const exchange = exchangeFor(reference.registry, order.credentials)
    const manifestDigest = await pushModule(exchange, reference, pushed, new Date(), AbortSignal.any([signal, late]))
    return pinnedReference(reference, manifestDigest)
  }

  return { push: (order, bytes) => slots.run(order.domainId, () => push(order, bytes)) }
}

/**
 * With credentials of their own callers write where those let them. With the configured ones the platform writes
 * anywhere, a domain below its own id: otherwise one tenant could replace the modules of another.
 */
function requireWritable(reference: Reference, order: PushOrder, configured: string | undefined): void {
  if (reference.digest !== undefined) {
    throw new ServiceError('malformed', 'a module is pushed under a tag: the reference must not have a digest')
  }
  if (order.credentials !== undefined || order.domainId === '') return
  if (reference.registry === configured && reference.repository.startsWith(`${order.domainId}/`)) return
  throw new ServiceError(
    'forbidden',
    `without credentials of its own a domain pushes to ${configured ?? 'the configured registry'}/${order.domainId}/ alone`,
  )
}

async function* atMost(bytes: AsyncIterable<Buffer>, sizeBytes: number): AsyncGenerator<Buffer> {
  let left = sizeBytes
  for await (const piece of bytes) {
    left -= piece.length
    if (left < 0) throw moduleInvalid(`module has more than the ${sizeBytes} bytes that were announced or are accepted`)
    yield piece
  }
}
