/** What an email address may look like, for users and for every mail that leaves. Delivery is the real test. */

/** RFC 5321 section 4.5.3.1.3: a path of 256 octets with its angle brackets. */
export const MAX_ADDRESS_CHARS = 254

/** One @, something before it, a host of one or more labels after it; no spaces, control characters or signs of a list. */
const ADDRESS = /^[^\s\p{C}@<>()[\],;:\\"]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?$/u

/** True for a bare address. None of them can begin another header or name another recipient. */
export function isMailAddress(text: string): boolean {
  return text.length <= MAX_ADDRESS_CHARS && ADDRESS.test(text) && !text.includes('..')
}

/** A sender: an address, with or without a name before it. */
export type Sender = { name: string; address: string }

/** Reads `Name <address>` or a bare address; undefined for anything else. */
export function parseSender(text: string): Sender | undefined {
  const match = /^([^<>"\p{C}]*)<([^<>]+)>$/u.exec(text.trim())
  const sender =
    match === null ? { name: '', address: text.trim() } : { name: match[1]?.trim() ?? '', address: match[2] ?? '' }
  return isMailAddress(sender.address) ? sender : undefined
}
