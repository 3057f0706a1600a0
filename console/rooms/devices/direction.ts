/** What a connection of a client to a channel allows. */
export const TYPES = { both: ['publish', 'subscribe'], publish: ['publish'], subscribe: ['subscribe'] } as const
export type Direction = keyof typeof TYPES
export const DIRECTION_WORDS: readonly (readonly [Direction, string])[] = [
  ['both', 'Both'],
  ['publish', 'Publish'],
  ['subscribe', 'Subscribe'],
]
