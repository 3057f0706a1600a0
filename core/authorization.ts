/** The header `Authorization` (RFC 9110 section 11.6.2), for every transport. */

export type Authorization = {
  /** The scheme in lower case: schemes are compared without regard to case (RFC 9110 section 11.1). */
  scheme: string
  /** The text after the scheme and at least one space (section 11.4); never empty. */
  credentials: string
}

/** Undefined for a value without a scheme or without credentials. */
export function parseAuthorization(value: string | undefined): Authorization | undefined {
  const schemeEnd = value?.indexOf(' ') ?? -1
  if (value === undefined || schemeEnd <= 0) return undefined
  let start = schemeEnd
  while (value[start] === ' ') start++
  const credentials = value.slice(start)
  return credentials === '' ? undefined : { scheme: value.slice(0, schemeEnd).toLowerCase(), credentials }
}

/** The token of `Bearer` (RFC 6750 section 2.1); undefined for any other scheme. */
export function bearerTokenOf(value: string | undefined): string | undefined {
  const { scheme, credentials } = parseAuthorization(value) ?? {}
  return scheme === 'bearer' ? credentials : undefined
}

/** A device's secret or external key. The scheme is `Client`; devices of Mainflux send `Thing`. */
export function deviceKeyOf(value: string | undefined): string | undefined {
  const { scheme, credentials } = parseAuthorization(value) ?? {}
  return scheme === 'client' || scheme === 'thing' ? credentials : undefined
}

export type BasicCredentials = { username: string; password: string }

/** `Basic` (RFC 7617): the first colon separates the username from the password. Undefined for any other scheme or form. */
export function basicCredentialsOf(value: string | undefined): BasicCredentials | undefined {
  const { scheme, credentials } = parseAuthorization(value) ?? {}
  if (scheme !== 'basic' || credentials === undefined) return undefined
  const text = Buffer.from(credentials, 'base64').toString('utf8')
  const colon = text.indexOf(':')
  return colon < 0 ? undefined : { username: text.slice(0, colon), password: text.slice(colon + 1) }
}
