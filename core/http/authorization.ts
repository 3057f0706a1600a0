/** The header `Authorization` (RFC 9110 section 11.6.2). */

export type Authorization = {
  /** In lower case: schemes are compared without regard to case (RFC 9110 section 11.1). */
  scheme: string
  /** What follows the scheme and at least one space (section 11.4); never empty. */
  credentials: string
}

/** Undefined for a value that has no scheme, or nothing behind it. */
export function parseAuthorization(value: string | undefined): Authorization | undefined {
  const schemeEnd = value?.indexOf(' ') ?? -1
  if (value === undefined || schemeEnd <= 0) return undefined
  let start = schemeEnd
  while (value[start] === ' ') start++
  const credentials = value.slice(start)
  return credentials === '' ? undefined : { scheme: value.slice(0, schemeEnd).toLowerCase(), credentials }
}

/** What a device says: its secret or external key, by the scheme of today or by that of older devices. */
export function deviceKeyOf(value: string | undefined): string | undefined {
  const { scheme, credentials } = parseAuthorization(value) ?? {}
  return scheme === 'client' || scheme === 'thing' ? credentials : undefined
}
