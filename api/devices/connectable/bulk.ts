/** Limits and duplicate checks of bulk requests (contract 7.1). */
import { enterForCreation } from '#api/identity/index.ts'
import type { AccessPolicy } from '#api/identity/index.ts'
import { ServiceError, fieldName, kindOf } from '#core/errors/index.ts'
import type { BulkTurns } from '#http/index.ts'
import { Slots } from '#core/slots.ts'

/** Maximum number of items in a bulk creation and of ids in one list of a connection. */
export const MAX_BULK_ITEMS = 10_000
export const MAX_BULK_BODY_BYTES = 16 * 1024 * 1024

/** Bulk requests of a process that run at a time, of one domain and in all. */
const MAX_RUNNING = 2
const MAX_RUNNING_PER_DOMAIN = 1
const MAX_WAIT_MS = 30_000
/** Bulk requests that wait, of one domain and in all. Each holds its body in memory. */
const MAX_WAITING_PER_DOMAIN = 20
const MAX_WAITING = 60
const RETRY_SECONDS = 5

/** The turns of bulk requests of a process (decision 0114). */
export function createBulkTurns(access: AccessPolicy): BulkTurns {
  return {
    slots: new Slots({
      what: 'bulk requests',
      max: MAX_RUNNING,
      share: MAX_RUNNING_PER_DOMAIN,
      waitMs: MAX_WAIT_MS,
      maxWaiting: MAX_WAITING_PER_DOMAIN,
      maxWaitingInAll: MAX_WAITING,
      retryAfterSeconds: RETRY_SECONDS,
      shareKind: 'unavailable',
    }),
    async ownerOf({ principal, params }) {
      const { domain_id: domainId } = params as { domain_id?: string }
      try {
        return (await enterForCreation(access, principal, domainId, 'clients')).domainId
      } catch {
        // A caller without access takes no share of the domain.
        return `user ${principal.id}`
      }
    },
  }
}

/** The items of a parsed body that is a list. */
export const itemsOf = (body: unknown): number => (Array.isArray(body) ? body.length : 0)

/** Throws `too_large`. */
export function requireItemLimit(count: number, what: string): void {
  if (count > MAX_BULK_ITEMS)
    throw new ServiceError('too_large', `a request is limited to ${MAX_BULK_ITEMS} ${what}: got ${count}`)
}

/**
 * Throws `conflict` with the position of the first item that repeats a value of another. The database would reject it
 * too, but could not name the two items. Items whose value is undefined are ignored.
 */
export function requireDistinct<T>(items: readonly T[], field: string, valueOf: (item: T) => string | undefined): void {
  const places = new Map<string, number>()
  for (const [place, item] of items.entries()) {
    const value = valueOf(item)
    if (value === undefined) continue
    const first = places.get(value)
    if (first !== undefined) {
      const message = `repeats the ${fieldName(field)} of item ${first}`
      throw new ServiceError('conflict', `item ${place} ${message}`, {
        details: [{ path: `/${place}/${field}`, message }],
      })
    }
    places.set(value, place)
  }
}

/**
 * Adds the first conflicting item to the error of a bulk creation that the database rejected. The database names the
 * constraint alone, so the item is looked up afterwards.
 */
export async function nameTakenItem<T>(
  items: readonly unknown[],
  work: Promise<T>,
  find: () => Promise<ServiceError | undefined>,
): Promise<T> {
  try {
    return await work
  } catch (refusal) {
    if (items.length === 1 || kindOf(refusal) !== 'conflict') throw refusal
    throw (await find()) ?? refusal
  }
}

/** Names the value that is in use in a list of one item, which is created as a single entity is. */
export async function inList<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (refusal) {
    if (!(refusal instanceof ServiceError) || refusal.kind !== 'conflict') throw refusal
    const details = refusal.details?.map(({ path, message }) => ({
      path: /^\/\d+\//.test(path) ? path : `/0${path}`,
      message,
    }))
    throw new ServiceError('conflict', refusal.message, { ...(details && { details }), cause: refusal })
  }
}

/** Returns the error for the first item with a value that is in use. Undefined when no value is in use any more. */
export function takenItem<T>(
  items: readonly T[],
  taken: Readonly<Record<string, (item: T) => boolean>>,
): ServiceError | undefined {
  for (const [place, item] of items.entries()) {
    const field = Object.keys(taken).find((name) => taken[name]?.(item) === true)
    if (field === undefined) continue
    const message = `has the ${fieldName(field)} of an existing entity of the domain`
    return new ServiceError('conflict', `item ${place} ${message}`, {
      details: [{ path: `/${place}/${field}`, message }],
    })
  }
  return undefined
}
