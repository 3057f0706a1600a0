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

/** Undefined for a text that has not the form of a position. */
function readPlace(text: string): Place | undefined {
  const [, position, message] = PLACE.exec(text) ?? []
  if (position === undefined || message === undefined) return undefined
  return { ...parsePosition(position), message: Number(message) }
}

/** Throws `malformed`, which names the field at `path`. */
export function parsePlace(text: string, path: string): Place {
  try {
    const place = readPlace(text)
    if (place !== undefined) return place
  } catch {
    // A number is too large: said below.
  }
  throw refusedField(path, 'must be the position of a message: <number>-<number>-<number>')
}

export function comparePlaces(left: Place, right: Place): number {
  return comparePositions(left, right) || left.message - right.message
}
