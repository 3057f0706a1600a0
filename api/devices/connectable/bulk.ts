/** Limits and duplicate checks of bulk requests (contract 7.1). */
import { ServiceError, fieldName, kindOf } from '#core/errors/index.ts'

/** Maximum number of items in a bulk creation and of ids in one list of a connection. */
export const MAX_BULK_ITEMS = 10_000
export const MAX_BULK_BODY_BYTES = 16 * 1024 * 1024

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
