/** The position of a message in the API: `<number>-<number>-<number>`, the position of its batch and its number in the batch. */
import { comparePositions, formatPosition, parsePosition } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import { refusedField } from '#core/errors/index.ts'

export type Place = Position & { message: number }

/** No number begins with 0, as months and days do. */
const PLACE = /^((?:0|[1-9]\d{0,19})-(?:0|[1-9]\d{0,15}))-(0|[1-9]\d{0,8})$/

export function formatPlace(place: Place): string {
  return `${formatPosition(place)}-${place.message}`
}

/** Undefined for a text that is no position. */
export function findPlace(text: string): Place | undefined {
  const [, position, message] = PLACE.exec(text) ?? []
  if (position === undefined || message === undefined) return undefined
  try {
    return { ...parsePosition(position), message: Number(message) }
  } catch {
    // A number is too large.
    return undefined
  }
}

/** Throws `malformed`, which names the field at `path`. */
export function parsePlace(text: string, path: string): Place {
  const place = findPlace(text)
  if (place === undefined) throw refusedField(path, 'must be the position of a message: <number>-<number>-<number>')
  return place
}

export function comparePlaces(left: Place, right: Place): number {
  return comparePositions(left, right) || left.message - right.message
}
