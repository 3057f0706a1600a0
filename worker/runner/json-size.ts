/** The size of JSON in memory, counted before it is parsed: a list of two bytes becomes an object of sixteen and more. */

/**
 * Objects, lists and members of objects. The heap of a thread (`guest-threads.ts`) holds no more, so real results are
 * below.
 */
const MAX_PARTS = 1_000_000
/** Items of lists, where numbers take eight bytes each. */
const MAX_ITEMS = 8_000_000
/** Shorter text cannot exceed either limit. */
const HARMLESS_BYTES = MAX_PARTS

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON = 0x3a
const BRACKET = 0x5b
const BRACE = 0x7b

/** Throws an Error if the parsed text has more parts than a runner can hold. */
export function checkJsonSize(json: Uint8Array): void {
  if (json.length <= HARMLESS_BYTES) return
  let parts = 0
  let items = 0
  let isText = false
  for (let at = 0; at < json.length; at++) {
    const byte = json[at]
    if (isText) {
      if (byte === BACKSLASH) at++
      else if (byte === QUOTE) isText = false
    } else if (byte === QUOTE) isText = true
    else if (byte === COMMA) items++
    else if (byte === BRACKET || byte === BRACE || byte === COLON) parts++
    if (parts > MAX_PARTS || items > MAX_ITEMS) {
      throw new Error(`a frame has more than ${MAX_PARTS} objects and members, or ${MAX_ITEMS} items`)
    }
  }
}
