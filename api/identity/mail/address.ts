/** Syntax of email addresses, for users and for outgoing mail. Only delivery proves that an address exists. */

/** RFC 5321 section 4.5.3.1.3: a path of 256 octets with its angle brackets. */
export const MAX_ADDRESS_CHARS = 254

/**
 * One @, a local part before it and a host of one or more labels after it; no spaces, control characters or list
 * separators.
 */
const ADDRESS = /^[^\s\p{C}@<>()[\],;:\\"]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?$/u

/** True for a bare address. A valid address cannot inject a header or another recipient. */
export function isMailAddress(text: string): boolean {
  return text.length <= MAX_ADDRESS_CHARS && ADDRESS.test(text) && !text.includes('..')
}

/** A sender: an address with an optional name. */
export type Sender = { name: string; address: string }

/** Parses `Name <address>` or a bare address. Undefined for other texts. */
export function parseSender(text: string): Sender | undefined {
  const match = /^([^<>"\p{C}]*)<([^<>]+)>$/u.exec(text.trim())
  const sender =
    match === null ? { name: '', address: text.trim() } : { name: match[1]?.trim() ?? '', address: match[2] ?? '' }
  return isMailAddress(sender.address) ? sender : undefined
}
