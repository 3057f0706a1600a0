/** Calls that name many things at once: how many, and which of them repeats another (contract 7.1). */
import { ServiceError, fieldName, kindOf } from '#core/errors/index.ts'

/** Items of a bulk creation, and ids in one list of a connection. */
export const MAX_BULK_ITEMS = 10_000
export const MAX_BULK_BODY_BYTES = 16 * 1024 * 1024

/** Throws `too_large`. */
export function requireFewItems(count: number, what: string): void {
  if (count > MAX_BULK_ITEMS)
    throw new ServiceError('too_large', `one call may name ${MAX_BULK_ITEMS} ${what}, not ${count}`)
}

/**
 * Throws `conflict` naming the first item that repeats a value of another. The database would refuse it too, but could not
 * say which two they are. `undefined` repeats nothing.
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
 * What a bulk is refused with of which something is stored already names the first such item: the database names the rule alone, so it
 * is looked up afterwards.
 */
export async function namingTaken<T>(
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

/** The refusal of the first item of which something is taken; undefined: nothing is any more. */
export function takenItem<T>(
  items: readonly T[],
  taken: Readonly<Record<string, (item: T) => boolean>>,
): ServiceError | undefined {
  for (const [place, item] of items.entries()) {
    const field = Object.keys(taken).find((name) => taken[name]?.(item) === true)
    if (field === undefined) continue
    const message = `has the ${fieldName(field)} of another one in the domain`
    return new ServiceError('conflict', `item ${place} ${message}`, {
      details: [{ path: `/${place}/${field}`, message }],
    })
  }
  return undefined
}
